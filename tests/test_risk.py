"""Local risk against enumeration, closed forms, limits and simulation of the real sanitiser."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

import drha
from drha.counts import BLOCK, TABULATED

NOISES = {
    "laplace": drha.laplace(0.7),
    "laplace weak": drha.laplace(0.05),
    "gaussian": drha.gaussian(0.9, delta=1e-5),
    "gaussian classical": drha.gaussian(1.5, delta=1e-3, calibration="classical"),
    "geometric": drha.geometric(0.4),
    "discrete gaussian": drha.discrete_gaussian(sigma=1.1),
}
MECHANISMS = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())

cells = st.integers(1, 6).flatmap(
    lambda k: st.lists(st.integers(0, 12), min_size=k, max_size=k).filter(any)
)
noises = st.one_of(
    st.floats(0.01, 5.0).map(drha.laplace),
    st.floats(0.01, 5.0).map(drha.geometric),
    st.floats(0.2, 30.0).map(lambda sigma: drha.gaussian(sigma=sigma)),
    st.floats(0.2, 30.0).map(lambda sigma: drha.discrete_gaussian(sigma=sigma)),
)


def enumerate_patterns(counts, noise):
    """Every pattern of surviving levels with its probability: 2^K of them."""
    u = noise.vanishing(np.array(counts))
    for pattern in itertools.product([False, True], repeat=len(counts)):
        survives = np.array(pattern)
        yield survives, math.prod(np.where(survives, 1.0 - u, u))


def enumerated_risk(counts, noise, share):
    """Sum the weight of the patterns in which one true level survives alone."""
    counts = np.array(counts)
    risk = 0.0
    for survives, probability in enumerate_patterns(counts, noise):
        if survives.sum() == 1 and counts[survives][0] > 0:
            risk += probability * (counts[survives][0] / counts.sum() if share else 1.0)
    return risk


@settings(max_examples=150, deadline=None)
@given(cells, noises)
def test_exact_and_refined_risk_equal_enumeration_of_zero_patterns(counts, noise):
    exact = enumerated_risk(counts, noise, share=False)
    refined = enumerated_risk(counts, noise, share=True)
    assert drha.local_risk(counts, noise) == pytest.approx(exact, rel=1e-12, abs=1e-15)
    assert drha.local_risk(counts, noise, "refined") == pytest.approx(refined, rel=1e-12, abs=1e-15)


@settings(max_examples=100, deadline=None)
@given(cells, noises)
def test_laws_of_the_three_kinds(counts, noise):
    exact, refined, bound = (
        drha.local_risk(counts, noise, kind) for kind in ("exact", "refined", "paper_bound")
    )
    assert 0 <= refined <= exact * (1 + 1e-12) <= 1 + 1e-12
    assert refined <= bound * (1 + 1e-12)  # what the printed expression does bound
    shuffled = counts[::-1]
    assert drha.local_risk(shuffled, noise) == pytest.approx(exact, rel=1e-12)
    if np.count_nonzero(counts) == 1:
        assert exact == pytest.approx(bound, rel=1e-12)
        assert exact == pytest.approx(refined, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.55, 1.0, 3.0])
@pytest.mark.parametrize("levels", [2, 3, 7])
def test_laplace_expressions_as_printed(epsilon, levels):
    n = np.arange(2, 40)
    keep = 1 - 0.5 * math.exp(-epsilon / 2)
    a = keep ** (levels - 1) * (1 - 0.5 * np.exp((0.5 - n) * epsilon))
    b = 0.5 * keep ** (levels - 2)
    b = b * (math.exp(-epsilon / 2) + np.exp((1.5 - n) * epsilon) - np.exp((1 - n) * epsilon))
    noise = drha.laplace(epsilon)
    np.testing.assert_allclose(drha.homogeneous_risk(n, levels, noise), a, rtol=1e-13)
    np.testing.assert_allclose(drha.scenario_8_expression(n, levels, noise), b, rtol=1e-13)
    alone, mixed = np.zeros((2, len(n), levels), dtype=int)
    alone[:, 1] = n
    mixed[:, 0], mixed[:, 1] = n - 1, 1
    np.testing.assert_allclose(drha.local_risk(alone, noise, "paper_bound"), a, rtol=1e-13)
    np.testing.assert_allclose(drha.local_risk(mixed, noise, "paper_bound"), b, rtol=1e-13)


@MECHANISMS
def test_printed_bound_is_the_exact_risk_of_its_own_cell(noise):
    n = np.arange(2, 30)
    counts = np.zeros((len(n), 4), dtype=int)
    counts[:, 2], counts[:, 0] = n - 1, 1
    np.testing.assert_allclose(
        drha.local_risk(counts, noise), drha.scenario_8_expression(n, 4, noise), rtol=1e-12
    )


@pytest.mark.parametrize("epsilon", [0.05, 0.4, 1.0, 2.5])
@pytest.mark.parametrize("counts", [(2, 1, 0), (4, 4, 1, 0, 0), (1, 1, 1, 1), (7, 2)])
def test_laplace_and_geometric_closed_forms(epsilon, counts):
    n_k = np.array([c for c in counts if c])
    n, m, levels, a = n_k.sum(), len(n_k), len(counts), math.exp(-epsilon)
    v, b = 0.5 * math.sqrt(a), 0.5 / math.sqrt(a)
    common = (1 - v) ** (levels - m) * b ** (m - 1) * a**n
    laplace = common * ((a ** -n_k.astype(float)).sum() - m * b)
    refined = common * ((n_k / n * a ** -n_k.astype(float)).sum() - b)
    survivors = (a ** (n - n_k.astype(float))).sum()
    geometric = (1 + a) ** -levels * ((1 + a) * survivors - m * a**n)
    assert drha.local_risk(counts, drha.laplace(epsilon)) == pytest.approx(laplace, rel=1e-11)
    assert drha.local_risk(counts, drha.laplace(epsilon), "refined") == pytest.approx(
        refined, rel=1e-11
    )
    assert drha.local_risk(counts, drha.geometric(epsilon)) == pytest.approx(geometric, rel=1e-11)


def excess_over_printed_bound(counts, noise):
    return drha.local_risk(counts, noise) - drha.local_risk(counts, noise, "paper_bound")


def test_minimal_counterexample_and_its_laplace_threshold():
    root = brentq(
        lambda eps: excess_over_printed_bound([1, 1, 1], drha.laplace(eps)), 0.1, 2.0, xtol=1e-14
    )
    v = brentq(lambda v: 8 * v**3 - 4 * v**2 + 3 * v - 1, 0.0, 0.5, xtol=1e-15)
    assert root == pytest.approx(-2 * math.log(2 * v), abs=1e-10)
    assert root == pytest.approx(0.5509901938, abs=1e-9)
    grid = np.linspace(0.01, 3.0, 300)
    fails = [excess_over_printed_bound([1, 1, 1], drha.laplace(eps)) > 0 for eps in grid]
    np.testing.assert_array_equal(fails, grid < root)


def test_thresholds_of_the_counterexample_for_geometric_and_gaussian_noise():
    root = brentq(
        lambda eps: excess_over_printed_bound([1, 1, 1], drha.geometric(eps)), 0.1, 2.0, xtol=1e-14
    )
    assert root == pytest.approx(math.log((1 + math.sqrt(5)) / 2), abs=1e-10)
    root = brentq(
        lambda sigma: excess_over_printed_bound([1, 1, 1], drha.gaussian(sigma=sigma)),
        1.0,
        3.0,
        xtol=1e-13,
    )
    assert root == pytest.approx(1.51633477, abs=5e-9)


@MECHANISMS
@pytest.mark.parametrize("counts", [(1, 1, 1), (4, 1, 0, 0)])
def test_simulated_sanitiser(noise, counts):
    """One million releases: share of disclosing ones, and share of records they disclose."""
    draws = 1_000_000
    rng = np.random.default_rng([len(counts), sum(counts)])
    true = np.array(counts)
    released = noise.release(np.broadcast_to(true, (draws, len(true))), rng)
    survivor = np.argmax(released > 0, axis=1)
    disclosed = (np.count_nonzero(released, axis=1) == 1) & (true[survivor] > 0)
    for kind, value in (
        ("exact", disclosed),
        ("refined", disclosed * true[survivor] / true.sum()),
    ):
        error = value.std(ddof=1) / math.sqrt(draws)
        assert abs(value.mean() - drha.local_risk(counts, noise, kind)) < 4 * error


@MECHANISMS
def test_limits(noise):
    assert drha.local_risk([0, 0, 0], noise) == 0
    assert drha.local_risk([0, 0, 0], noise, "refined") == 0
    assert drha.local_risk([0, 0, 0], noise, "paper_bound") == 0
    for kind in ("exact", "refined", "paper_bound"):  # one level: the release can only tell it
        assert drha.local_risk([5], noise, kind) == pytest.approx(noise.survival(5), rel=1e-15)
    assert drha.local_risk(np.zeros((0, 3), dtype=int), noise).shape == (0,)


@pytest.mark.parametrize("make", [drha.laplace, drha.geometric])
@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1.0, 1e3])
def test_extreme_counts_and_budgets_stay_probabilities(make, epsilon):
    counts = [[10**9, 0, 1], [10**9, 10**9, 10**9], [1, 1, 1], [0, 0, 10**9]]
    for kind in ("exact", "refined", "paper_bound"):
        risk = drha.local_risk(counts, make(epsilon), kind)
        assert np.isfinite(risk).all()
        assert ((risk >= 0) & (risk <= 1)).all()
    smallest = drha.local_risk([10**9, 0, 0], make(1e-6))
    assert smallest == pytest.approx(0.25, rel=1e-5)  # nothing of the large count is left to hide


@MECHANISMS
@pytest.mark.parametrize("kind", ["exact", "refined", "paper_bound"])
def test_blocks_tables_shapes_and_dtypes_do_not_matter(noise, kind):
    rng = np.random.default_rng(5)
    counts = rng.poisson(1.0, (BLOCK + 7, 3))
    counts[3, 1] = TABULATED + 12  # beyond the look-up table
    risk = drha.local_risk(counts, noise, kind)
    for i in (0, 3, BLOCK - 1, BLOCK, len(counts) - 1):
        assert drha.local_risk(counts[i], noise, kind) == pytest.approx(risk[i], rel=1e-13)
    for other in (counts.astype(float), counts.astype(np.uint32), np.asfortranarray(counts)):
        np.testing.assert_array_equal(drha.local_risk(other, noise, kind), risk)
    cube = counts[: 4 * 5].reshape(4, 5, 3)
    np.testing.assert_allclose(
        drha.local_risk(cube, noise, kind), risk[:20].reshape(4, 5), rtol=1e-14
    )


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([[1, 2], [3, -1]], "count -1 at cell 1, level 1"),
        ([[1, 0.5]], "count 0.5 at cell 0, level 1"),
        ([[1, 2], [math.nan, 1]], "count nan at cell 1, level 0"),
        ([[1, math.inf]], "count inf at cell 0, level 1"),
        ([[10**16, 1]], "at cell 0, level 0"),
        ([["a", "b"]], "whole numbers"),
        ([[1, 2], [3]], "rectangular"),
        ([[True, False]], "whole numbers"),
        (3, "no axis"),
        (np.zeros((4, 0), dtype=int), "no axis"),
    ],
)
def test_bad_counts_are_refused(counts, message):
    for call in (drha.local_risk, drha.scenario_probabilities):
        with pytest.raises(drha.InvalidCounts, match=message):
            call(counts, drha.laplace(1.0))


def test_bad_kind_noise_and_sizes_are_refused():
    with pytest.raises(drha.InvalidNoise, match=r"drha\.laplace"):
        drha.local_risk([1, 1], 0.5)
    with pytest.raises(drha.DrhaError, match="exact"):
        drha.local_risk([1, 1], drha.laplace(1.0), "upper")
    with pytest.raises(drha.InvalidCounts, match="size 0"):
        drha.homogeneous_risk([3, 0], 2, drha.laplace(1.0))
    with pytest.raises(drha.InvalidCounts, match="size 1"):
        drha.scenario_8_expression(1, 2, drha.laplace(1.0))
    with pytest.raises(drha.InvalidCounts, match="levels"):
        drha.scenario_8_expression(2, 1, drha.laplace(1.0))
