"""The checks that every module shares: one rule, one exception, one wording."""

import math

import numpy as np

from dephdp.errors import InvalidBudget, InvalidChannel, InvalidDistribution, InvalidLoss

SUM_TOLERANCE = 1e-9
"""How far from one the sum of a probability vector may lie."""


def check_epsilon(epsilon):
    """Return a privacy budget as a float.

    Parameters
    ----------
    epsilon : float
        Budget per unit of distance; finite and positive.

    Returns
    -------
    float

    Raises
    ------
    InvalidBudget
        If it is not a finite positive number.
    """
    value = _as_float(epsilon, "epsilon")
    if not (math.isfinite(value) and value > 0):
        raise InvalidBudget(f"epsilon must be finite and positive, got {value!r}")
    return value


def check_exponent(p):
    """Return the exponent of an ℓp metric as a float in [1, ∞].

    Parameters
    ----------
    p : float
        Exponent; ``numpy.inf`` is allowed.

    Returns
    -------
    float

    Raises
    ------
    InvalidBudget
        If it is below one or NaN.
    """
    value = _as_float(p, "p")
    if not value >= 1:
        raise InvalidBudget(
            f"p must lie in [1, inf], got {value!r}: below one it defines no metric"
        )
    return value


def check_prior(prior, states):
    """Return a prior as a float array.

    Parameters
    ----------
    prior : array_like, shape (states,)
        Probabilities of the states.
    states : int
        How many states there are.

    Returns
    -------
    ndarray, shape (states,)
        The prior as given: it is never renormalised.

    Raises
    ------
    InvalidDistribution
        If the length is wrong, an entry is negative or NaN, or the sum is more than 1e-9 from one.
    """
    prior = _as_array(prior, "prior", InvalidDistribution)
    if prior.shape != (states,):
        raise InvalidDistribution(f"prior has shape {prior.shape}, expected ({states},)")
    bad = np.flatnonzero(~(prior >= 0))
    if bad.size:
        raise InvalidDistribution(
            f"prior[{bad[0]}] = {prior[bad[0]]!r}: probabilities must be nonnegative numbers"
        )
    if not abs(prior.sum() - 1) <= SUM_TOLERANCE:
        raise InvalidDistribution(
            f"prior sums to {prior.sum()!r}, not to one: divide by its sum if that is meant"
        )
    return prior


def check_loss(loss, shape):
    """Return a loss matrix as a float array.

    Parameters
    ----------
    loss : array_like, shape (states, outputs)
        Loss of reporting an output in a state.
    shape : tuple of int
        The expected (states, outputs).

    Returns
    -------
    ndarray, shape (states, outputs)

    Raises
    ------
    InvalidLoss
        If the shape is wrong or an entry is not finite.
    """
    loss = _as_array(loss, "loss", InvalidLoss)
    if loss.shape != tuple(shape):
        raise InvalidLoss(f"loss has shape {loss.shape}, expected {tuple(shape)} (states, outputs)")
    bad = np.argwhere(~np.isfinite(loss))
    if bad.size:
        row, column = bad[0]
        raise InvalidLoss(
            f"loss[{row}, {column}] = {loss[row, column]!r}: every loss must be finite"
        )
    return loss


def check_stochastic(matrix):
    """Return a row-stochastic matrix as a float array.

    Parameters
    ----------
    matrix : array_like, shape (states, outputs)
        Row x holds the distribution of the output in state x.

    Returns
    -------
    ndarray, shape (states, outputs)
        The matrix as given: rows are never renormalised.

    Raises
    ------
    InvalidChannel
        If it is not a nonempty matrix of nonnegative numbers whose rows each sum to one within
        1e-9; the message names the first bad entry or row.
    """
    matrix = _as_array(matrix, "channel", InvalidChannel)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InvalidChannel(
            f"a channel is a nonempty (states, outputs) matrix, got shape {matrix.shape}"
        )
    bad = np.argwhere(~(matrix >= 0))
    if bad.size:
        row, column = bad[0]
        raise InvalidChannel(
            f"row {row}, column {column}: {matrix[row, column]!r} is not a probability"
        )
    sums = matrix.sum(axis=1)
    bad = np.flatnonzero(~(np.abs(sums - 1) <= SUM_TOLERANCE))
    if bad.size:
        raise InvalidChannel(
            f"row {bad[0]} sums to {sums[bad[0]]!r}, not to one within {SUM_TOLERANCE}: "
            "normalise the rows, then check the privacy level again"
        )
    return matrix


def check_grid(budgets):
    """Return a grid of budgets as a float array.

    Parameters
    ----------
    budgets : array_like, shape (points,)
        Finite, nonnegative and strictly increasing.

    Returns
    -------
    ndarray, shape (points,)

    Raises
    ------
    InvalidBudget
        If it is empty or not of that kind; the message names the first bad entry.
    """
    grid = _as_array(budgets, "budgets", InvalidBudget)
    if grid.ndim != 1 or not grid.size:
        raise InvalidBudget(f"budgets must be a nonempty vector, got shape {grid.shape}")
    bad = np.flatnonzero(~((grid >= 0) & np.isfinite(grid)))
    if bad.size:
        raise InvalidBudget(
            f"budgets[{bad[0]}] = {grid[bad[0]]!r}: it must be finite and nonnegative"
        )
    bad = np.flatnonzero(np.diff(grid) <= 0)
    if bad.size:
        raise InvalidBudget(
            f"budgets[{bad[0] + 1}] = {grid[bad[0] + 1]!r} does not exceed the one before: "
            "sort the budgets and drop repeated ones"
        )
    return grid


def _as_float(value, name):
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidBudget(f"{name} must be a number, got {value!r}") from None


def _as_array(values, name, error):
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise error(f"{name} must be an array of numbers") from None
