"""Being right, being right beyond guessing, and guessing the largest: each by a second route."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import drha
from drha.conventions import ScaledThreshold, StabilityThreshold, Threshold

NOISES = {
    "laplace": drha.laplace(0.7),
    "gaussian": drha.gaussian(0.9, delta=1e-3),
    "geometric": drha.geometric(0.4),
    "discrete gaussian": drha.discrete_gaussian(sigma=1.1),
}
CONVENTIONS = [
    "round",
    "clip",
    "floor",
    "ceil",
    "signed",
    Threshold(3.0),
    ScaledThreshold(1.5),
    StabilityThreshold(0.01),
]
MECHANISMS = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())
EVERY = pytest.mark.parametrize("convention", CONVENTIONS, ids=repr)

cells = st.integers(1, 6).flatmap(
    lambda k: st.lists(st.integers(0, 12), min_size=k, max_size=k).filter(any)
)
noises = st.one_of(
    st.floats(0.01, 5.0).map(drha.laplace),
    st.floats(0.01, 5.0).map(drha.geometric),
    st.floats(0.2, 30.0).map(lambda sigma: drha.gaussian(sigma=sigma)),
    st.floats(0.2, 30.0).map(lambda sigma: drha.discrete_gaussian(sigma=sigma)),
)


def enumerate_survivors(counts, noise):
    """Probability that each level alone survives, from all 2^K patterns."""
    counts = np.array(counts)
    u = noise.vanishing(counts)
    alone = np.zeros(len(counts))
    for pattern in itertools.product([False, True], repeat=len(counts)):
        survives = np.array(pattern)
        if survives.sum() == 1:
            alone[np.argmax(survives)] += math.prod(np.where(survives, 1 - u, u))
    return alone


@settings(max_examples=100, deadline=None)
@given(cells, noises, st.sampled_from(CONVENTIONS))
def test_predictive_value_and_excess_equal_enumeration(counts, noise, convention):
    noise = noise.with_convention(convention)
    alone, counts = enumerate_survivors(counts, noise), np.array(counts)
    share = counts / counts.sum()
    if alone.sum() > 1e-250:
        refined, exact = alone @ share / alone.sum(), alone @ (counts > 0) / alone.sum()
        assert drha.positive_predictive_value(counts, noise) == pytest.approx(refined, rel=1e-9)
        assert drha.positive_predictive_value(counts, noise, "exact") == pytest.approx(
            exact, rel=1e-9
        )
    right, wrong = alone @ share, alone @ (1 - share)
    excess = right - wrong / (len(counts) - 1) if len(counts) > 1 else 0.0
    assert drha.excess_risk(counts, noise) == pytest.approx(excess, abs=1e-12)


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 1.0, 30.0])
@pytest.mark.parametrize(("n", "levels"), [(1, 2), (3, 5), (40, 3)])
def test_closed_forms_of_homogeneous_cells(epsilon, n, levels):
    noise, cell = drha.laplace(epsilon), [n] + [0] * (levels - 1)
    v = 0.5 * math.exp(-epsilon / 2)
    w = v * math.exp(-epsilon * (n - 1))
    right = (1 - v) * (1 - w)
    value = right / (right + (levels - 1) * v * w)
    assert drha.positive_predictive_value(cell, noise) == pytest.approx(value, rel=1e-12)
    excess = (1 - v) ** (levels - 2) * (1 - v - w)
    assert drha.excess_risk(cell, noise) == pytest.approx(excess, rel=1e-9, abs=1e-15)


@EVERY
def test_no_floor_when_the_release_tells_nothing(convention):
    noise = drha.laplace(1e-9).with_convention(convention)
    for cell in ([4, 0, 0], [2, 1, 1, 0], [30, 1]):
        assert drha.positive_predictive_value(cell, noise) == pytest.approx(1 / len(cell), rel=1e-6)
        assert drha.excess_risk(cell, noise) == pytest.approx(0.0, abs=1e-7)
        assert drha.argmax_risk(cell, noise, seen="noisy") == pytest.approx(1 / len(cell), rel=1e-6)


def test_predictive_value_where_both_events_underflow():
    noise = drha.laplace(50.0)
    cell = [400, 300, 0]
    assert drha.local_risk(cell, noise) == 0.0
    assert drha.positive_predictive_value(cell, noise) == pytest.approx(4 / 7, rel=1e-12)
    extreme = [[10**9, 10**9, 1], [0, 0, 10**9], [0, 0, 0], [5, 5, 5]]
    for epsilon in (1e-6, 1.0, 1e3):
        value = drha.positive_predictive_value(extreme, drha.laplace(epsilon))
        assert np.isfinite(value).all() and (value[2] == 0) and (value <= 1).all()


# Guessing the largest count.


def enumerate_largest(counts, noise, seen, width):
    """Every combination of whole noises, each with its probability and its winners."""
    counts = np.array(counts)
    k = np.arange(-width, width + 1)
    mass = np.exp(noise.log_rounded_mass(np.abs(k)))
    total = 0.0
    for combination in itertools.product(range(len(k)), repeat=len(counts)):
        index = np.array(combination)
        shown = counts + k[index]
        if seen == "released":
            shown = noise.convention.apply(noise, shown, counts)
        top = shown == shown.max()
        total += mass[index].prod() * (counts @ top) / top.sum()
    return total / counts.sum()


@EVERY
@pytest.mark.parametrize("seen", ["released", "noisy"])
def test_largest_equals_enumeration_of_whole_noises(convention, seen):
    noise = drha.discrete_gaussian(sigma=0.6).with_convention(convention)
    for counts in ([2, 1, 0], [3, 0], [1, 1], [0, 2, 2]):
        exact = enumerate_largest(counts, noise, seen, width=6)
        assert drha.argmax_risk(counts, noise, seen=seen) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 1.0, 5.0, 100.0])
@pytest.mark.parametrize("n", [1, 4, 50])
def test_largest_of_two_in_closed_form(epsilon, n):
    laplace = 1 - (0.5 + n * epsilon / 4) * math.exp(-n * epsilon)
    risk = drha.argmax_risk([n, 0], drha.laplace(epsilon), seen="noisy")
    assert risk == pytest.approx(laplace, abs=1e-14)
    gaussian = stats.norm.cdf(n * epsilon / math.sqrt(2))
    risk = drha.argmax_risk([0, n], drha.gaussian(sigma=1 / epsilon), seen="noisy")
    assert risk == pytest.approx(gaussian, abs=1e-14)


def test_largest_exceeds_the_disclosure_risk():
    noise = drha.laplace(1.0)
    assert drha.argmax_risk([4, 0], noise, seen="noisy") == pytest.approx(0.9725, abs=5e-5)
    assert drha.local_risk([4, 0], noise) == pytest.approx(0.6862, abs=5e-5)


def test_largest_of_several_by_adaptive_quadrature():
    cell, law = np.array([5, 3, 3, 0]), stats.norm(scale=2.0)
    noise = drha.gaussian(sigma=2.0)
    chosen = [
        integrate.quad(
            lambda x, k=k: (
                law.pdf(x - cell[k]) * law.cdf(x - np.delete(cell, k)).prod()  #
            ),
            -20,
            30,
            epsabs=1e-13,
            limit=200,
        )[0]
        for k in range(4)
    ]
    assert sum(chosen) == pytest.approx(1.0, abs=1e-12)
    exact = np.dot(chosen, cell) / cell.sum()
    assert drha.argmax_risk(cell, noise, seen="noisy") == pytest.approx(exact, abs=1e-12)


@MECHANISMS
@EVERY
def test_largest_of_simulated_releases(noise, convention):
    noise = noise.with_convention(convention)
    cell, draws, rng = np.array([3, 1, 0, 1]), 40_000, np.random.default_rng(41)
    released = noise.release(np.broadcast_to(cell, (draws, 4)), rng)
    top = released == released.max(axis=1, keepdims=True)
    share = (top @ cell) / top.sum(axis=1) / cell.sum()
    error = share.std() / math.sqrt(draws)
    assert abs(share.mean() - drha.argmax_risk(cell, noise)) < 4 * error


@settings(max_examples=40, deadline=None)
@given(cells, st.floats(0.02, 5.0))
def test_laws_of_guessing_the_largest(counts, epsilon):
    for noise in (drha.laplace(epsilon), drha.geometric(epsilon)):
        noisy = drha.argmax_risk(counts, noise, seen="noisy")
        released = drha.argmax_risk(counts, noise)
        share = max(counts) / sum(counts)
        assert 0 <= released <= share + 1e-12  # no guess is right more often than the majority
        assert 1 / len(counts) - 1e-12 <= noisy <= share + 1e-12
        shuffled = drha.argmax_risk(counts[::-1], noise)
        assert shuffled == pytest.approx(released, rel=1e-12)
        if np.count_nonzero(counts) == 1:
            assert noisy >= released - 1e-12  # rounding and clipping only lose
            assert released >= drha.local_risk(counts, noise) - 1e-12


def test_tables_shapes_and_extreme_counts():
    noise = drha.laplace(0.5)
    cube = np.random.default_rng(42).poisson(1.5, (4, 5, 3))
    for question in (
        drha.positive_predictive_value,
        drha.excess_risk,
        drha.argmax_risk,
    ):
        flat = question(cube.reshape(-1, 3), noise)
        np.testing.assert_allclose(question(cube, noise), flat.reshape(4, 5), rtol=1e-12)
        assert np.isscalar(question(cube[0, 0], noise))
        assert question([0, 0], noise) == 0.0
        assert question(np.zeros((0, 2), int), noise).shape == (0,)
    table = drha.FrequencyTable.from_counts([[3, 0], [2, 1]])
    np.testing.assert_array_equal(
        drha.argmax_risk(table, noise), drha.argmax_risk([[3, 0], [2, 1]], noise)
    )
    assert drha.excess_risk([5], noise) == 0.0
    assert drha.positive_predictive_value([5], noise) == 1.0
    assert drha.argmax_risk([5], noise) == pytest.approx(1.0, abs=1e-12)
    for seen in ("released", "noisy"):
        assert drha.argmax_risk([10**9, 1], noise, seen=seen) == pytest.approx(1.0, abs=1e-8)
        assert drha.argmax_risk([10**9, 10**9], noise, seen=seen) == pytest.approx(0.5, abs=1e-6)
    tall = noise.with_convention(Threshold(1e6))
    assert drha.argmax_risk([3, 0], tall) == pytest.approx(0.5, abs=1e-12)  # all released as zero


def test_bad_questions_are_refused():
    noise = drha.laplace(1.0)
    with pytest.raises(drha.DrhaError, match="refined"):
        drha.positive_predictive_value([1, 0], noise, "paper_bound")
    with pytest.raises(drha.DrhaError, match="noisy"):
        drha.argmax_risk([1, 0], noise, seen="all")
    with pytest.raises(drha.InvalidNoise, match="simulated_risk"):
        drha.argmax_risk([1, 0], noise.with_convention("rescale_cells"))
    with pytest.raises(drha.InvalidNoise, match="seen='noisy'"):
        drha.argmax_risk([1, 0], drha.laplace(1e-6))
    for question in (
        drha.positive_predictive_value,
        drha.excess_risk,
        drha.argmax_risk,
    ):
        with pytest.raises(drha.InvalidNoise, match=r"drha\.laplace"):
            question([1, 0], 1.0)
        with pytest.raises(drha.InvalidCounts, match="-1"):
            question([1, -1], noise)
