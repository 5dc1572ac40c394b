"""The column engine against the linear program, and its pricing against another solver."""

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.spatial.distance import cdist

from dephdp import optimal_curve, tight_constraints_mechanism
from dephdp.certificate import privacy_level
from dephdp.errors import SolverError
from dephdp.optimal import columns
from dephdp.optimal.bound import lower_bound
from dephdp.optimal.column_prices import (
    CERTIFIED,
    PRICED,
    UNSETTLED,
    Workspace,
    price_column,
)
from dephdp.optimal.problem import Problem
from tests import instances


@pytest.fixture
def never_crowded(monkeypatch):
    """Small programs have few states, so that any source is a large share of them."""
    monkeypatch.setattr(columns, "CROWDED", 2.0)


def points(rng, n, values=3):
    """Random records of three attributes, two of few values, and their Hamming losses."""
    records = np.unique(
        np.column_stack(
            [rng.integers(values, size=4 * n), rng.integers(3, size=4 * n), rng.random(4 * n)]
        ),
        axis=0,
    )
    records = rng.permutation(records)[:n]
    loss = (records[:, None] != records[None]).sum(axis=2).astype(float)
    return loss, cdist(records, records)


def check(problem, tol, **options):
    found = columns.solve(problem, tol=tol, **options)
    loss = problem.expected_loss(found.matrix)
    bound = lower_bound(problem, found.multipliers)
    assert np.allclose(found.matrix.sum(axis=1), 1, atol=1e-12) and (found.matrix >= 0).all()
    assert privacy_level(found.matrix, problem.distances) <= problem.epsilon
    assert bound <= loss
    if found.status == "optimal":
        assert problem.relative_gap(loss, bound) <= tol
    return found, loss, bound


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(instances.KINDS),
    st.floats(0.2, 12),
)
def test_agrees_with_the_linear_programme(seed, kind, epsilon):
    crowded, columns.CROWDED = columns.CROWDED, 2.0
    try:
        problem = instances.problem(np.random.default_rng(seed), kind, epsilon, states=6)
        if (problem.weighted_loss.max(axis=1) == problem.weighted_loss.min(axis=1)).all():
            return
        _, loss, bound = check(problem, 1e-3)
    finally:
        columns.CROWDED = crowded
    optimum = instances.all_pairs_optimum(problem)
    scale = max(abs(optimum), 1e-6)
    assert bound <= optimum + 1e-8 * scale
    assert loss >= optimum - 1e-8 * scale
    if kind != "line":  # the engines for trees are for those
        assert problem.relative_gap(loss, optimum) <= 0.05


@pytest.mark.parametrize("epsilon", [2.0, 4.0, 8.0])
def test_a_fine_tolerance_is_met(never_crowded, epsilon):
    loss, distances = points(np.random.default_rng(1), 60)
    problem = Problem(np.full(60, 1 / 60), loss, distances, epsilon)
    found, *_ = check(problem, 1e-3)
    assert found.status == "optimal"


def test_a_large_budget_needs_the_cones_only(never_crowded):
    rng = np.random.default_rng(2)
    distances = cdist(*2 * [rng.random((40, 2)) * 6])
    problem = Problem(np.full(40, 1 / 40), 1.0 - np.eye(40), distances, 30.0)
    found, loss, _ = check(problem, 1e-3)
    tight = tight_constraints_mechanism(distances, 30.0)
    assert found.iterations == 1 and len(found.columns) == 0
    assert loss == pytest.approx(tight.expected_loss(problem.prior, problem.loss), rel=1e-6)


def test_an_answer_starts_the_next_smaller_budget(never_crowded):
    loss, distances = points(np.random.default_rng(3), 50)
    prior = np.random.default_rng(4).dirichlet(np.full(50, 3.0))
    start, losses = None, []
    for epsilon in (6.0, 5.0, 4.5, 3.0):
        problem = Problem(prior, loss, distances, epsilon)
        start, value, _ = check(problem, 1e-2, start=start)
        assert start.status == "optimal" and start.epsilon == epsilon
        _, cold, bound = check(problem, 1e-2)
        assert bound <= value and abs(value - cold) <= 1e-2 * cold
        losses.append(value)
    assert all(a < b for a, b in pairwise(losses))


def test_columns_carried_down_lie_in_the_cone(never_crowded):
    loss, distances = points(np.random.default_rng(5), 40)
    problem = Problem(np.full(40, 1 / 40), loss, distances, 2.0)
    found, *_ = check(problem, 1e-2)
    assert len(found.columns) and np.allclose(found.columns.max(axis=1), 1)
    for epsilon in (2.0, 1.2):
        carried = found.columns ** (epsilon / 2.0)
        decay = np.exp(-epsilon * distances)
        assert (carried[:, None, :] >= decay * carried[:, :, None] * (1 - 1e-9)).all()


def test_crowded_programs_are_given_up():
    loss, distances = points(np.random.default_rng(6), 50)
    problem = Problem(np.full(50, 1 / 50), loss, distances, 0.05)
    found, *_ = check(problem, 1e-3)
    assert found.status == "stalled"
    assert not columns.promising(problem)
    assert columns.promising(Problem(problem.prior, loss, distances, 30.0))


def test_deadline_returns_a_certified_answer(never_crowded):
    loss, distances = points(np.random.default_rng(7), 60)
    problem = Problem(np.full(60, 1 / 60), loss, distances, 2.0)
    found, *_ = check(problem, 1e-3, deadline=time.monotonic())
    assert found.status == "time_limit"


def test_same_input_same_output_and_progress(never_crowded):
    loss, distances = points(np.random.default_rng(8), 40)
    problem = Problem(np.full(40, 1 / 40), loss, distances, 3.0)
    seen = []
    first, value, bound = check(problem, 1e-2, progress=lambda *pair: seen.append(pair))
    second, *_ = check(problem, 1e-2)
    assert (first.matrix == second.matrix).all()
    assert all(low <= high for high, low in seen)
    assert seen[-1][0] == pytest.approx(value, rel=1e-6)
    assert seen[-1][1] == pytest.approx(bound, rel=1e-2)


def test_weights_are_balanced_to_rounding():
    rng = np.random.default_rng(12)
    master = columns._Master(30)
    generated = np.vstack([np.eye(30) + 0.1 * rng.random((30, 30)), np.ones(30)])
    master.add(generated, rng.random(31), np.zeros(31, dtype=int))
    master.solve()
    master.weights = master.weights * (1 + 1e-6 * rng.random(31))
    weights = master.balanced()
    assert (weights >= 0).all() and ((weights > 0) == (master.weights > 0)).all()
    assert np.abs(weights @ generated - 1).max() < 1e-13


def test_a_master_without_solution_is_refused():
    master = columns._Master(3)
    master.add(np.array([[1.0, 0.5, 0.0]]), np.ones(1), np.zeros(1, dtype=int))
    with pytest.raises(SolverError, match="master program of 1 columns"):
        master.solve()


@pytest.mark.parametrize("seed", range(12))
def test_pricing_against_another_solver(seed):
    """The least reduced cost over the whole cone in the unit box, all rows enforced."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 14))
    distances = cdist(*2 * [rng.random((n, 2))])
    decay = np.exp(-rng.uniform(0.5, 6) * distances)
    w = rng.normal(rng.uniform(-0.2, 1), 1, n)
    rows = [np.eye(n)[i] * decay[i, x] - np.eye(n)[x] for i in range(n) for x in range(n) if i != x]
    upper = [1 if cost < 0 else None for cost in w]
    program = linprog(
        w, np.array(rows), np.zeros(len(rows)), bounds=list(zip([0] * n, upper, strict=True))
    )
    v, entries, work = np.empty(n), np.empty(n), Workspace.for_states(n)
    status, count = price_column(w, decay, 1e-7, 1e-6, v, entries, work)
    assert count == (w < 0).sum() and (work.sources[:count] == np.flatnonzero(w < 0)).all()
    reduced = w - work.f[:count].sum(axis=0)
    reduced[work.sources[:count]] += (decay[work.sources[:count]] * work.f[:count]).sum(axis=1)
    assert np.allclose(reduced, entries, atol=1e-12)
    assert np.minimum(entries, 0).sum() <= program.fun + 1e-9
    if status == PRICED:
        assert w @ v == pytest.approx(program.fun, rel=1e-5)
        sources = work.sources[:count]
        assert (v >= (decay[sources] * v[sources, None]).max(axis=0) * (1 - 1e-12)).all()
    else:
        assert status == CERTIFIED and program.fun > -1e-6


def test_nothing_negative_is_certified_at_once():
    v, entries = np.empty(3), np.empty(3)
    w = np.array([0.0, 1.0, 2.0])
    answer = price_column(w, np.eye(3), 1e-9, 0.1, v, entries, Workspace.for_states(3))
    assert answer == (CERTIFIED, 0) and (entries == w).all() and not v.any()


def test_numbers_that_are_none_are_left_unsettled():
    v, entries = np.empty(2), np.empty(2)
    w = np.array([-1.0, np.nan])
    status, _ = price_column(w, np.ones((2, 2)) / 2, 1e-9, 0.1, v, entries, Workspace.for_states(2))
    assert status == UNSETTLED and not v.any() and (entries == -np.inf).all()


def test_the_door_descends_by_columns_and_climbs_by_the_interior_point(monkeypatch):
    monkeypatch.setattr("dephdp.optimal.solve._MANY", 50)
    used = []
    solve = columns.solve
    monkeypatch.setattr(
        columns, "solve", lambda problem, **o: used.append(problem.epsilon) or solve(problem, **o)
    )
    loss, distances = points(np.random.default_rng(9), 60)
    prior = np.full(60, 1 / 60)
    budgets = [0.2, 12.0, 5.0]
    curve = optimal_curve(prior, loss, distances, budgets, tol=1e-2)
    assert used[0] == 12.0 and 0.2 not in used[:1]
    for epsilon, mechanism in zip(budgets, curve, strict=True):
        assert mechanism.gap <= 1e-2 and mechanism.channel.privacy_level() <= epsilon
    used.clear()
    fine = optimal_curve(prior, loss, distances, budgets, tol=1e-5)
    assert not used
    for coarse, mechanism in zip(curve, fine, strict=True):
        assert mechanism.lower_bound <= coarse.loss <= mechanism.loss * (1 + 1e-2)


def test_the_door_still_answers_a_time_limit(monkeypatch):
    monkeypatch.setattr("dephdp.optimal.solve._MANY", 50)
    loss, distances = points(np.random.default_rng(10), 60)
    limited = optimal_curve(
        np.full(60, 1 / 60), loss, distances, [3.0, 6.0], tol=1e-3, time_limit=1e-3
    )
    for mechanism in limited:
        assert mechanism.status in ("optimal", "time_limit")
        assert mechanism.recompute_lower_bound() <= mechanism.loss


def test_the_door_answers_where_columns_fail(monkeypatch):
    monkeypatch.setattr("dephdp.optimal.solve._MANY", 50)

    def fail(problem, **options):
        raise SolverError("rounding")

    monkeypatch.setattr(columns, "solve", fail)
    loss, distances = points(np.random.default_rng(11), 60)
    (mechanism,) = optimal_curve(np.full(60, 1 / 60), loss, distances, [8.0], tol=1e-2)
    assert mechanism.gap <= 1e-2 and mechanism.channel.privacy_level() <= 8.0
