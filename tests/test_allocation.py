import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, milp, minimize

from dephdp import allocation, compose_budget
from dephdp.allocation import (
    allocate_budget,
    envelope_allocation,
    even_allocation,
    lagrangian_allocation,
    lagrangian_minimisers,
    within_budget,
)
from dephdp.errors import InvalidBudget, InvalidLoss

EXPONENTS = [1, 1.5, 2, 4, math.inf]
KINDS = ["smooth", "bits", "jumps", "flat"]


def curves(rng, kind, grid, groups):
    """Random non-increasing loss-budget curves."""
    scale = rng.uniform(0.1, 3, (groups, 1))
    if kind == "smooth":
        return scale * np.exp(-grid * rng.uniform(0.1, 2, (groups, 1)))
    if kind == "bits":
        return scale * np.minimum(rng.uniform(0.02, 0.5, (groups, 1)), 1 / (1 + np.exp(grid)))
    if kind == "flat":
        return scale * np.ones(len(grid))
    drops = rng.exponential(size=(groups, len(grid))) * (rng.random((groups, len(grid))) < 0.3)
    return drops[:, ::-1].cumsum(axis=1)[:, ::-1]


def brute_force(grid, losses, epsilon, p):
    """The least sum over every combination of grid budgets that composes to epsilon."""
    combinations = itertools.product(range(len(grid)), repeat=len(losses))
    return min(
        sum(row[i] for row, i in zip(losses, choice, strict=True))
        for choice in combinations
        if compose_budget(grid[list(choice)], p) <= epsilon * (1 + 1e-10)
    )


def by_milp(grid, losses, epsilon, q):
    """The same as a mixed-integer linear program, solved by HiGHS."""
    groups, points = losses.shape
    costs = np.tile((grid / epsilon) ** q, groups)
    one_each = np.kron(np.eye(groups), np.ones(points))
    solution = milp(
        losses.ravel(),
        constraints=[LinearConstraint(one_each, 1, 1), LinearConstraint(costs, ub=1)],
        integrality=np.ones(groups * points),
        bounds=(0, 1),
        options={"mip_rel_gap": 0},
    )
    assert solution.status == 0
    return solution.fun


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("seed", range(8))
def test_the_dynamic_programme_equals_brute_force_over_all_grid_budgets(p, seed):
    rng = np.random.default_rng(seed)
    grid = np.append(0, np.sort(rng.uniform(0, 4, 8)))
    epsilon = rng.uniform(0.5, 1) * grid[-1]
    losses = curves(rng, KINDS[seed % 3], grid, groups=4)
    best = allocate_budget(grid, losses, epsilon, p)
    assert best.loss == pytest.approx(brute_force(grid, losses, epsilon, p), rel=1e-12)
    assert best.lower_bound <= best.loss
    chosen = losses[np.arange(4), best.choices]
    assert best.loss == pytest.approx(chosen.sum(), rel=1e-14)
    np.testing.assert_allclose(best.budgets, grid[best.choices], rtol=1e-10)


@pytest.mark.parametrize("p", [1.5, 2, 4, math.inf])
@pytest.mark.parametrize("kind", ["smooth", "bits", "jumps"])
def test_the_dynamic_programme_equals_a_mixed_integer_program(p, kind):
    rng = np.random.default_rng(7)
    grid = np.linspace(0, 5, 41)
    losses = curves(rng, kind, grid, groups=6)
    q = 1 if math.isinf(p) else p / (p - 1)
    best = allocate_budget(grid, losses, 3.0, p)
    assert best.loss == pytest.approx(by_milp(grid, losses, 3.0, q), rel=1e-6)


@pytest.mark.parametrize("seed", range(100))
def test_dynamic_programme_beats_envelopes_beat_even_split(seed):
    rng = np.random.default_rng(seed)
    p = EXPONENTS[seed % len(EXPONENTS)]
    grid = np.linspace(0, 6, 31)
    losses = curves(rng, KINDS[seed % len(KINDS)], grid, groups=int(rng.integers(1, 8)))
    epsilon = rng.uniform(0.3, 6)
    best = allocate_budget(grid, losses, epsilon, p)
    envelopes = envelope_allocation(grid, losses, epsilon, p)
    even = even_allocation(grid, losses, epsilon, p)
    slack = 1e-12 * losses[:, 0].sum()
    assert best.loss <= envelopes.loss + slack
    assert envelopes.loss <= even.loss + slack
    assert envelopes.lower_bound <= best.lower_bound + 1e-7 * losses[:, 0].sum()
    assert best.lower_bound <= best.loss
    for answer in (best, envelopes, even):
        assert compose_budget(answer.budgets, p) <= epsilon
        assert answer.gap >= 0


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), p=st.one_of(st.sampled_from(EXPONENTS), st.floats(1, 60)))
def test_the_lower_bound_holds_off_the_grid(seed, p):
    """Any curve that agrees at the samples, and any budgets, even off the grid."""
    rng = np.random.default_rng(seed)
    fine = np.linspace(0, 5, 61)
    losses = curves(rng, KINDS[int(rng.integers(3))], fine, groups=3)
    coarse = slice(0, None, int(rng.choice([5, 10, 20])))
    epsilon = rng.uniform(0.2, 5)
    exact = allocate_budget(fine, losses, epsilon, p)
    rough = allocate_budget(fine[coarse], losses[:, coarse], epsilon, p)
    assert rough.lower_bound <= exact.lower_bound + 1e-12
    assert exact.loss <= rough.loss + 1e-12


def test_two_bits_are_given_to_one_of_them():
    """Two identical bits: the whole budget to one, where symmetric methods waste it."""
    grid = np.linspace(0, 3, 301)
    bit = np.minimum(0.1, 1 / (1 + np.exp(grid)))
    best = allocate_budget(grid, [bit, bit], 3.0)
    assert sorted(best.budgets) == [0.0, 3.0]
    assert best.loss == pytest.approx(0.1 + 1 / (1 + math.exp(3)), rel=1e-14)
    assert best.gap < 1e-13
    envelopes = envelope_allocation(grid, [bit, bit], 3.0)
    assert envelopes.loss == pytest.approx(0.2)
    np.testing.assert_allclose(envelopes.minorant_budgets, 3 / math.sqrt(2), rtol=1e-9)
    # The Lagrangian jumps over the ball: no multiplier uses the budget up.
    usage = [
        (lagrangian_minimisers(grid, np.array([bit, bit]), m) ** 2).sum()
        for m in np.linspace(0.005, 0.007, 2001)
    ]
    assert (np.diff(usage) <= 1e-9).all()
    assert not any(1 < u < 9.01 for u in usage)


@pytest.mark.parametrize("p", [1, 1.5, 2, 4, math.inf])
@pytest.mark.parametrize("seed", range(4))
def test_bisection_is_optimal_for_convex_curves(p, seed):
    rng = np.random.default_rng(seed)
    grid = np.linspace(0, 3, 13)
    values = rng.uniform(0.2, 2, (3, 1)) * np.exp(-grid * rng.uniform(0.2, 2, (3, 1)))
    shares, bound = lagrangian_allocation(grid, values, 2.0, p)
    value = sum(np.interp(e, grid, row) for e, row in zip(shares, values, strict=True))
    assert compose_budget(shares, p) <= 2.0
    assert bound == pytest.approx(value, rel=1e-9)  # no duality gap, hence optimal


def test_bisection_agrees_with_a_general_solver_on_smooth_curves():
    rates, scales = np.array([0.3, 0.8, 1.7]), np.array([1.0, 2.0, 0.7])
    grid = np.linspace(0, 2, 4001)
    values = scales[:, None] * np.exp(-rates[:, None] * grid)
    shares, bound = lagrangian_allocation(grid, values, 2.0, 2)
    peer = minimize(
        lambda e: scales @ np.exp(-rates * e),
        np.full(3, 0.5),
        constraints={"type": "ineq", "fun": lambda e: 4 - e @ e},
        bounds=[(0, 2)] * 3,
        tol=1e-12,
    )
    np.testing.assert_allclose(shares, peer.x, atol=1e-3)
    assert bound == pytest.approx(peer.fun, rel=1e-6)


@pytest.mark.parametrize("p", [1.5, 2, math.inf])
def test_rounded_costs_still_bracket_the_optimum(p, monkeypatch):
    rng = np.random.default_rng(5)
    grid = np.linspace(0, 4, 41)
    losses = curves(rng, "jumps", grid, groups=7)
    exact = allocate_budget(grid, losses, 2.5, p)
    monkeypatch.setattr(allocation, "_CHOICES", 0)
    for cells, off in ((1 << 16, 1.001), (1 << 6, 1.3)):
        monkeypatch.setattr(allocation, "_CELLS", cells)
        rounded = allocate_budget(grid, losses, 2.5, p)
        assert exact.lower_bound / off <= rounded.lower_bound <= exact.lower_bound + 1e-12
        assert exact.loss <= rounded.loss < off * exact.loss
        assert compose_budget(rounded.budgets, p) <= 2.5


def test_curves_with_countless_optima_are_rounded():
    """Losses linear in the cost: every way to spend the budget is optimal."""
    grid = np.linspace(0, 10, 200)
    losses = np.tile(1 - (grid / 10) ** 2, (15, 1))
    best = allocate_budget(grid, losses, 7.3)
    assert best.loss == pytest.approx(15 - 0.73**2, rel=1e-3)
    assert best.lower_bound <= 15 - 0.73**2
    assert best.gap < 5e-3


def test_certified_lower_bounds_replace_the_losses():
    grid = np.linspace(0, 2, 21)
    losses = np.exp(-grid) * np.ones((3, 1))
    bounds = 0.9 * losses
    bounds[:, 5] = 0  # a weak one is improved by those at larger budgets
    plain = allocate_budget(grid, losses, 2.0)
    certified = allocate_budget(grid, losses, 2.0, lower_bounds=bounds)
    assert certified.loss == plain.loss
    assert certified.lower_bound == pytest.approx(0.9 * plain.lower_bound, rel=1e-12)


@settings(max_examples=100, deadline=None)
@given(
    budgets=st.lists(st.floats(0, 1e3), min_size=1, max_size=20),
    epsilon=st.floats(1e-3, 1e3),
    p=st.one_of(st.sampled_from(EXPONENTS), st.floats(1, 1e3)),
)
def test_projected_budgets_compose_to_at_most_epsilon(budgets, epsilon, p):
    projected = within_budget(budgets, epsilon, p)
    assert compose_budget(projected, p) <= epsilon
    assert compose_budget(projected, p) >= min(compose_budget(budgets, p), epsilon) * (1 - 1e-12)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    p=st.one_of(st.sampled_from([1 + 1e-15, 1 + 1e-6, 1.01, 1e4, 1e12]), st.floats(1, 60)),
    epsilon=st.floats(1e-3, 100),
)
def test_extreme_exponents_neither_overflow_nor_break_the_order(seed, p, epsilon):
    rng = np.random.default_rng(seed)
    grid = np.linspace(0, 2, 11) * epsilon
    losses = curves(rng, KINDS[seed % 4], grid, groups=3)
    best = allocate_budget(grid, losses, epsilon, p)
    envelopes = envelope_allocation(grid, losses, epsilon, p)
    slack = 1e-6 * losses[:, 0].sum()
    assert best.loss <= envelopes.loss + slack
    assert envelopes.lower_bound <= best.lower_bound + slack
    for answer in (best, envelopes):
        assert compose_budget(answer.budgets, p) <= epsilon


def test_one_group_gets_everything():
    grid = np.linspace(0, 1, 11)
    for p in EXPONENTS:
        best = allocate_budget(grid, [1 - grid], 1.0, p)
        assert best.budgets == [1.0] and best.loss == 0 == best.gap


def test_a_grid_that_does_not_start_at_zero():
    grid = np.linspace(0.5, 2, 16)
    losses = np.exp(-grid) * np.ones((2, 1))
    best = allocate_budget(grid, losses, 1.0)
    assert best.loss == pytest.approx(brute_force(grid, losses, 1.0, 2))
    with pytest.raises(InvalidBudget, match="start the grid at 0"):
        allocate_budget(grid, losses, 0.6)
    with pytest.raises(InvalidBudget, match="start the grid at 0"):
        even_allocation(grid, losses, 0.6)
    with pytest.raises(InvalidBudget, match="need it to start at 0"):
        envelope_allocation(grid, losses, 1.0)


def test_bad_input_is_named():
    grid, losses = np.linspace(0, 1, 5), np.ones((2, 5))
    with pytest.raises(InvalidBudget, match="below epsilon 3:"):
        allocate_budget(grid, losses, 3.0)
    with pytest.raises(InvalidBudget, match="below one it defines no metric"):
        allocate_budget(grid, losses, 1.0, 0.5)
    with pytest.raises(InvalidLoss, match=r"shape \(groups, 5\)"):
        allocate_budget(grid, np.ones(5), 1.0)
    with pytest.raises(InvalidLoss, match="finite"):
        allocate_budget(grid, losses * np.inf, 1.0)
    with pytest.raises(InvalidLoss, match="curve 1 rises from sample 0 to 1"):
        allocate_budget(grid, [np.ones(5), grid], 1.0)
    with pytest.raises(InvalidLoss, match="lower bounds have shape"):
        allocate_budget(grid, losses, 1.0, lower_bounds=np.ones((2, 4)))
