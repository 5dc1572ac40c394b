"""The exact allocation against HiGHS, on the same knapsack."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import LinearConstraint, milp

from dephdp import allocate_budget

GRID = np.linspace(0, 10, 200)
GROUPS = 15


def curves(kind, rng):
    scale = rng.uniform(0.1, 3, (GROUPS, 1))
    if kind == "smooth":
        return scale * np.exp(-GRID * rng.uniform(0.1, 2, (GROUPS, 1)))
    return scale * np.minimum(rng.uniform(0.02, 0.5, (GROUPS, 1)), 1 / (1 + np.exp(GRID)))


def knapsack(losses, epsilon, q):
    """Solve the multiple-choice knapsack by HiGHS; scipy.optimize.milp is the interface."""
    each = sparse.kron(sparse.eye_array(GROUPS), np.ones((1, len(GRID))), format="csr")
    costs = np.tile((GRID / epsilon) ** q, GROUPS)[None]
    return milp(
        losses.ravel(),
        constraints=[LinearConstraint(each, 1, 1), LinearConstraint(costs, ub=1)],
        integrality=np.ones(losses.size),
        bounds=(0, 1),
        options={"mip_rel_gap": 1e-9},
    )


@pytest.mark.parametrize("p", [1.5, 2.0])
@pytest.mark.parametrize("kind", ["smooth", "bits"])
def test_fifteen_groups_and_two_hundred_budgets(race, kind, p):
    """The allocation also proves its bound off the grid, a second knapsack of the same size."""
    losses, epsilon = curves(kind, np.random.default_rng(0)), 6.0
    peer = knapsack(losses, epsilon, p / (p - 1))
    assert allocate_budget(GRID, losses, epsilon, p).loss == pytest.approx(peer.fun, rel=1e-6)
    ratios = race(
        f"allocation of 15 groups x 200 budgets, {kind} curves, p = {p:g}",
        lambda: allocate_budget(GRID, losses, epsilon, p),
        {"scipy.optimize.milp (HiGHS)": (lambda: knapsack(losses, epsilon, p / (p - 1)), 1)},
        rounds=3,
    )
    assert ratios["scipy.optimize.milp (HiGHS)"] > 3
