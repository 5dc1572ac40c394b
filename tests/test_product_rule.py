import itertools
import math

import numpy as np
import pytest
from channels import euclidean
from hypothesis import given, settings
from hypothesis import strategies as st

from dephdp import allocate_budget, compose_budget, exponential_mechanism, product_privacy_level
from dephdp.composition import guaranteed_level
from dephdp.errors import InvalidBudget, InvalidMetric
from dephdp.product_rule import allocate_by_product_rule

EXPONENTS = [1, 1.5, 2, 4, math.inf]
COIN = 1 - np.eye(2)


def by_enumeration(budgets, sets, p):
    """The maximum over every vector of distances."""
    vectors = np.array(list(itertools.product(*[np.append(0, np.ravel(s)) for s in sets])))
    norms = np.linalg.norm(vectors, p, axis=1)
    return (vectors[norms > 0] @ budgets / norms[norms > 0]).max()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), p=st.one_of(st.sampled_from(EXPONENTS), st.floats(1, 50)))
def test_the_guaranteed_level_is_the_maximum_over_all_distances(seed, p):
    rng = np.random.default_rng(seed)
    sets = [rng.uniform(0.1, 3, rng.integers(1, 5)) for _ in range(4)]
    budgets = rng.uniform(0, 2, 4) * (rng.random(4) < 0.8)
    level, face = guaranteed_level(budgets, sets, p)
    if budgets.any():
        assert level == pytest.approx(by_enumeration(budgets, sets, p), rel=1e-12)
        assert face @ budgets == pytest.approx(level, rel=1e-12)
    else:
        assert level == 0 and not face.any()
    assert level <= compose_budget(budgets, p) * (1 + 1e-12)


def test_binary_groups_have_a_closed_form():
    budgets = np.random.default_rng(0).exponential(size=8)
    sums = np.sort(budgets)[::-1].cumsum()
    for p in EXPONENTS:
        expected = (sums / np.arange(1, 9) ** (1 / p)).max()
        assert guaranteed_level(budgets, [COIN] * 8, p)[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("seed", range(3))
def test_the_allocation_equals_brute_force_over_all_safe_grid_budgets(p, seed):
    rng = np.random.default_rng(seed)
    grid = np.linspace(0, 2, 9)
    losses = rng.uniform(0.2, 2, (3, 1)) * np.exp(-grid * rng.uniform(0.2, 2, (3, 1)))
    sets = [euclidean(rng.random((3, 1))) for _ in range(3)]
    best = allocate_by_product_rule(grid, losses, 1.5, sets, p)
    expected = min(
        sum(row[i] for row, i in zip(losses, choice, strict=True))
        for choice in itertools.product(range(9), repeat=3)
        if guaranteed_level(grid[list(choice)], sets, p)[0] <= 1.5 * (1 + 1e-10)
    )
    assert best.loss == pytest.approx(expected, rel=1e-9)
    assert best.lower_bound <= best.loss <= allocate_budget(grid, losses, 1.5, p).loss
    assert guaranteed_level(best.budgets, sets, p)[0] <= 1.5
    finer = np.linspace(0, 2, 33)
    refined = np.array([np.interp(finer, grid, np.log(row)) for row in losses])
    assert best.lower_bound <= allocate_by_product_rule(finer, np.exp(refined), 1.5, sets, p).loss


def test_two_bits_of_unequal_weight_gain():
    """Loss weights 10 : 1: the corner (ε, (√2 - 1) ε) is safe where the ball allows (ε, 0)."""
    grid = np.linspace(0, 4, 401)
    losses = np.array([[10.0], [1.0]]) / (1 + np.exp(grid))
    for epsilon, saved in ((1.0, 0.027), (2.0, 0.086), (4.0, 0.18)):
        ball = allocate_budget(grid, losses, epsilon)
        exact = allocate_by_product_rule(grid, losses, epsilon, [COIN, COIN])
        assert 1 - exact.loss / ball.loss == pytest.approx(saved, abs=2e-3)
        assert compose_budget(exact.budgets, 2) > epsilon
        coins = [exponential_mechanism(COIN, b, calibrated=True) for b in exact.budgets]
        assert product_privacy_level(coins, 2) <= epsilon * (1 + 1e-12)


def test_few_rounds_still_give_safe_budgets():
    rng = np.random.default_rng(1)
    grid = np.linspace(0, 3, 31)
    losses = np.exp(-grid * rng.uniform(0.3, 1, (4, 1)))
    sets = [euclidean(rng.random((5, 2))) for _ in range(4)]
    full = allocate_by_product_rule(grid, losses, 2.0, sets)
    for rounds in (1, 3):
        rough = allocate_by_product_rule(grid, losses, 2.0, sets, rounds=rounds)
        assert guaranteed_level(rough.budgets, sets)[0] <= 2.0
        assert full.loss <= rough.loss + 1e-12
        assert rough.lower_bound <= full.lower_bound + 1e-9


def test_bad_input_is_named():
    with pytest.raises(InvalidBudget, match="2 budgets but 1 sets"):
        guaranteed_level([1.0, 1.0], [COIN])
    with pytest.raises(InvalidMetric, match="group 1 has a negative"):
        guaranteed_level([1.0, 1.0], [COIN, -COIN])
    with pytest.raises(InvalidMetric, match="group 0 has a negative distance or NaN"):
        guaranteed_level([1.0], [[np.nan]])
    with pytest.raises(InvalidBudget, match="2 groups but 1 sets"):
        allocate_by_product_rule([0.0, 1.0], np.ones((2, 2)), 1.0, [COIN])
