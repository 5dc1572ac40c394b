"""Tree metrics: recognition, the dynamic programme, and the linear algebra along the edges."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from dephdp.optimal.bound import lower_bound
from dephdp.optimal.problem import Problem
from dephdp.optimal.tree_prices import prices, tree_multipliers
from dephdp.optimal.tree_system import TreeRows
from dephdp.optimal.trees import tree_of
from tests import instances

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=80, deadline=None)
@given(SEEDS, st.integers(1, 20), st.integers(0, 8))
def test_trees_are_recognised_and_measure_the_distances(seed, states, auxiliary):
    distances = instances.tree(np.random.default_rng(seed), states, auxiliary)
    tree = tree_of(distances)
    assert tree is not None
    assert (tree.parent[1:] < np.arange(1, tree.nodes)).all()
    assert sorted(tree.state[tree.carriers]) == list(range(states))
    assert tree.distances() == pytest.approx(distances, rel=1e-9)
    assert tree.nodes <= max(2 * states - 2, 1)


def test_a_line_is_a_path_without_auxiliary_nodes():
    tree = tree_of(instances.line([3.0, 1.0, 2.5, 0.0]))
    assert tree.parent.tolist() == [-1, 0, 1, 2]
    assert (tree.state >= 0).all()
    assert sorted(tree.length[1:]) == [0.5, 1.0, 1.5]


def test_the_discrete_metric_is_a_star_around_one_auxiliary_node():
    tree = tree_of(instances.discrete(7))
    assert tree.nodes == 8
    assert (tree.state < 0).sum() == 1
    assert tree.length[1:] == pytest.approx(0.5)


def test_a_cycle_and_a_plane_are_no_trees():
    cycle = np.array([[0, 1, 2, 1], [1, 0, 1, 2], [2, 1, 0, 1], [1, 2, 1, 0]], dtype=float)
    assert tree_of(cycle) is None
    assert tree_of(instances.grid(3, 2)) is None
    almost = instances.line(np.arange(5.0))
    almost[0, 4] = almost[4, 0] = 4 - 1e-6
    assert tree_of(almost) is None


def cheapest_column(weights, distances, epsilon, root):
    """Return the least cost of a private column with value one at the root, by a linear program."""
    n = len(weights)
    rows = [
        np.eye(n)[i] * np.exp(-epsilon * distances[i, j]) - np.eye(n)[j]
        for i in range(n)
        for j in range(n)
        if i != j
    ]
    answer = linprog(weights, np.array(rows), np.zeros(len(rows)), np.eye(n)[[root]], [1.0])
    assert answer.status == 0
    return answer.fun


@settings(max_examples=50, deadline=None)
@given(SEEDS, st.integers(2, 8), st.integers(0, 5), st.floats(0.1, 3))
def test_prices_are_those_of_the_linear_program(seed, states, auxiliary, epsilon):
    rng = np.random.default_rng(seed)
    distances = instances.tree(rng, states, auxiliary)
    tree = tree_of(distances)
    weights = rng.normal(size=(1, states))
    price = prices(tree.spread(weights), tree, np.exp(-epsilon * tree.length))[0, 0]
    expected = cheapest_column(weights[0], distances, epsilon, tree.state[0])
    assert price == pytest.approx(expected, rel=1e-6, abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(SEEDS, st.integers(2, 12), st.integers(0, 8), st.floats(0.1, 3))
def test_multipliers_prove_the_prices(seed, states, auxiliary, epsilon):
    """Whatever the prices u, the bound is their sum plus the most negative price at the root."""
    rng = np.random.default_rng(seed)
    distances = instances.tree(rng, states, auxiliary)
    tree, outputs = tree_of(distances), 4
    loss = rng.normal(size=(states, outputs))
    problem = Problem(rng.dirichlet(np.ones(states)), loss, distances, epsilon)
    u = rng.normal(size=states) / states
    decay = np.exp(-epsilon * tree.length)
    costs = prices(tree.spread(problem.weighted_loss.T - u), tree, decay)
    bound = lower_bound(problem, tree_multipliers(costs, tree, decay))
    assert bound == pytest.approx(u.sum() + costs[:, 0].min(), rel=1e-9, abs=1e-9)


def test_rounding_below_the_floor_is_not_divided_by_the_decay():
    tree = tree_of(instances.line([0.0, 1.0, 2.0]))
    decay = np.full(3, 1e-200)
    costs = prices(np.array([[0.5, -1e-16, 1e-3]]), tree, decay, floor=1e-15)
    assert costs[0, 0] == 0.5
    assert len(tree_multipliers(costs, tree, decay, floor=1e-15)) == 1  # the positive cost


def dense_rows(rows):
    """The matrix A of the rows, written out."""
    tree, decay = rows.tree, rows.decay
    matrix = np.zeros((2 * (tree.nodes - 1), tree.nodes))
    for i in range(1, tree.nodes):
        p = tree.parent[i]
        matrix[2 * i - 2, [i, p]] = 1, -decay[i]
        matrix[2 * i - 1, [p, i]] = 1, -decay[i]
    return matrix


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(2, 90), st.integers(0, 20))
def test_tree_algebra_is_the_dense_algebra(seed, states, auxiliary):
    rng = np.random.default_rng(seed)
    tree = tree_of(instances.tree(rng, states, auxiliary))
    rows = TreeRows(tree, 2 * tree.length)
    matrix, outputs = dense_rows(rows), 3
    flows, slacks = rng.uniform(0.1, 2, (2, outputs, len(matrix)))
    columns = rng.normal(size=(outputs, tree.nodes))
    assert rows.slacks(columns) == pytest.approx(columns @ matrix.T)
    assert rows.adjoint(flows) == pytest.approx(flows @ matrix)
    blocks = [matrix.T @ (w[:, None] * matrix) for w in flows / slacks]
    factors = rows.factors(flows, slacks)
    solutions = np.array([np.linalg.solve(h, x) for h, x in zip(blocks, columns, strict=True)])
    assert factors.sum_of_solutions(columns) == pytest.approx(solutions.sum(axis=0))
    assert factors.solve(columns.copy()) == pytest.approx(solutions)
    total = sum(np.linalg.inv(h) for h in blocks)
    assert np.tril(factors.sum_of_inverses()) == pytest.approx(np.tril(total), rel=1e-8)
    weights = rng.uniform(0.1, 1, columns.shape)
    positive = rows.positive_flows(weights)
    assert (positive > 0).all()
    assert positive @ matrix == pytest.approx(weights)


def test_factors_are_accurate_where_subtraction_would_cancel():
    """Two states, weights 1e12 apart: the last pivot in closed form, to the last digits."""
    tree = tree_of(instances.line([0.0, 1e-3]))
    rows = TreeRows(tree, tree.length)
    a, b, decay = 1e12, 1.0, np.exp(-1e-3)
    factors = rows.factors(np.array([[a, b]]), np.ones((1, 2)))
    exact = a * b * np.expm1(-2e-3) ** 2 / (a + decay**2 * b)
    assert factors.pivots[0, 0] == pytest.approx(exact, rel=1e-14)
