import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from channels import euclidean, random_channel, reference_level
from hypothesis import given, settings
from hypothesis import strategies as st

from dephdp import PrivacyCertificate, certify, exponential_mechanism, privacy_level
from dephdp.certificate import log_ratios
from dephdp.errors import CertificationError, InvalidBudget, InvalidChannel, InvalidMetric

PAIR = [[0.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize("seed", range(8))
def test_level_equals_the_definition(seed):
    rng = np.random.default_rng(seed)
    channel = random_channel(rng, rng.integers(1, 12), rng.integers(1, 9))
    expected = reference_level(channel.matrix, channel.distances)
    assert privacy_level(channel.matrix, channel.distances) == pytest.approx(expected, rel=1e-13)


@settings(max_examples=80, deadline=None)
@given(
    cells=st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=2, max_size=5),
    spread=st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=5, max_size=5),
)
def test_level_with_zeros_and_equal_points_equals_the_definition(cells, spread):
    counts = np.array(cells, dtype=float)
    counts[counts.sum(axis=1) == 0] = 1
    matrix = counts / counts.sum(axis=1, keepdims=True)
    distances = euclidean(np.array(spread[: len(matrix)]))
    assert privacy_level(matrix, distances) == pytest.approx(
        reference_level(matrix, distances), rel=1e-12
    )


def test_zero_facing_positive_is_infinite_in_either_order():
    assert privacy_level([[1.0, 0.0], [0.5, 0.5]], PAIR) == math.inf
    assert privacy_level([[0.5, 0.5], [1.0, 0.0]], PAIR) == math.inf
    # The least positive double is not a zero.
    tiny = 5e-324
    assert privacy_level([[1.0, tiny], [0.5, 0.5]], PAIR) == pytest.approx(
        math.log(0.5) - math.log(tiny)
    )


def test_an_output_impossible_everywhere_does_not_count():
    assert privacy_level([[0.75, 0.25, 0.0], [0.25, 0.75, 0.0]], PAIR) == pytest.approx(math.log(3))


def test_distance_zero_and_infinite_distance():
    apart, far = [[0.0, 0.0], [0.0, 0.0]], [[0.0, math.inf], [math.inf, 0.0]]
    assert privacy_level([[0.5, 0.5], [0.5, 0.5]], apart) == 0.0
    assert privacy_level([[0.5, 0.5], [0.4, 0.6]], apart) == math.inf
    assert privacy_level([[1.0, 0.0], [0.0, 1.0]], far) == 0.0


def test_log_ratios_are_per_ordered_pair():
    ratios = log_ratios([[0.8, 0.2], [0.5, 0.5]])
    assert ratios == pytest.approx(np.array([[0, math.log(1.6)], [math.log(2.5), 0]]))


def test_certificate_names_the_worst_pair_and_output():
    matrix = [[0.5, 0.3, 0.2], [0.4, 0.4, 0.2], [0.3, 0.3, 0.4]]
    distances = euclidean([0.0, 1.0, 2.0])
    certificate = PrivacyCertificate.compute(matrix, distances, 1.0)
    x, other = certificate.states
    y = certificate.output
    attained = math.log(matrix[x][y] / matrix[other][y]) / distances[x, other]
    assert certificate.level == pytest.approx(attained, rel=1e-14)
    assert certificate.level == privacy_level(matrix, distances)
    assert certificate.holds
    assert f"states {x} and {other}, output {y}" in str(certificate)
    assert "holds" in str(certificate)


def test_certificate_of_an_unprivate_channel():
    certificate = PrivacyCertificate.compute([[1.0, 0.0], [0.5, 0.5]], PAIR, 3.0)
    assert certificate.level == math.inf
    assert certificate.states == (1, 0)
    assert certificate.output == 1
    assert not certificate.holds
    assert "FAILS" in str(certificate)


def test_certificate_without_constrained_pairs():
    certificate = PrivacyCertificate.compute([[0.5, 0.5]], [[0.0]], 1.0)
    assert (certificate.level, certificate.states, certificate.output) == (0.0, None, None)
    assert "no pair" in str(certificate)


def test_no_tolerance_hides_in_the_comparison():
    matrix = [[0.75, 0.25], [0.25, 0.75]]
    level = privacy_level(matrix, PAIR)
    assert certify(matrix, PAIR, level).holds
    with pytest.raises(CertificationError, match="FAILS"):
        certify(matrix, PAIR, math.nextafter(level, 0.0))


@pytest.mark.parametrize("skew", [0.0, 4e-10])
@pytest.mark.parametrize("seed", range(4))
def test_rounding_bounds_the_error_of_the_computed_level(seed, skew):
    """Against 40-digit logarithms of the stored doubles, each row divided by its sum."""
    rng = np.random.default_rng(seed)
    distances = euclidean(rng.random((7, 2)))
    matrix = exponential_mechanism(distances, rng.uniform(1, 30)).matrix
    matrix = matrix * (1 + skew * rng.choice([-1, 1], size=(7, 1)))
    certificate = PrivacyCertificate.compute(matrix, distances, 100.0)
    with localcontext(prec=40):
        rows = [[Decimal(float(value)) for value in row] for row in matrix]
        logs = [[(value / sum(row)).ln() for value in row] for row in rows]
        exact = max(
            (a - b) / Decimal(float(distances[x, z]))
            for x in range(7)
            for z in range(7)
            if x != z
            for a, b in zip(logs[x], logs[z], strict=True)
        )
        error = exact - Decimal(certificate.level)
    assert error <= Decimal(certificate.rounding)
    assert certificate.rounding < 1e-12 + 4 * skew / distances[distances > 0].min()


def test_rounding_includes_row_sums_that_differ_from_one():
    skewed = np.array([[0.75, 0.25], [0.3, 0.7]]) * [[1 + 4e-10], [1 - 4e-10]]
    certificate = PrivacyCertificate.compute(skewed, PAIR, 2.0)
    assert certificate.level < math.log(2.8) <= certificate.level + certificate.rounding
    assert certificate.rounding == pytest.approx(8e-10, rel=1e-3)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[0.5, 0.4], [0.5, 0.5]], "row 0 sums to"),
        ([[0.5, 0.5], [1.2, -0.2]], "row 1, column 1"),
        ([[0.5, math.nan], [0.5, 0.5]], "row 0, column 1"),
        ([[math.inf, 0.0], [0.5, 0.5]], "row 0 sums to"),
        ([0.5, 0.5], "matrix"),
        (np.zeros((0, 2)), "nonempty"),
        ([["a", "b"]], "numbers"),
    ],
)
def test_bad_channels_are_refused(matrix, message):
    with pytest.raises(InvalidChannel, match=message):
        privacy_level(matrix, PAIR)


def test_distances_must_fit():
    with pytest.raises(InvalidMetric, match="expected 2"):
        privacy_level([[0.5, 0.5], [0.5, 0.5]], np.zeros((3, 3)))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, None, "one"])
def test_bad_budgets_are_refused(epsilon):
    with pytest.raises(InvalidBudget, match="epsilon"):
        certify([[0.5, 0.5], [0.5, 0.5]], PAIR, epsilon)
