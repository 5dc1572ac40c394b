"""The report that ignores the state, and its bound, against the linear program."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dephdp import optimal_curve, optimal_mechanism
from dephdp.optimal import constant
from dephdp.optimal.bound import lower_bound
from tests import instances

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.sampled_from(instances.KINDS), st.sampled_from([1e-3, 0.1, 1.0, 5.0]))
def test_the_star_bound_holds_and_is_within_its_factor(seed, kind, epsilon):
    problem = instances.problem(np.random.default_rng(seed), kind, epsilon)
    result = constant.solve(problem)
    loss = problem.expected_loss(result.matrix)
    bound = lower_bound(problem, result.multipliers)
    assert loss == pytest.approx(problem.weighted_loss.sum(axis=0).min())
    assert bound <= instances.all_pairs_optimum(problem) + 1e-9
    least = problem.weighted_loss.min(axis=1).sum()
    radius = problem.distances.max(axis=1).min()
    assert bound - least >= np.exp(-epsilon * radius) * (loss - least) - 1e-12


@pytest.mark.parametrize("epsilon", [1e-12, 1e-9, 1e-6, 1e-4])
@pytest.mark.parametrize("kind", instances.KINDS)
def test_tiny_budgets_are_certified(kind, epsilon):
    for seed in range(4):
        problem = instances.problem(np.random.default_rng(seed), kind, epsilon)
        answer = optimal_mechanism(problem.prior, problem.loss, problem.distances, epsilon)
        assert answer.gap <= 1e-6
        assert answer.channel.privacy_level() <= epsilon


def test_a_curve_that_starts_from_nothing_reaches_the_optimum():
    problem = instances.problem(np.random.default_rng(3), "grid", 1.0, outputs=7)
    budgets = [1e-10, 1e-8, 0.5, 4.0]
    curve = optimal_curve(problem.prior, problem.loss, problem.distances, budgets)
    assert all(point.gap <= 1e-6 for point in curve)
    alone = optimal_mechanism(problem.prior, problem.loss, problem.distances, 4.0)
    assert curve[-1].loss == pytest.approx(alone.loss, rel=2e-6)
