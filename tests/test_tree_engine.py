"""The engine for tree metrics, against closed forms and a linear program of another shape."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog

from dephdp.certificate import privacy_level
from dephdp.mechanisms.tight import tight_constraints_mechanism
from dephdp.optimal.bound import lower_bound
from dephdp.optimal.problem import Problem
from dephdp.optimal.tree_engine import solve
from dephdp.optimal.trees import tree_of
from tests import instances

SEEDS = st.integers(0, 2**32 - 1)


def check(problem, result, tol):
    """Both halves of the certificate."""
    loss = problem.expected_loss(result.matrix)
    assert privacy_level(result.matrix, problem.distances) <= problem.epsilon
    bound = lower_bound(problem, result.multipliers)
    assert bound <= loss + 1e-14
    assert problem.relative_gap(loss, bound) <= tol
    assert result.status == "optimal"
    return loss


def random_loss(rng, distances):
    n = len(distances)
    return np.where(np.eye(n) > 0, 0, rng.random((n, n)) / 2 + distances)


def compact_optimum(problem):
    """Solve the discrete metric by a_y <= z_xy <= exp(eps d) a_y: 2 n m rows instead of n^2 m."""
    n, m = problem.loss.shape
    ratio = np.exp(problem.epsilon * problem.distances.max())
    least = sparse.kron(np.ones((n, 1)), sparse.eye_array(m))
    z = sparse.eye_array(n * m)
    rows = sparse.block_array([[-z, least], [z, -ratio * least]], format="csr")
    sums = sparse.hstack([sparse.kron(sparse.eye_array(n), np.ones((1, m))), np.zeros((n, m))])
    answer = linprog(
        np.concatenate([problem.weighted_loss.ravel(), np.zeros(m)]),
        rows,
        np.zeros(rows.shape[0]),
        sums.tocsr(),
        np.ones(n),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert answer.status == 0
    return answer.fun


@settings(max_examples=12, deadline=None)
@given(SEEDS, st.integers(3, 20), st.sampled_from([0.1, 1.0, 4.0, 10.0]))
def test_the_discrete_metric_agrees_with_its_compact_program(seed, n, epsilon):
    rng = np.random.default_rng(seed)
    distances = instances.discrete(n)
    loss = random_loss(rng, distances)
    problem = Problem(rng.dirichlet(np.ones(n)), loss, distances, epsilon)
    result = solve(problem, tree_of(distances), tol=1e-7)
    assert check(problem, result, 1e-7) == pytest.approx(compact_optimum(problem), rel=1e-6)


def test_randomised_response_is_optimal_for_the_uniform_prior():
    n, epsilon = 12, 2.0
    loss = instances.discrete(n)
    problem = Problem(np.full(n, 1 / n), loss, loss, epsilon)
    result = solve(problem, tree_of(loss), tol=1e-8)
    assert check(problem, result, 1e-8) == pytest.approx((n - 1) / (n - 1 + np.exp(epsilon)))


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0, 20.0])
def test_the_tight_mechanism_is_optimal_on_a_line_for_its_own_loss(epsilon):
    """Uniform prior, L1 loss on a line of 6 states: attained where that mechanism is optimal."""
    distances = instances.line(np.arange(6.0))
    problem = Problem(np.full(6, 1 / 6), distances, distances, epsilon)
    loss = check(problem, solve(problem, tree_of(distances), tol=1e-6), 1e-6)
    tight = tight_constraints_mechanism(distances, epsilon)
    assert loss <= tight.expected_loss(problem.prior, problem.loss) * (1 + 1e-6)


@pytest.mark.parametrize("kind", ["line", "discrete"])
def test_outputs_are_found_among_many(kind):
    """Beyond the size at which a coarse problem chooses where to start."""
    rng, n = np.random.default_rng(8), 132
    distances = instances.line(np.linspace(0, 1.4, n)) if kind == "line" else instances.discrete(n)
    problem = Problem(rng.dirichlet(np.ones(n)), random_loss(rng, distances), distances, 4.0)
    first = solve(problem, tree_of(distances), tol=1e-6)
    loss = check(problem, first, 1e-6)
    again = solve(problem, tree_of(distances), tol=1e-6)
    assert (first.matrix == again.matrix).all()
    warm = solve(problem, tree_of(distances), tol=1e-6, start=first)
    assert check(problem, warm, 1e-6) == pytest.approx(loss, rel=1e-6)


def test_outputs_missing_at_the_start_are_brought_back():
    rng, n = np.random.default_rng(9), 20
    distances = instances.line(np.linspace(0, 2, n))
    problem = Problem(np.full(n, 1 / n), random_loss(rng, distances), distances, 5.0)
    tree = tree_of(distances)
    full = check(problem, solve(problem, tree, tol=1e-7), 1e-7)
    start = solve(problem, tree, tol=1e-2)
    start.matrix[:] = 0
    start.matrix[:, 3] = 1
    assert check(problem, solve(problem, tree, tol=1e-7, start=start), 1e-7) == pytest.approx(full)


def test_progress_is_reported_and_time_is_kept():
    rng, n = np.random.default_rng(10), 30
    distances = instances.discrete(n)
    problem = Problem(np.full(n, 1 / n), random_loss(rng, distances), distances, 4.0)
    seen = []
    solve(problem, tree_of(distances), tol=1e-6, progress=lambda *pair: seen.append(pair))
    assert all(bound <= loss * (1 + 1e-9) for loss, bound in seen)
    assert seen[-1][0] - seen[-1][1] < 1e-5
    late = solve(problem, tree_of(distances), tol=1e-6, deadline=time.monotonic())
    assert late.status == "time_limit"
    assert privacy_level(late.matrix, distances) <= problem.epsilon
    assert lower_bound(problem, late.multipliers) <= problem.expected_loss(late.matrix)


@pytest.mark.parametrize("spacing", [1e-9, 1e-5, 1e2, 1e4])
def test_tiny_and_huge_exponents(spacing):
    """From states that hardly differ to exponentials that underflow."""
    distances = instances.line(spacing * np.arange(5))
    loss = instances.line(np.arange(5))
    problem = Problem(np.full(5, 0.2), loss, distances, 1.0)
    result = solve(problem, tree_of(distances), tol=1e-6)
    loss = check(problem, result, 1e-6)
    if spacing <= 1e-5:  # close to the best constant answer
        assert loss == pytest.approx(1.2, rel=1e-3)
