"""Convex envelopes of sampled curves, and how to shift them so that they hold between samples.

The curves are rows of values over a common grid. The grid may be the budgets or any increasing
function of them: a non-increasing curve that is convex in ε is convex in ε^q, not conversely, so
envelopes along ε^q lie closer to the curve.
"""

import numba
import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from dephdp.errors import InvalidLoss, SolverError
from dephdp.validation import check_grid


def convex_minorant(grid, values):
    """Return the greatest convex minorant of sampled curves, at the samples.

    Parameters
    ----------
    grid : array_like, shape (points,)
        Strictly increasing abscissae.
    values : array_like, shape (..., points)
        One curve a row.

    Returns
    -------
    ndarray, shape (..., points)
        The largest values at or below the given ones whose linear interpolation is convex.

    Raises
    ------
    InvalidBudget, InvalidLoss
        If the grid is not increasing or the values do not fit it.

    Notes
    -----
    A pointwise supremum of convex functions is convex, so the greatest one exists. It is the lower
    convex hull of the points, found in one pass from left to right, and the solution of the linear
    program (36) of Liu, Oluwole and Qiu (2026).
    """
    grid, values = _check_samples(grid, values)
    minorant = np.empty(values.shape)
    _lower_hulls(grid, values.reshape(-1, len(grid)), minorant.reshape(-1, len(grid)))
    return minorant


def convex_majorant(grid, values):
    """Return a convex majorant of a sampled curve with the least sum of values.

    Parameters
    ----------
    grid : array_like, shape (points,)
        Strictly increasing abscissae.
    values : array_like, shape (points,)
        One curve.

    Returns
    -------
    ndarray, shape (points,)
        A vertex of the optimal set of the linear program (37) of Liu, Oluwole and Qiu (2026):
        least sum, convex, at or above the given values.

    Raises
    ------
    InvalidBudget, InvalidLoss
        If the grid is not increasing or the values do not fit it.
    SolverError
        If HiGHS fails.

    Notes
    -----
    No majorant lies below all others in general, and the program can have many solutions: for the
    values (1, 0.9, 0) on a uniform grid, (1, 0.9, 0.8) and (1.8, 0.9, 0) both sum to 2.7. Which
    one comes back is the solver's choice.
    """
    grid, values = _check_samples(grid, values)
    if values.ndim != 1:
        raise InvalidLoss(f"values must be one curve, got shape {values.shape}")
    if len(grid) < 3:
        return values.copy()
    bends = _second_differences(grid)
    scale = np.abs(values).max() or 1.0
    solution = linprog(
        np.ones(len(grid)),
        A_ub=-bends,
        b_ub=np.zeros(bends.shape[0]),
        bounds=np.stack([values / scale, np.full(len(grid), np.inf)], axis=1),
        method="highs",
    )
    if solution.status != 0:
        raise SolverError(f"HiGHS stopped on a convex majorant: {solution.message}")
    return np.maximum(scale * solution.x, values)


def shift_minorant(minorant):
    """Shift the values of a minorant left by one sample; the last one stays.

    Parameters
    ----------
    minorant : array_like, shape (..., points)
        Values at or below a non-increasing curve at the samples.

    Returns
    -------
    ndarray, shape (..., points)
        Their linear interpolation lies below the curve between the samples too (Proposition 4 of
        Liu, Oluwole and Qiu, 2026); it is convex if the minorant is and the grid is uniform.
    """
    minorant = np.asarray(minorant, dtype=float)
    return np.concatenate([minorant[..., 1:], minorant[..., -1:]], axis=-1)


def shift_majorant(majorant):
    """Shift the values of a majorant right by one sample; the first one is extrapolated.

    Parameters
    ----------
    majorant : array_like, shape (..., points)
        Non-increasing values at or above a non-increasing curve at the samples.

    Returns
    -------
    ndarray, shape (..., points)
        Their linear interpolation lies above the curve between the samples too (Proposition 4 of
        Liu, Oluwole and Qiu, 2026); it is convex if the majorant is and the grid is uniform.
        Repeating the first value instead of extrapolating would break convexity.
    """
    majorant = np.asarray(majorant, dtype=float)
    first = majorant[..., :1]
    extrapolated = first + (first - majorant[..., 1:2]) if majorant.shape[-1] > 1 else first
    return np.concatenate([extrapolated, majorant[..., :-1]], axis=-1)


def shifted_envelopes(grid, values):
    """Return the convex bounds of non-increasing curves that hold between the samples too.

    Parameters
    ----------
    grid : array_like, shape (points,)
        Uniformly spaced abscissae.
    values : array_like, shape (..., points)
        One non-increasing curve a row.

    Returns
    -------
    lower, upper : ndarray, shape (..., points)
        Shifted convex minorants and majorants; interpolate them linearly.

    Raises
    ------
    InvalidBudget, InvalidLoss
        If the grid is not uniform, or a curve rises: the bounds would not hold.
    """
    grid, values = _check_samples(grid, values)
    steps = np.diff(grid)
    if not np.allclose(steps, steps.mean() if steps.size else 0, rtol=1e-6, atol=0):
        raise InvalidLoss("the grid is not uniform: shifted envelopes would not stay convex")
    check_non_increasing(values)
    rows = values.reshape(-1, len(grid))
    majorants = np.array([convex_majorant(grid, row) for row in rows]).reshape(values.shape)
    return shift_minorant(convex_minorant(grid, values)), shift_majorant(majorants)


def check_non_increasing(values):
    """Refuse curves that rise by more than rounding.

    Parameters
    ----------
    values : ndarray, shape (..., points)
        One curve a row.

    Raises
    ------
    InvalidLoss
        Naming the first rise.
    """
    slack = 1e-12 * np.abs(values).max(axis=-1, keepdims=True, initial=0.0)
    bad = np.argwhere(np.diff(values, axis=-1) > slack)
    if bad.size:
        *row, point = (int(i) for i in bad[0])
        raise InvalidLoss(
            f"curve {row[0] if row else 0} rises from sample {point} to {point + 1}: take its "
            "running minimum, for a smaller budget is always allowed"
        )


def _check_samples(grid, values):
    grid = check_grid(grid)
    values = np.asarray(values, dtype=float)
    if values.ndim < 1 or values.shape[-1] != len(grid):
        raise InvalidLoss(f"values have shape {values.shape}, the grid has {len(grid)} points")
    if not np.isfinite(values).all():
        raise InvalidLoss("every value of a curve must be finite")
    return grid, np.ascontiguousarray(values)


def _second_differences(grid):
    """Matrix of slope differences, each scaled to a middle weight of -1 (35)."""
    steps = np.diff(grid)
    left, right = steps[1:], steps[:-1]
    total = left + right
    inner = len(grid) - 2
    return sparse.diags_array(
        [left / total, -np.ones(inner), right / total], offsets=[0, 1, 2], shape=(inner, len(grid))
    )


@numba.njit(cache=True)
def _lower_hulls(grid, values, minorant):
    hull = np.empty(len(grid), dtype=np.int64)
    for row in range(values.shape[0]):
        v, size = values[row], 0
        for i in range(len(grid)):
            # The last vertex goes while it lies on or above the chord that bridges it.
            while size > 1 and (v[hull[size - 1]] - v[hull[size - 2]]) * (
                grid[i] - grid[hull[size - 1]]
            ) >= (v[i] - v[hull[size - 1]]) * (grid[hull[size - 1]] - grid[hull[size - 2]]):
                size -= 1
            hull[size] = i
            size += 1
        for k in range(size - 1):
            a, b = hull[k], hull[k + 1]
            slope = (v[b] - v[a]) / (grid[b] - grid[a])
            for i in range(a, b):
                minorant[row, i] = min(v[a] + slope * (grid[i] - grid[a]), v[i])
        minorant[row, hull[size - 1]] = v[hull[size - 1]]
