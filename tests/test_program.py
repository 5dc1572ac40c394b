"""The linear program itself: pruning, certificates, failures."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dephdp.certificate import privacy_level
from dephdp.errors import CertificationError, InvalidMetric, SolverError
from dephdp.optimal.certified import certified
from dephdp.optimal.pairs import necessary_pairs
from dephdp.optimal.problem import Multipliers, Problem
from dephdp.optimal.program import optimal_mechanism_lp, solve_program
from tests import instances


def test_two_states_are_randomised_response():
    two = instances.discrete(2)
    mechanism = optimal_mechanism_lp([0.5, 0.5], two, two, np.log(3))
    assert mechanism.channel.matrix == pytest.approx(np.array([[0.75, 0.25], [0.25, 0.75]]))
    assert mechanism.loss == pytest.approx(0.25)
    assert mechanism.gap < 1e-9


def test_two_solvers_agree():
    rng = np.random.default_rng(4)
    problem = instances.problem(rng, "grid", 1.5, states=6, outputs=6)
    arguments = problem.prior, problem.loss, problem.distances, problem.epsilon
    first = optimal_mechanism_lp(*arguments)
    second = optimal_mechanism_lp(*arguments, solver="CLARABEL")
    assert first.loss == pytest.approx(second.loss, rel=1e-6)


def test_only_neighbours_are_needed_on_a_line():
    source, target = np.nonzero(necessary_pairs(instances.line(np.arange(6))))
    assert set(zip(source, target, strict=True)) == {
        pair for k in range(5) for pair in ((k, k + 1), (k + 1, k))
    }


def test_no_pair_is_implied_on_the_discrete_metric_or_at_distance_zero():
    assert necessary_pairs(instances.discrete(5)).sum() == 20
    assert necessary_pairs(np.zeros((3, 3))).sum() == 6


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(instances.KINDS))
def test_pairs_left_out_follow_from_chains_of_kept_ones(seed, kind):
    distances = instances.metric(np.random.default_rng(seed), kind, 7)
    source, target = np.nonzero(necessary_pairs(distances))
    kept = np.full(distances.shape, np.inf)
    np.fill_diagonal(kept, 0)
    kept[source, target] = distances[source, target]
    for middle in range(len(kept)):
        kept = np.minimum(kept, kept[:, [middle]] + kept[[middle], :])
    assert (kept <= distances * (1 + 1e-15 * len(kept))).all()


def test_raw_solver_output_is_not_private_and_the_repaired_one_is():
    """Rows held to an absolute tolerance say nothing about ratios of small probabilities."""
    problem = Problem(np.full(9, 1 / 9), instances.grid(3, 2) ** 2, instances.grid(3, 2), 6.0)
    raw, _, _ = solve_program(problem)
    raw = raw / raw.sum(axis=1, keepdims=True)
    assert privacy_level(raw, problem.distances) > problem.epsilon
    with pytest.raises(CertificationError, match="level"):
        certified(problem, raw, Multipliers.none(), 0, "optimal")
    mechanism = optimal_mechanism_lp(
        problem.prior, problem.loss, problem.distances, problem.epsilon
    )
    assert mechanism.channel.privacy_level() <= problem.epsilon


def test_a_loss_below_the_bound_is_refused(monkeypatch):
    """No multipliers reach it, so a wrong bound is planted."""
    two = instances.discrete(2)
    problem = Problem([0.5, 0.5], two, two, 1.0)
    monkeypatch.setattr("dephdp.optimal.certified.lower_bound", lambda *_: 0.5 + 1e-9)
    with pytest.raises(CertificationError, match="below the lower bound"):
        certified(problem, np.full((2, 2), 0.5), Multipliers.none(), 0, "optimal")


def test_failures_are_named():
    two = instances.discrete(2)
    with pytest.raises(SolverError, match=r"stopped|failed"):
        optimal_mechanism_lp([0.5, 0.5], two, two, 1.0, solver="SCS", max_iters=1)
    broken = np.array([[0, 1, 5], [1, 0, 1], [5, 1, 0]], dtype=float)
    with pytest.raises(InvalidMetric, match="triangle"):
        optimal_mechanism_lp(np.full(3, 1 / 3), broken, broken, 1.0)
