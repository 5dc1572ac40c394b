"""Benders decomposition against the whole linear program, known optima and hand-made cuts."""

import time

import numpy as np
import pytest
from channels import euclidean
from hypothesis import given, settings
from hypothesis import strategies as st

from dephdp import bayes_remap, geometric_mechanism, privacy_level, tight_constraints_mechanism
from dephdp.optimal import benders
from dephdp.optimal.bound import cluster_bound, lower_bound
from dephdp.optimal.pairs import COLLINEAR, necessary_pairs
from dephdp.optimal.problem import Problem
from tests import instances


def grid(side, p=2):
    points = np.argwhere(np.ones((side, side))).astype(float)
    return np.linalg.norm(points[:, None] - points[None], ord=p, axis=2)


def random_metric(kind, states, rng):
    if kind == "line":
        return euclidean(rng.random(states))
    if kind == "plane":
        return euclidean(rng.random((states, 2)))
    if kind == "discrete":
        return 1 - np.eye(states)
    if kind == "tree":
        distances = np.zeros((states, states))
        for x in range(1, states):
            parent = rng.integers(x)
            distances[x, :x] = distances[:x, x] = distances[parent, :x] + rng.uniform(0.1, 1)
        return distances
    distances = euclidean(rng.random(states))
    component = np.arange(states) % 2
    distances[component[:, None] != component] = np.inf
    return distances


def assert_certified(problem, result, tol=1e-6):
    assert result.status == "optimal"
    assert privacy_level(result.matrix, problem.distances) <= problem.epsilon
    loss, bound = problem.expected_loss(result.matrix), lower_bound(problem, result.multipliers)
    assert bound <= loss + 1e-15
    assert loss - bound <= tol * abs(loss)
    return loss, bound


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["line", "plane", "discrete", "tree", "separate"]),
    st.integers(1, 7),
    st.integers(1, 6),
    st.integers(1, 4),
    st.floats(0.01, 10),
    st.integers(0, 2**32 - 1),
)
def test_it_attains_the_optimum_for_any_partition(kind, n, m, parts, epsilon, seed):
    rng = np.random.default_rng(seed)
    prior, loss = rng.dirichlet(np.ones(n)), rng.random((n, m))
    if n > 2:
        prior = np.r_[0.0, rng.dirichlet(np.ones(n - 1))]  # still to be protected
    problem = Problem(prior, loss, random_metric(kind, n, rng), epsilon)
    result = benders.solve(problem, labels=rng.integers(parts, size=n))
    loss, bound = assert_certified(problem, result)
    optimum = instances.all_pairs_optimum(problem)
    assert loss == pytest.approx(optimum, rel=2e-6, abs=1e-9)
    assert bound <= optimum * (1 + 1e-7) + 1e-9


@pytest.mark.parametrize(("side", "optimum"), [(4, 1.0410975671), (6, 1.2542376135)])
def test_known_optima_of_l1_grids(side, optimum):
    distances = grid(side, 1)
    problem = Problem(np.full(side**2, side**-2), distances, distances, 1.0)
    labels = np.arange(side**2) % side * 2 // side  # two halves of the columns
    boundary = benders.boundary_states(necessary_pairs(distances), labels)
    assert len(boundary) == side, "one column separates the rest"
    loss, bound = assert_certified(problem, benders.solve(problem, labels=labels))
    assert bound - 1e-10 <= optimum <= loss + 1e-10
    tight = tight_constraints_mechanism(distances, 1.0)
    assert tight.expected_loss(problem.prior, distances) == pytest.approx(loss, rel=2e-6)


def test_a_known_optimum_of_a_euclidean_grid():
    distances = grid(4)
    problem = Problem(np.full(16, 1 / 16), distances, distances, 1.0)
    loss, bound = assert_certified(problem, benders.solve(problem))
    assert bound - 1e-10 <= 1.0888543635 <= loss + 1e-10


def test_a_line_in_six_parts():
    """The boundary is five states; the optimum is the remapped geometric mechanism's."""
    channel = geometric_mechanism(30, 1.0)
    prior = np.random.default_rng(4).dirichlet(np.ones(30))
    loss = np.minimum(channel.distances, 3)
    problem = Problem(prior, loss, channel.distances, 1.0)
    labels = np.arange(30) // 5
    boundary = benders.boundary_states(necessary_pairs(channel.distances), labels)
    assert len(boundary) == 5
    attained, bound = assert_certified(problem, benders.solve(problem, labels=labels))
    optimum = bayes_remap(channel, prior, loss).expected_loss(prior, loss)
    assert bound <= optimum <= attained + 1e-12
    # Interiors alone, without the rows between parts, relax the problem.
    assert cluster_bound(problem, labels) < attained


def test_necessary_pairs_are_the_edges_of_lines_trees_and_l1_grids():
    rng = np.random.default_rng(2)
    order = rng.permutation(9)
    line = necessary_pairs(euclidean(np.cumsum(rng.random(9))[order]), COLLINEAR)
    assert (line == (np.abs(np.subtract.outer(order, order)) == 1)).all()
    points = np.argwhere(np.ones((4, 4)))
    assert (necessary_pairs(grid(4, 1), COLLINEAR) == (grid(4, 1) == 1)).all()
    # On a Euclidean grid: the pairs whose offset has coprime coordinates.
    offsets = np.abs(points[:, None] - points[None])
    coprime = np.gcd(offsets[..., 0], offsets[..., 1]) == 1
    assert (necessary_pairs(grid(4), COLLINEAR) == coprime).all()
    assert necessary_pairs(1 - np.eye(5)).sum() == 20
    tree = random_metric("tree", 12, rng)
    assert necessary_pairs(tree, COLLINEAR).sum() == 2 * 11


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["line", "plane", "tree", "separate"]),
    st.integers(2, 10),
    st.integers(0, 2**32 - 1),
)
def test_chains_of_necessary_pairs_have_the_length_of_the_metric(kind, n, seed):
    distances = random_metric(kind, n, np.random.default_rng(seed))
    lengths = np.where(necessary_pairs(distances, COLLINEAR), distances, np.inf)
    np.fill_diagonal(lengths, 0.0)
    for middle in range(n):
        lengths = np.minimum(lengths, lengths[:, [middle]] + lengths[[middle]])
    assert lengths == pytest.approx(distances, rel=1e-11)


def test_the_boundary_meets_every_pair_across_parts():
    rng = np.random.default_rng(8)
    for kind in ("line", "plane", "discrete", "tree"):
        necessary = necessary_pairs(random_metric(kind, 15, rng))
        labels = rng.integers(3, size=15)
        inside = np.setdiff1d(np.arange(15), benders.boundary_states(necessary, labels))
        left = necessary[np.ix_(inside, inside)]
        assert not (left & (labels[inside][:, None] != labels[inside])).any()
    everywhere = benders.boundary_states(~np.eye(6, dtype=bool), np.array([0, 0, 0, 0, 1, 2]))
    assert everywhere.tolist() == [4, 5]


def test_halves_cut_between_two_far_states():
    labels = benders.halves(euclidean([5.0, 0.0, 9.0, 1.0]))
    assert labels[0] == labels[2] != labels[1] == labels[3]
    apart = np.full((4, 4), np.inf)
    apart[:2, :2] = apart[2:, 2:] = 1 - np.eye(2)
    assert len(set(benders.halves(apart)[:2])) == len(set(benders.halves(apart)[2:])) == 1


def test_a_bound_is_a_bound_when_time_runs_out():
    problem = Problem(np.full(16, 1 / 16), grid(4), grid(4), 1.0)
    result = benders.solve(problem, deadline=time.monotonic())
    assert result.status == "time_limit"
    assert privacy_level(result.matrix, problem.distances) <= 1.0
    bound = lower_bound(problem, result.multipliers)
    assert 0 < bound <= 1.0888543635 <= problem.expected_loss(result.matrix)
    few = benders.solve(problem, iterations=3)
    assert few.iterations == 3 and few.status == "stalled"


def test_losses_that_vanish_or_have_both_signs():
    distances = 1 - np.eye(3)
    free = benders.solve(Problem(np.full(3, 1 / 3), np.zeros((3, 2)), distances, 1.0))
    assert free.status == "optimal"
    gains = Problem(np.full(3, 1 / 3), -np.eye(3) - 0.1, distances, 1.0)
    loss, _ = assert_certified(gains, benders.solve(gains))
    assert loss == pytest.approx(-0.1 - np.e / (np.e + 2), rel=2e-6)
    identity = Problem(np.full(3, 1 / 3), distances, np.where(np.eye(3), 0, np.inf), 1.0)
    assert (benders.solve(identity).matrix == np.eye(3)).all()


def test_labels_have_to_fit():
    problem = Problem([0.5, 0.5], 1 - np.eye(2), 1 - np.eye(2), 1.0)
    with pytest.raises(ValueError, match="labels"):
        benders.solve(problem, labels=[0])
