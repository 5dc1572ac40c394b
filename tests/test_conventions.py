"""Conventions: vanishing functions, releases and risks, each by a second route."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.optimize import brentq

import drha
from drha.conventions import (
    CONVENTIONS,
    Ceil,
    Clip,
    Floor,
    RoundAndClip,
    ScaledThreshold,
    SignedRounding,
    StabilityThreshold,
    Threshold,
    check_convention,
    project_to_simplex,
)

NOISES = {
    "laplace": drha.laplace(0.7),
    "gaussian": drha.gaussian(0.9, delta=1e-5),
    "geometric": drha.geometric(0.4),
    "discrete gaussian": drha.discrete_gaussian(sigma=1.1),
}
SINGLE = [
    RoundAndClip(),
    Clip(),
    Floor(),
    Ceil(),
    SignedRounding(),
    Threshold(0.5),
    Threshold(2),
    Threshold(3.7),
    ScaledThreshold(1.5),
    StabilityThreshold(0.01),
]
JOINT = ["rescale_cells", "project_cells", "rescale_table"]
MECHANISMS = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())
CONVENTION = pytest.mark.parametrize("convention", SINGLE, ids=repr)

noises = st.one_of(
    st.floats(1e-6, 1e3).map(drha.laplace),
    st.floats(1e-6, 1e3).map(drha.geometric),
    st.floats(1e-3, 1e6).map(lambda sigma: drha.gaussian(sigma=sigma)),
    st.floats(1e-3, 1e6).map(lambda sigma: drha.discrete_gaussian(sigma=sigma)),
)


def vanishing_by_release(noise, count, reach=400):
    """Sum the mass of every whole noise value whose release is zero."""
    k = np.arange(-reach, reach + 1)
    mass = np.exp(noise.log_rounded_mass(np.abs(k)))
    assert mass.sum() == pytest.approx(1.0, abs=1e-13)
    released = noise.convention.apply(noise, count + k, np.full(k.shape, count))
    return mass[released == 0].sum()


LAWS = {
    "laplace": stats.laplace(scale=1 / 0.7),
    "gaussian": stats.norm(scale=NOISES["gaussian"].sigma),
}


def continuous_vanishing(law, convention, counts, scale):
    """The event that a count is released as zero, written out for a continuous noise."""
    if isinstance(convention, SignedRounding):
        return law.cdf(0.5 - counts) - law.cdf(-0.5 - counts)
    thresholds = {
        RoundAndClip: lambda: 0.5,
        Clip: lambda: 0.0,
        Floor: lambda: 1.0,
        Ceil: lambda: 0.0,
        Threshold: lambda: convention.tau,
        ScaledThreshold: lambda: max(0.5, convention.t * scale),
        StabilityThreshold: lambda: 1 + law.isf(convention.delta),
    }
    return law.cdf(thresholds[type(convention)]() - counts)


# The vanishing function.


@CONVENTION
@pytest.mark.parametrize("name", ["geometric", "discrete gaussian"])
def test_whole_noise_equals_enumeration_of_the_release(name, convention):
    noise = NOISES[name].with_convention(convention)
    for count in (0, 1, 2, 5, 9):
        exact = vanishing_by_release(noise, count)
        assert noise.vanishing(count) == pytest.approx(exact, abs=1e-13)
        assert noise.survival(count) == pytest.approx(1 - exact, abs=1e-13)


@CONVENTION
@pytest.mark.parametrize("name", ["laplace", "gaussian"])
def test_continuous_noise_equals_the_distribution_function(name, convention):
    noise, counts = NOISES[name].with_convention(convention), np.arange(25)
    expected = continuous_vanishing(LAWS[name], convention, counts, noise.scale)
    np.testing.assert_allclose(noise.vanishing(counts), expected, rtol=1e-9, atol=1e-16)
    np.testing.assert_allclose(noise.survival(counts), 1 - expected, atol=1e-14)


@MECHANISMS
@CONVENTION
def test_released_zeros_follow_the_vanishing_function(noise, convention):
    draws, rng = 100_000, np.random.default_rng(21)
    noise = noise.with_convention(convention)
    for count in (0, 1, 3):
        zeros = np.count_nonzero(noise.release(np.full(draws, count), rng) == 0)
        u = float(noise.vanishing(count))
        assert abs(zeros - draws * u) <= 4 * math.sqrt(draws * u * (1 - u)) + 1e-9


@MECHANISMS
@CONVENTION
@pytest.mark.parametrize("kind", ["exact", "refined"])
def test_simulated_risk_agrees_with_the_local_risk(noise, convention, kind):
    noise = noise.with_convention(convention)
    cells, rng = [[2, 1, 0], [3, 0, 0]], np.random.default_rng(22)
    risk = drha.simulated_risk(cells, noise, draws=30_000, rng=rng, kind=kind)
    z = (risk.value - drha.local_risk(cells, noise, kind)) / risk.standard_error
    assert np.abs(z).max() < 4


@settings(max_examples=80, deadline=None)
@given(noises, st.sampled_from(SINGLE), st.integers(0, 10**9))
def test_laws_of_every_vanishing_function(noise, convention, count):
    noise = noise.with_convention(convention)
    counts = np.array([0, 1, 2, 3, count, count + 1])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        u, s = noise.vanishing(counts), noise.survival(counts)
        log_u, log_s = noise.log_vanishing(counts), noise.log_survival(counts)
    assert ((u >= 0) & (u <= 1)).all() and ((s >= 0) & (s <= 1)).all()
    np.testing.assert_allclose(u + s, 1.0, rtol=1e-12)
    assert np.isfinite(log_u).all() and np.isfinite(log_s).all()
    np.testing.assert_allclose(np.exp(log_u), u, rtol=1e-10, atol=1e-300)
    np.testing.assert_allclose(np.exp(log_s), s, rtol=1e-10, atol=1e-300)
    in_order = log_u[np.argsort(counts, kind="stable")]
    assert (np.diff(in_order) <= 1e-15).all()  # a larger count never vanishes more easily


def log_normal_mass(c, sigma):
    """Log Pr(c - 1/2 < N < c + 1/2) by quadrature of the density over its value at the near end."""
    near = max(c - 0.5, 0.0)
    width = min(c + 0.5 - near, 80 * sigma**2 / max(near, sigma))
    nodes, weights = np.polynomial.legendre.leggauss(30)
    starts = np.arange(16)[:, None] / 16
    x = width * (starts + (nodes + 1) / 32)
    density = np.exp(-x * (x + 2 * near) / (2 * sigma**2))
    area = width / 32 * (density @ weights).sum() * (2 if c == 0 else 1)
    return math.log(area / (sigma * math.sqrt(2 * math.pi))) - near**2 / (2 * sigma**2)


@pytest.mark.parametrize("sigma", [0.05, 0.3, 0.499, 0.5, 0.8, 3.0, 50.0, 1e4, 1e9])
def test_mass_near_a_whole_number_under_normal_noise(sigma):
    seam = math.ceil(8 * sigma**2)  # where the two formulas meet
    counts = sorted({0, 1, 2, 3, 17, min(seam, 10**12), min(seam + 1, 10**12), round(5 * sigma)})
    expected = [log_normal_mass(c, sigma) for c in counts]
    mass = drha.gaussian(sigma=sigma).log_rounded_mass(counts)
    np.testing.assert_allclose(mass, expected, rtol=3e-13, atol=3e-13)


@MECHANISMS
def test_rounded_mass_is_the_increment_of_the_distribution_function(noise):
    c = np.arange(0, 30)
    increments = noise.cdf(0.5 - c) - noise.cdf(-0.5 - c)
    np.testing.assert_allclose(np.exp(noise.log_rounded_mass(c)), increments, atol=1e-15)


@MECHANISMS
@pytest.mark.parametrize("delta", [0.49, 0.1, 1e-5, 1e-12])
def test_upper_quantile_is_the_smallest_that_keeps_delta(noise, delta):
    x = noise.upper_quantile(delta)
    assert noise.cdf(-x) <= delta * (1 + 1e-9)
    step = 1.0 if noise.lattice else 1e-6 * noise.scale
    assert noise.cdf(-(x - step)) > delta
    stable = noise.with_convention(StabilityThreshold(delta))
    assert stable.survival(1) <= delta * (1 + 1e-9)


# The closed forms and numbers of each convention.


def homogeneous(n, levels):
    return [n] + [0] * (levels - 1)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0, 40.0])
@pytest.mark.parametrize(("n", "levels"), [(1, 2), (3, 4), (12, 3)])
def test_laplace_closed_forms_of_homogeneous_cells(epsilon, n, levels):
    noise = drha.laplace(epsilon)

    def risk(convention):
        return drha.local_risk(homogeneous(n, levels), noise.with_convention(convention))

    clip = 2.0 ** -(levels - 1) * (1 - 0.5 * math.exp(-n * epsilon))
    assert risk("clip") == risk("ceil") == pytest.approx(clip, rel=1e-13)
    for tau in (1.0, 2.0, 5.5):
        empty = (1 - 0.5 * math.exp(-tau * epsilon)) ** (levels - 1)
        kept = 0.5 * math.exp(-abs(tau - n) * epsilon)
        expected = empty * (1 - kept if n >= tau else kept)
        assert risk(Threshold(tau)) == pytest.approx(expected, rel=1e-13)
    assert risk("floor") == pytest.approx(risk(Threshold(1.0)), rel=1e-15)
    delta = 1e-3
    tau = 1 + math.log(1 / (2 * delta)) / epsilon
    assert risk(StabilityThreshold(delta)) == pytest.approx(risk(Threshold(tau)), rel=1e-11)
    apart = math.exp(-epsilon / 2)
    zero, full = 1 - apart, math.sinh(epsilon / 2) * math.exp(-n * epsilon)
    assert risk("signed") == pytest.approx(zero ** (levels - 1) * (1 - full), rel=1e-12)


def test_floors_and_ceilings_as_epsilon_vanishes_and_grows():
    tiny, huge = drha.laplace(1e-7), drha.laplace(200.0)
    for levels in (2, 3, 5):
        cell = homogeneous(4, levels)
        for convention in ("round", "clip", "floor", "ceil", Threshold(3.0)):
            risk = drha.local_risk(cell, tiny.with_convention(convention))
            assert risk == pytest.approx(2.0**-levels, rel=1e-5)
        assert drha.local_risk(cell, tiny.with_convention("signed")) < 1e-6
        x = 0.5 * math.exp(-1.5)
        scaled = drha.local_risk(cell, tiny.with_convention(ScaledThreshold(1.5)))
        assert scaled == pytest.approx(x * (1 - x) ** (levels - 1), rel=1e-5)
        stable = drha.local_risk([1, *cell[1:]], tiny.with_convention(StabilityThreshold(1e-4)))
        assert stable == pytest.approx(1e-4, rel=2e-4 * levels)
        ceiling = drha.local_risk(cell, huge.with_convention("clip"))
        assert ceiling == pytest.approx(2.0 ** -(levels - 1), rel=1e-12)
        assert drha.local_risk(cell, huge.with_convention("signed")) == pytest.approx(1.0)


def test_a_threshold_erases_minorities_and_so_makes_cells_look_homogeneous():
    noise = drha.laplace(1.0)
    assert drha.local_risk([2, 1, 0], noise) == pytest.approx(0.242, abs=5e-4)
    raised = drha.local_risk([2, 1, 0], noise.with_convention(Threshold(2)))
    assert raised == pytest.approx(0.466, abs=5e-4)


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-3, 20.0), st.integers(1, 30), st.integers(2, 8))
def test_geometric_noise_is_more_accurate_and_its_risk_higher(epsilon, n, levels):
    geometric, laplace = drha.geometric(epsilon), drha.laplace(epsilon)
    assert geometric.vanishing(0) >= laplace.vanishing(0) * (1 - 1e-15)
    assert geometric.vanishing(n) <= laplace.vanishing(n) * (1 + 1e-14)
    cell = homogeneous(n, levels)
    assert drha.local_risk(cell, geometric) >= drha.local_risk(cell, laplace) * (1 - 1e-14)


def test_numbers_of_geometric_against_laplace_noise():
    for epsilon, high, low in ((1.0, 0.5344, 0.4854), (3.0, 0.9074, 0.7893)):
        assert drha.local_risk([1, 0], drha.geometric(epsilon)) == pytest.approx(high, abs=5e-5)
        assert drha.local_risk([1, 0], drha.laplace(epsilon)) == pytest.approx(low, abs=5e-5)


# Cells and tables treated as a whole.


def rescaled_two_levels(n, law):
    """Risk of (n, 0) rescaled to n: level 2 is clipped, or rounds to 0 after rescaling."""
    alone = law.sf(-n) * law.cdf(0)

    def integrand(y):
        return law.pdf(y) * law.sf((2 * n - 1) * y - n)

    edges = [0.0, n / (2 * n - 1), 60 * law.std()]
    parts = itertools.pairwise(edges)
    return alone + sum(integrate.quad(integrand, low, high)[0] for low, high in parts)


@pytest.mark.parametrize("epsilon", [1e-4, 0.3, 1.0])
@pytest.mark.parametrize("n", [1, 4])
def test_rescaling_and_projecting_two_levels(epsilon, n):
    noise, rng = drha.laplace(epsilon), np.random.default_rng(23)
    exact = {
        "rescale_cells": rescaled_two_levels(n, stats.laplace(scale=1 / epsilon)),
        "project_cells": 1 - 0.5 * math.exp(-epsilon) * (1 + epsilon / 2),  # whatever n
    }
    for name, expected in exact.items():
        risk = drha.simulated_risk([n, 0], noise.with_convention(name), draws=100_000, rng=rng)
        assert abs(risk.value - expected) < 4 * risk.standard_error
        if n == 1:  # known sizes raise the risk of one person
            assert expected > drha.local_risk([n, 0], noise)
    if epsilon == 1e-4 and n == 1:
        assert exact["rescale_cells"] == pytest.approx(3 / 8, abs=1e-4)
        assert exact["project_cells"] == pytest.approx(1 / 2, abs=1e-4)


def test_rescaling_a_table_shrinks_small_counts():
    table = np.tile([3, 0, 0, 0], (100, 1))
    noise, rng = drha.laplace(0.1), np.random.default_rng(24)
    rescaled = noise.with_convention("rescale_table")
    risk = drha.simulated_risk(table, rescaled, draws=4000, rng=rng)
    assert drha.local_risk(table[0], noise) == pytest.approx(0.0880, abs=5e-5)
    assert risk.value.mean() == pytest.approx(0.1305, abs=0.002)
    # the total is inflated by clipping, so all counts are shrunk and more of them round to 0
    ratio = 300 / np.maximum(table + noise.sample((2000, 100, 4), rng), 0).sum(axis=(1, 2))
    assert (ratio < 0.5).all()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=7),
    st.integers(0, 1000),
)
def test_projection_is_the_nearest_point_of_the_simplex(point, total):
    point = np.array(point)
    nearest = project_to_simplex(point, total)
    assert (nearest >= 0).all()
    assert nearest.sum() == pytest.approx(total, abs=1e-8)
    if total:  # the shift, by root finding instead of sorting
        low, high = point.min() - total - 1, point.max() + 1
        shift = brentq(lambda t: np.maximum(point - t, 0).sum() - total, low, high, xtol=1e-12)
        np.testing.assert_allclose(nearest, np.maximum(point - shift, 0), atol=1e-8)


@MECHANISMS
def test_joint_releases_keep_their_margins(noise):
    table = np.array([[5, 0, 2], [1, 1, 0], [90, 4, 0]])
    rng = np.random.default_rng(25)
    for name in JOINT:
        convention = CONVENTIONS[name]
        released = noise.with_convention(name).release(np.stack([table] * 50), rng)
        assert released.dtype == np.int64 and (released >= 0).all()
        axes = tuple(range(-convention.axes, 0))
        gap = np.abs(released.sum(axis=axes) - table.sum(axis=axes))
        empty = released.sum(axis=axes) == 0
        assert (gap[~empty] <= 0.5 * math.prod(table.shape[axis] for axis in axes)).all()
    one = drha.laplace(1.0)
    for seed in range(20):  # a table of one cell is a cell
        pair = [
            one.with_convention(name).release([[3, 1, 0]], np.random.default_rng(seed))
            for name in ("rescale_cells", "rescale_table")
        ]
        np.testing.assert_array_equal(*pair)


def test_nothing_positive_left_is_released_empty():
    noise = drha.laplace(1.0)
    noisy, true = np.array([[-1.0, -2.0]]), np.array([[3, 1]])
    for name in ("rescale_cells", "rescale_table"):
        assert not CONVENTIONS[name].apply(noise, noisy, true).any()
    np.testing.assert_array_equal(CONVENTIONS["project_cells"].apply(noise, noisy, true), [[3, 2]])


def test_refined_simulation_of_a_joint_convention():
    """Against a loop over single releases."""
    noise = drha.geometric(0.8).with_convention("project_cells")
    cell, rng = np.array([3, 1, 0]), np.random.default_rng(26)
    shares = []
    for _ in range(4000):
        positive = np.flatnonzero(noise.release(cell, rng))
        shares.append(cell[positive[0]] / 4 if len(positive) == 1 else 0.0)
    risk = drha.simulated_risk(cell, noise, draws=50_000, rng=rng, kind="refined")
    error = math.hypot(np.std(shares) / math.sqrt(4000), risk.standard_error)
    assert abs(np.mean(shares) - risk.value) < 4 * error


@MECHANISMS
@pytest.mark.parametrize("convention", ["round", "signed", Threshold(3)], ids=repr)
def test_simulated_largest_count_agrees_with_the_exact_attack(noise, convention):
    noise, rng = noise.with_convention(convention), np.random.default_rng(27)
    cells = [[3, 1, 0], [1, 1, 0], [0, 0, 0]]
    risk = drha.simulated_risk(cells, noise, draws=30_000, rng=rng, kind="largest")
    exact = drha.argmax_risk(cells, noise)
    assert risk.value[2] == exact[2] == 0
    assert np.abs((risk.value - exact)[:2] / risk.standard_error[:2]).max() < 4


def test_known_sizes_change_nothing_for_the_largest_of_two_projected_counts():
    """Projection keeps the order, and two released counts tie only at n / 2 and n / 2."""
    noise, rng = drha.laplace(0.3), np.random.default_rng(28)
    projected = noise.with_convention("project_cells")
    risk = drha.simulated_risk([5, 0], projected, draws=60_000, rng=rng, kind="largest")
    exact = drha.argmax_risk([5, 0], noise, seen="noisy")
    assert abs(risk.value - exact) < 4 * risk.standard_error


# Neighbours that substitute a record.


def test_substitution_by_name_equals_its_sensitivity():
    assert drha.laplace(1.0, sensitivity="substitution") == drha.laplace(1.0, sensitivity=2)
    assert drha.geometric(1.0, sensitivity="substitution") == drha.geometric(1.0, sensitivity=2)
    for calibration in ("analytic", "classical", "pdp"):
        named, numbered = (
            drha.gaussian(1.0, delta=1e-5, calibration=calibration, sensitivity=sensitivity)
            for sensitivity in ("substitution", math.sqrt(2))
        )
        assert named == numbered
        default = drha.gaussian(1.0, delta=1e-5, calibration=calibration)
        assert named.sigma == pytest.approx(math.sqrt(2) * default.sigma, rel=1e-14)
    assert drha.laplace(1.0) == drha.laplace(1.0, sensitivity="add_remove")
    half = drha.local_risk([1, 0], drha.laplace(1.0, sensitivity="substitution"))
    assert half == pytest.approx(0.3728, abs=5e-5)
    assert half == drha.local_risk([1, 0], drha.laplace(0.5))
    assert drha.local_risk([1, 0], drha.laplace(1.0)) == pytest.approx(0.4854, abs=5e-5)


def pair_profile(sigma, epsilon):
    """Sum over all pairs of whole noises of the positive part of the difference of masses."""
    reach = math.ceil(13 * sigma + 0.7 * epsilon * sigma**2) + 12
    k = np.arange(-reach, reach + 1.0)
    mass = np.exp(-0.5 * (k / sigma) ** 2)
    mass /= mass.sum()
    loss = (k[:, None] - k + 1) / sigma**2
    return float((np.outer(mass, mass) * -np.expm1(np.minimum(epsilon - loss, 0.0))).sum())


@settings(max_examples=40, deadline=None)
@given(st.floats(0.1, 12.0), st.floats(0.0, 8.0))
def test_discrete_gaussian_profile_under_substitution_equals_its_sum(sigma, epsilon):
    noise = drha.discrete_gaussian(sigma=sigma, sensitivity="substitution")
    assert noise.privacy_profile(epsilon) == pytest.approx(
        pair_profile(sigma, epsilon), rel=1e-10, abs=1e-280
    )


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 10.0])
@pytest.mark.parametrize("delta", [0.2, 1e-6])
def test_discrete_gaussian_has_the_privacy_asked_for_under_substitution(epsilon, delta):
    noise = drha.discrete_gaussian(epsilon, delta=delta, sensitivity="substitution")
    assert pair_profile(noise.sigma, epsilon) == pytest.approx(delta, rel=1e-8)
    assert pair_profile(noise.sigma * (1 - 1e-5), epsilon) > delta
    continuous = drha.gaussian(epsilon, delta=delta, sensitivity="substitution")
    if noise.sigma > 5:
        assert noise.sigma == pytest.approx(continuous.sigma, rel=1e-3)


def test_every_noise_keeps_its_parameters_under_another_convention():
    for noise in NOISES.values():
        other = noise.with_convention("clip")
        assert other.convention == Clip() != noise.convention
        assert other.with_convention("round") == noise
        assert other.scale == noise.scale


# Bad input.


@MECHANISMS
@pytest.mark.parametrize("name", JOINT)
def test_joint_conventions_have_no_vanishing_function(noise, name):
    noise = noise.with_convention(name)
    for call in (noise.vanishing, noise.log_vanishing, noise.survival, noise.log_survival):
        with pytest.raises(drha.InvalidNoise, match="simulated_risk"):
            call([1, 0])
    with pytest.raises(drha.InvalidNoise, match="simulated_risk"):
        drha.local_risk([1, 0], noise)
    with pytest.raises(drha.InvalidCounts, match="needs counts of shape"):
        noise.release(3, np.random.default_rng(1))


@pytest.mark.parametrize("value", [None, "two", math.nan, math.inf, -1.0, 0.0])
def test_bad_parameters_of_conventions_are_refused(value):
    for make in (Threshold, ScaledThreshold, StabilityThreshold):
        with pytest.raises(drha.InvalidNoise):
            make(value)
    with pytest.raises(drha.InvalidNoise, match="1/2"):
        Threshold(0.4)
    with pytest.raises(drha.InvalidNoise, match="1/2"):
        StabilityThreshold(0.5)
    with pytest.raises(drha.InvalidNoise, match="delta"):
        drha.laplace(1.0).upper_quantile(value)
    with pytest.raises(drha.InvalidNoise, match="choose one of"):
        check_convention(value)
    with pytest.raises(drha.InvalidNoise, match=r"unknown|positive|number"):
        drha.laplace(1.0, sensitivity="replace" if value == 0.0 else value)


def test_bad_simulations_are_refused():
    noise, rng = drha.laplace(1.0), np.random.default_rng(1)
    with pytest.raises(drha.DrhaError, match="draws"):
        drha.simulated_risk([1, 0], noise, draws=1, rng=rng)
    with pytest.raises(drha.DrhaError, match="draws"):
        drha.simulated_risk([1, 0], noise, draws=10.0, rng=rng)
    with pytest.raises(drha.DrhaError, match="largest"):
        drha.simulated_risk([1, 0], noise, draws=10, rng=rng, kind="paper_bound")
    with pytest.raises(drha.InvalidNoise, match=r"drha\.laplace"):
        drha.simulated_risk([1, 0], 1.0, draws=10, rng=rng)
    with pytest.raises(drha.InvalidNoise, match="Generator"):
        drha.simulated_risk([1, 0], noise, draws=10, rng=7)
    with pytest.raises(drha.InvalidCounts, match="-1"):
        drha.simulated_risk([1, -1], noise, draws=10, rng=rng)
    risk = drha.simulated_risk(np.zeros((0, 3), int), noise, draws=10, rng=rng)
    assert risk.value.shape == risk.standard_error.shape == (0,)
