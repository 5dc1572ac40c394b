"""Dividing a budget by the exact product rule, which admits more budgets than the dual norm.

On finite domains distances are quantised. Group budgets b are safe for ε, whatever the mechanisms,
exactly if Σ_k b_k t_k ≤ ε ‖t‖_p for all vectors t of distances that occur. These budgets form a
polytope that contains the ball of Theorem 1. It has too many faces to write down, but the face that
budgets violate most is found at the cost of a sort.
"""

import math

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from dephdp.allocation import Allocation, allocate_budget
from dephdp.composition import guaranteed_level
from dephdp.errors import InvalidBudget, SolverError

_SAME = 1e-12  # levels this close, relatively, differ by rounding


def allocate_by_product_rule(
    budgets, losses, epsilon, distance_sets, p=2, *, lower_bounds=None, rounds=60
):
    """Return the best allocation on the grid among all budgets that the distances make safe.

    Parameters
    ----------
    budgets, losses, epsilon, p, lower_bounds
        As in :func:`dephdp.allocate_budget`.
    distance_sets : sequence of array_like
        For each group, the distances between its states, in any shape.
    rounds : int, optional
        How many faces of the polytope are looked at, at most.

    Returns
    -------
    Allocation
        Its budgets are safe: ``guaranteed_level`` of them is at most epsilon, although they may
        compose to more by the dual norm. The loss is never above that of ``allocate_budget``, and
        no safe budgets, on the grid or off it, lose less than ``lower_bound``.

    Raises
    ------
    InvalidBudget, InvalidLoss, InvalidMetric
        As :func:`dephdp.allocate_budget`, and if there is not one set of distances a group.
    SolverError
        If HiGHS fails.

    Notes
    -----
    A mixed-integer linear program chooses a grid budget for each group under the faces found so
    far, and the face that its answer violates most is added, until there is none. The set of safe
    budgets contains all smaller ones, so an answer scaled down to its level and rounded down to the
    grid is feasible: the best of these is returned when the rounds are over. The
    bound solves the program once more, with each budget replaced by the cell above it.
    """
    best = allocate_budget(budgets, losses, epsilon, p, lower_bounds=lower_bounds)
    grid, losses = np.asarray(budgets, dtype=float), np.asarray(losses, dtype=float)
    if len(distance_sets) != len(losses):
        raise InvalidBudget(
            f"there are {len(losses)} groups but {len(distance_sets)} sets of distances"
        )
    bounds = losses if lower_bounds is None else np.asarray(lower_bounds, dtype=float)
    bounds = np.maximum.accumulate(bounds[:, ::-1], axis=1)[:, ::-1]
    affordable = np.flatnonzero(grid <= epsilon * (1 + _SAME))
    grid, losses = grid[affordable], losses[:, affordable]
    following = np.where(grid < epsilon * (1 - _SAME), affordable + 1, affordable)
    choices, loss, faces = best.choices, best.loss, np.empty((0, len(losses)))
    for _ in range(rounds):
        answer, _ = _choose(grid, losses, faces, epsilon)
        level, face = guaranteed_level(grid[answer], distance_sets, p)
        if level > epsilon * (1 + _SAME):
            faces = np.vstack([faces, face])
            answer = np.searchsorted(grid, grid[answer] * (epsilon / level), side="right") - 1
            if answer.min() < 0:
                continue
        value = math.fsum(np.take_along_axis(losses, answer[:, None], axis=1).ravel())
        if value < loss:
            choices, loss = answer, value
        if level <= epsilon * (1 + _SAME):
            break
    cells, beyond = np.append(0.0, grid), bounds[:, np.append(0, following)]
    _, bound = _choose(cells, beyond, faces, epsilon)
    safe = _within_level(grid[choices], distance_sets, epsilon, p)
    return Allocation(safe, choices, loss, min(bound, loss))


def _choose(grid, losses, faces, epsilon):
    """Minimise the sum of losses under Σ_k t_k g_k <= ε ‖t‖ for each face t / ‖t‖."""
    groups, points = losses.shape
    each = sparse.kron(sparse.eye_array(groups), np.ones((1, points)), format="csr")
    constraints = [LinearConstraint(each, 1, 1)]
    if len(faces):
        spent = (faces[:, :, None] * grid).reshape(len(faces), -1)
        constraints.append(LinearConstraint(spent, ub=epsilon * (1 + _SAME)))
    solution = milp(
        losses.ravel(),
        constraints=constraints,
        integrality=np.ones(losses.size),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 1e-9},
    )
    if solution.status != 0:
        raise SolverError(f"HiGHS stopped on an allocation: {solution.message}")
    return solution.x.reshape(groups, points).argmax(axis=1), float(solution.mip_dual_bound)


def _within_level(budgets, distance_sets, epsilon, p):
    """Scale budgets down, if need be, until rounding no longer shows in their level."""
    level, step, scaled = guaranteed_level(budgets, distance_sets, p)[0], 0.0, budgets
    while guaranteed_level(scaled, distance_sets, p)[0] > epsilon:
        scaled = budgets * (epsilon / level * (1 - step))
        step = max(2 * step, 2.0**-53)
    return scaled
