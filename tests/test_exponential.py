import math

import numpy as np
import pytest
from channels import euclidean
from hypothesis import given, settings
from hypothesis import strategies as st

from dephdp import Channel, exponential_mechanism, privacy_level
from dephdp.errors import InvalidBudget, InvalidMetric

DISCRETE = 1.0 - np.eye(16)
GRID = euclidean(np.argwhere(np.ones((8, 8))))


def plain(distances, exponent):
    """The definition, without any care for overflow."""
    weights = np.exp(-exponent * np.asarray(distances))
    return weights / weights.sum(axis=1, keepdims=True)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.floats(1e-3, 20), st.integers(0, 2**32 - 1), st.booleans())
def test_it_is_a_channel_within_its_budget(states, epsilon, seed, calibrated):
    distances = euclidean(np.random.default_rng(seed).random((states, 2)))
    channel = exponential_mechanism(distances, epsilon, calibrated)
    assert channel.matrix.sum(axis=1) == pytest.approx(1, abs=1e-12)
    assert channel.privacy_level() <= epsilon
    if calibrated and states > 1:
        assert channel.privacy_level() == pytest.approx(epsilon, rel=1e-9)
    else:
        assert channel.matrix == pytest.approx(plain(distances, epsilon / 2), rel=1e-11)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1, 2, 4, 8])
def test_a_discrete_metric_uses_exactly_half_of_the_nominal_budget(epsilon):
    assert exponential_mechanism(DISCRETE, epsilon).privacy_level() == pytest.approx(epsilon / 2)
    calibrated = exponential_mechanism(DISCRETE, epsilon, calibrated=True)
    assert calibrated.matrix == pytest.approx(plain(DISCRETE, epsilon), rel=1e-12)


@pytest.mark.parametrize(
    "distances",
    [
        euclidean(np.arange(10)),
        euclidean(np.arange(10) / 9),
        euclidean(np.arange(50) / 49),
        GRID,
    ],
    ids=["line", "unit line", "fine unit line", "grid"],
)
@pytest.mark.parametrize("epsilon", [0.1, 1, 8])
def test_the_level_equals_its_closed_form_in_normalisers(distances, epsilon):
    """max over x ≠ x' of α + (ln Z(x') - ln Z(x)) / d(x, x'), against the enumeration."""
    alpha = epsilon / 2
    normaliser = np.exp(-alpha * distances).sum(axis=1)
    apart = ~np.eye(len(distances), dtype=bool)
    slopes = np.log(normaliser[None, :] / normaliser[:, None])[apart] / distances[apart]
    channel = exponential_mechanism(distances, epsilon)
    assert channel.privacy_level() == pytest.approx(alpha + slopes.max(), rel=1e-11)
    assert epsilon / 2 <= channel.privacy_level() <= epsilon


@pytest.mark.parametrize(
    ("distances", "levels"),
    [
        # Fractions of the nominal budget at ε = 0.1, 0.5, 1, 2, 4, 8, from an independent
        # computation, to two digits.
        (euclidean(np.arange(10)), [0.88, 0.80, 0.71, 0.60, 0.53, 0.50]),
        (euclidean(np.arange(10) / 9), [0.90, 0.89, 0.88, 0.86, 0.81, 0.73]),
        (GRID, [0.89, 0.85, 0.78, 0.67, 0.55, 0.50]),
    ],
    ids=["line", "unit line", "grid"],
)
def test_known_waste_of_the_nominal_exponent(distances, levels):
    for epsilon, expected in zip([0.1, 0.5, 1, 2, 4, 8], levels, strict=True):
        level = exponential_mechanism(distances, epsilon).privacy_level()
        assert level / epsilon == pytest.approx(expected, abs=0.00501)


def test_calibration_pays():
    """0-1 loss on 16 unordered states at ε = 4: randomised response against the textbook form."""
    prior, loss = np.full(16, 1 / 16), DISCRETE
    nominal = exponential_mechanism(DISCRETE, 4.0).expected_loss(prior, loss)
    calibrated = exponential_mechanism(DISCRETE, 4.0, calibrated=True).expected_loss(prior, loss)
    assert nominal == pytest.approx(15 / (15 + math.exp(2)), rel=1e-12)
    assert calibrated == pytest.approx(15 / (15 + math.exp(4)), rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_a_slightly_larger_exponent_breaks_the_budget(seed):
    """The calibrated exponent is a boundary, found here by scanning exponents instead."""
    rng = np.random.default_rng(seed)
    distances, epsilon = euclidean(rng.random((8, 2))), rng.uniform(0.5, 10)
    channel = exponential_mechanism(distances, epsilon, calibrated=True)
    logs = np.log(channel.matrix)
    exponent = (logs[0, 0] - logs[0, 1]) / distances[0, 1]
    assert epsilon / 2 <= exponent <= epsilon
    assert privacy_level(plain(distances, exponent * (1 + 1e-6)), distances) > epsilon


def test_states_at_distance_zero_share_their_row():
    points = np.array([0.0, 0.0, 0.1, 0.3])
    for calibrated in (False, True):
        channel = exponential_mechanism(euclidean(points), 3.0, calibrated)
        assert (channel.matrix[0] == channel.matrix[1]).all()
        assert channel.privacy_level() <= 3.0
    # Rounding that leaves the rows of two such states apart does not show.
    distances = euclidean(points)
    distances[0, 3] = distances[3, 0] = np.nextafter(0.3, 1)
    assert exponential_mechanism(distances, 3.0).privacy_level() <= 3.0
    assert exponential_mechanism(np.zeros((3, 3)), 1.0, calibrated=True).privacy_level() == 0


def test_infinite_distances_separate_blocks():
    distances = np.full((4, 4), math.inf)
    distances[:2, :2] = distances[2:, 2:] = 1.0 - np.eye(2)
    channel = exponential_mechanism(distances, 1.0, calibrated=True)
    assert channel.privacy_level() == pytest.approx(1.0)
    assert (channel.matrix[:2, 2:] == 0).all()
    assert channel.matrix[:2, :2] == pytest.approx(plain(1.0 - np.eye(2), 1.0))


@pytest.mark.parametrize("epsilon", [1e-18, 1e-12, 1e-6])
@pytest.mark.parametrize("calibrated", [False, True])
def test_tiny_budgets_are_not_exceeded_by_rounding(epsilon, calibrated):
    distances = euclidean(np.random.default_rng(0).random((20, 2)))
    assert exponential_mechanism(distances, epsilon, calibrated).privacy_level() <= epsilon


def test_a_budget_that_underflows_is_refused():
    with pytest.raises(InvalidBudget, match="underflows"):
        exponential_mechanism(DISCRETE, 1500.0)
    with pytest.raises(InvalidBudget, match="underflows"):
        Channel(np.eye(16), DISCRETE).repair(800.0)
    largest = exponential_mechanism(DISCRETE, 690.0, calibrated=True)
    assert largest.privacy_level() == pytest.approx(690.0)


def test_bad_input():
    for epsilon in (0.0, -1.0, math.nan, math.inf, "a"):
        with pytest.raises(InvalidBudget, match="epsilon"):
            exponential_mechanism(DISCRETE, epsilon)
    with pytest.raises(InvalidMetric, match="symmetric"):
        exponential_mechanism([[0, 1], [2, 0]], 1.0)
    with pytest.raises(InvalidMetric, match="triangle"):
        exponential_mechanism([[0, 1, 3], [1, 0, 1], [3, 1, 0]], 1.0)
