"""Laplace mechanisms: closed forms, a second integration in polar coordinates, simulation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import k1
from scipy.stats import laplace

from dephdp import (
    bayes_remap,
    geometric_mechanism,
    laplace_mechanism,
    planar_laplace_mechanism,
    tight_constraints_mechanism,
)
from dephdp.errors import InvalidBudget, InvalidDomain, InvalidMetric
from dephdp.optimal.problem import Problem
from tests.instances import all_pairs_optimum

# ------------------------------------------------------------------------------------- geometric


@pytest.mark.parametrize("states", [1, 2, 3, 10])
@pytest.mark.parametrize("epsilon", [1e-6, 0.3, 2, 50])
def test_truncated_geometric_noise_sums_its_tails(states, epsilon):
    """The definition: Pr(k) = (1 - t) / (1 + t) t^|k|, tails reported as the ends."""
    step = 0.7
    t = math.exp(-epsilon * step)
    channel = geometric_mechanism(states, epsilon, step)
    noise = np.arange(-30_000, 30_001)
    mass = np.tanh(epsilon * step / 2) * t ** np.abs(noise)
    if t**30_000 < 1e-20:
        for x in range(states):
            clamped = np.bincount(np.clip(x + noise, 0, states - 1), mass, states)
            assert channel.matrix[x] == pytest.approx(clamped, rel=1e-9)
    assert channel.privacy_level() <= epsilon
    if states > 1:
        assert channel.privacy_level() == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.01, 1, 7])
def test_geometric_noise_is_the_tight_mechanism_of_an_even_line(epsilon):
    channel = geometric_mechanism(9, epsilon, step=0.5)
    tight = tight_constraints_mechanism(channel.distances, epsilon)
    assert channel.matrix == pytest.approx(tight.matrix, rel=1e-8, abs=1e-14)


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 6), st.floats(0.1, 5), st.integers(0, 2**32 - 1))
def test_geometric_noise_remapped_is_optimal_for_every_prior_and_monotone_loss(n, epsilon, seed):
    rng = np.random.default_rng(seed)
    prior = rng.dirichlet(np.full(n, 0.5))
    channel = geometric_mechanism(n, epsilon)
    loss = np.sort(rng.random(n))[channel.distances.astype(int)]
    best = all_pairs_optimum(Problem(prior, loss, channel.distances, epsilon))
    remapped = bayes_remap(channel, prior, loss).expected_loss(prior, loss)
    assert remapped == pytest.approx(best, rel=1e-6, abs=1e-8)


# ------------------------------------------------------------------------------- Laplace, a line


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.floats(1e-3, 60), st.integers(0, 2**32 - 1))
def test_rounded_laplace_noise_has_the_differences_of_its_distribution(n, m, epsilon, seed):
    rng = np.random.default_rng(seed)
    states, outputs = rng.random(n), rng.random(m)
    channel = laplace_mechanism(states, epsilon, outputs)
    order = np.argsort(outputs)
    cuts = np.r_[-np.inf, (outputs[order][1:] + outputs[order][:-1]) / 2, np.inf]
    cumulative = laplace.cdf(cuts[None, :], loc=states[:, None], scale=1 / epsilon)
    assert channel.matrix[:, order] == pytest.approx(np.diff(cumulative), rel=1e-6, abs=1e-13)
    assert channel.matrix.sum(axis=1) == pytest.approx(1, abs=1e-14)
    assert channel.privacy_level() <= epsilon


def test_the_end_cells_of_a_line_attain_the_budget():
    channel = laplace_mechanism([0.0, 0.1, 0.7, 1.0], 3.0)
    assert channel.privacy_level() == pytest.approx(3.0, rel=1e-12)
    alone = laplace_mechanism([2.0], 3.0)
    assert (alone.matrix == 1).all()


def test_small_cells_far_away_keep_their_relative_accuracy():
    """Direct differences of the distribution function would be 0 here."""
    outputs = [0.0, 99.5, 100.0, 100.5]
    channel = laplace_mechanism([0.0, 1.0], 3.0, outputs)
    expected = math.exp(-3 * 99.75) * -math.expm1(-1.5) / 2
    assert channel.matrix[0, 2] == pytest.approx(expected, rel=1e-12)
    assert math.log(channel.matrix[1, 2] / channel.matrix[0, 2]) == pytest.approx(3.0, rel=1e-12)


def test_positions_may_repeat_and_come_in_any_order():
    channel = laplace_mechanism([1.0, 0.0, 1.0], 2.0)
    merged = laplace_mechanism([0.0, 1.0], 2.0)
    assert channel.matrix[:, [1, 0]] == pytest.approx(merged.matrix[[1, 0, 1]], rel=1e-15)
    assert (channel.matrix[:, 2] == 0).all()


# ------------------------------------------------------------------------- Laplace, in the plane


def polar_reference(state, sites, epsilon):
    """Cell probabilities by rays: in each direction a cell is an interval of radii.

    The directions are cut where some interval has a kink: towards every point equidistant to
    three sites and along every bisector. Between cuts Gauss-Legendre rules on panels that shrink
    towards the cuts integrate the difference of the radial distribution at the ends.
    """
    m = len(sites)
    cuts = [-math.pi, math.pi]
    for i, j in itertools.combinations(range(m), 2):
        dx, dy = sites[j] - sites[i]
        angle = math.atan2(dx, -dy)
        cuts += [angle, angle + math.pi if angle < 0 else angle - math.pi]
        for k in range(j + 1, m):
            system = 2 * np.array([sites[j] - sites[i], sites[k] - sites[i]])
            squares = (sites**2).sum(axis=1)
            if abs(np.linalg.det(system)) > 1e-12:
                vertex = np.linalg.solve(system, squares[[j, k]] - squares[i]) - state
                cuts.append(math.atan2(vertex[1], vertex[0]))
    cuts = np.unique(cuts)
    steps = np.r_[0, 0.5 ** np.arange(35, 0, -1), 1 - 0.5 ** np.arange(2, 36)]
    fine = np.concatenate([a + (b - a) * steps for a, b in itertools.pairwise(cuts)])
    fine = np.r_[fine, math.pi]
    nodes, weights = np.polynomial.legendre.leggauss(20)
    half = np.diff(fine)[:, None] / 2
    theta = (fine[:-1, None] + half + half * nodes).ravel()
    weight = (half * weights).ravel()
    rays = np.c_[np.cos(theta), np.sin(theta)]
    probabilities = []
    for y in range(m):
        low, high = np.zeros(len(theta)), np.full(len(theta), np.inf)
        for k in range(m):
            if k == y:
                continue
            towards = rays @ (sites[k] - sites[y])
            room = (sites[k] @ sites[k] - sites[y] @ sites[y]) / 2 - state @ (sites[k] - sites[y])
            with np.errstate(divide="ignore"):
                bound = np.maximum(room / towards, 0)
            high = np.where(towards > 0, np.minimum(high, bound), high)
            low = np.where(towards < 0, np.maximum(low, bound), low)
        low, high = (np.minimum(epsilon * r, 700) for r in (np.minimum(low, high), high))
        share = (1 + low) * np.exp(-low) - (1 + high) * np.exp(-high)
        probabilities.append(weight @ share / (2 * math.pi))
    return np.array(probabilities)


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 2), st.integers(1, 5), st.floats(1e-2, 30), st.integers(0, 2**32 - 1))
def test_cells_of_the_plane_agree_with_rays(n, m, epsilon, seed):
    rng = np.random.default_rng(seed)
    states, outputs = rng.random((n, 2)), rng.random((m, 2))
    channel = planar_laplace_mechanism(states, epsilon, outputs)
    for x in range(n):
        expected = polar_reference(states[x], outputs, epsilon)
        assert channel.matrix[x] == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert channel.privacy_level() <= epsilon


@pytest.mark.parametrize("height", [1e-9, 1e-3, 0.2, 1, 10, 100, 340])
@pytest.mark.parametrize("angle", [0.0, 0.3])
def test_half_planes_agree_with_the_bessel_marginal(height, angle):
    """Across a line at distance h lies ∫_h^∞ s K1(s) ds / π, to full relative accuracy."""
    towards = np.array([math.cos(angle), math.sin(angle)])
    channel = planar_laplace_mechanism(
        [[0.0, 0.0], towards], 1.0, [-towards, (2 * height + 1) * towards]
    )
    tail = quad(
        lambda s: s * k1(s) * math.exp(height),
        height,
        height + 60,
        epsabs=0,
        epsrel=1e-13,
        limit=200,
    )
    assert channel.matrix[0, 1] == pytest.approx(
        math.exp(-height) * tail[0] / math.pi, rel=1e-11 + tail[1]
    )


def test_symmetry_fixes_the_cells_around_a_centre():
    """States on edges and on vertices of the diagram: halves, quarters and sixths."""
    for corners in (2, 3, 4, 6):
        angles = 2 * math.pi * (np.arange(corners) + 0.1) / corners
        outputs = np.c_[np.cos(angles), np.sin(angles)]
        channel = planar_laplace_mechanism([[0.0, 0.0]], 1.7, outputs)
        assert channel.matrix[0] == pytest.approx(1 / corners, rel=1e-13)
    square = planar_laplace_mechanism(
        [[1.0, 1.0], [1.0, 0.5]], 2.0, [[0, 0], [2, 0], [0, 2], [2, 2]]
    )
    assert square.matrix[0] == pytest.approx(0.25, rel=1e-13)
    assert square.matrix[1, 0] == pytest.approx(square.matrix[1, 1], rel=1e-13)
    between = planar_laplace_mechanism([[0.5, 0.5], [0.0, 0.0]], 3.0, np.argwhere(np.ones((2, 2))))
    assert between.matrix[0] == pytest.approx(0.25, rel=1e-13)


@pytest.mark.parametrize("epsilon", [1e-7, 1e-3, 0.1, 1, 5, 60])
def test_grids_of_any_scale_stay_within_their_budget(epsilon):
    points = np.argwhere(np.ones((6, 6))).astype(float)
    channel = planar_laplace_mechanism(points, epsilon)
    assert 0.9 * epsilon < channel.privacy_level() <= epsilon
    assert channel.privacy_level() < epsilon * (1 - 1e-9), "the exponent was not lowered"
    square = channel.matrix.reshape(6, 6, 6, 6)
    # The same noise seen in a mirror and turned by a quarter.
    assert square == pytest.approx(square[::-1, :, ::-1, :], rel=1e-8)
    assert square == pytest.approx(square.transpose(1, 0, 3, 2), rel=1e-8)


def test_a_small_budget_gives_interior_cells_their_area_times_the_density_at_the_centre():
    epsilon = 1e-6
    channel = planar_laplace_mechanism(np.argwhere(np.ones((3, 3))), epsilon)
    # The density is ε²/2π (1 - ε r + ...); on the unit square r has the mean (√2 + asinh 1) / 6.
    mean = (math.sqrt(2) + math.asinh(1)) / 6
    assert channel.matrix[4, 4] == pytest.approx(
        epsilon**2 / (2 * math.pi) * (1 - epsilon * mean), rel=1e-10
    )


def test_refining_the_outputs_adds_up():
    """Four cells of a fine grid make one of the coarse grid of their centres."""
    fine = np.argwhere(np.ones((8, 8))).astype(float)
    coarse = fine.reshape(4, 2, 4, 2, 2).mean(axis=(1, 3)).reshape(-1, 2)
    states = np.random.default_rng(5).random((6, 2)) * 7
    small = planar_laplace_mechanism(states, 0.8, fine).matrix.reshape(-1, 4, 2, 4, 2)
    large = planar_laplace_mechanism(states, 0.8, coarse).matrix
    assert small.sum(axis=(2, 4)).reshape(-1, 16) == pytest.approx(large, rel=1e-11)


def test_points_on_one_line_and_points_that_coincide():
    points = np.c_[np.arange(5.0), 2 * np.arange(5.0)]
    channel = planar_laplace_mechanism(points, 1.0)
    assert channel.matrix == pytest.approx(channel.matrix[::-1, ::-1], rel=1e-12)
    twice = planar_laplace_mechanism(np.vstack([points, points]), 1.0)
    assert twice.matrix[:5, :5] == pytest.approx(channel.matrix, rel=1e-13)
    assert (twice.matrix[:, 5:] == 0).all()
    assert (twice.matrix[:5] == twice.matrix[5:]).all()
    assert (planar_laplace_mechanism(points[:1], 1.0).matrix == 1).all()


def test_planar_noise_by_simulation():
    """A gamma radius, a uniform angle, the nearest output."""
    rng = np.random.default_rng(17)
    outputs = rng.random((9, 2))
    state, epsilon, draws = np.array([0.4, 0.45]), 6.0, 400_000
    channel = planar_laplace_mechanism(np.array([state, [0.9, 0.1]]), epsilon, outputs)
    radius = rng.gamma(2.0, 1 / epsilon, draws)
    angle = rng.uniform(0, 2 * math.pi, draws)
    noisy = state + radius[:, None] * np.c_[np.cos(angle), np.sin(angle)]
    squares = (outputs**2).sum(axis=1) - 2 * noisy @ outputs.T
    counts = np.bincount(squares.argmin(axis=1), minlength=9)
    expected = channel.matrix[0]
    errors = np.sqrt(draws * expected * (1 - expected))
    assert (np.abs(counts - draws * expected) < 4 * errors).all()


def test_bad_input():
    for build, good in (
        (laplace_mechanism, [0.0, 1.0]),
        (planar_laplace_mechanism, [[0.0, 0.0], [1.0, 0.0]]),
    ):
        with pytest.raises(InvalidBudget, match="epsilon"):
            build(good, -1.0)
        with pytest.raises(InvalidBudget, match="underflows"):
            build(good, 800.0)
        with pytest.raises(InvalidDomain, match="shape"):
            build([[[0.0]]], 1.0)
        with pytest.raises(InvalidDomain, match="shape"):
            build([], 1.0)
        with pytest.raises(InvalidDomain, match=r"\[1\].*finite"):
            build([good[0], np.full(np.shape(good[0]), np.nan)], 1.0)
        with pytest.raises(InvalidDomain, match="outputs"):
            build(good, 1.0, [good[0], np.full(np.shape(good[0]), np.inf)])
        with pytest.raises(InvalidDomain, match="numbers"):
            build(["a", "b"], 1.0)
    with pytest.raises(InvalidDomain, match="number of states"):
        geometric_mechanism(2.5, 1.0)
    with pytest.raises(InvalidMetric, match="step"):
        geometric_mechanism(3, 1.0, step=0.0)
    with pytest.raises(InvalidBudget, match="underflows"):
        geometric_mechanism(100, 10.0)
