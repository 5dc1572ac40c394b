"""The largest exponent of a family of channels that keeps a privacy budget."""

import math

import numpy as np
from scipy.optimize import brentq

from dephdp.certificate import privacy_level
from dephdp.errors import InvalidBudget

_LARGEST_EXPONENT = 700.0  # e^-708 is the least normal double


def check_underflow(epsilon, distances):
    """Refuse a budget whose probabilities would vanish in double precision.

    Parameters
    ----------
    epsilon : float
        The exponent of the channel.
    distances : ndarray, shape (n, n)
        Distances between the states.

    Raises
    ------
    InvalidBudget
        If e^(-ε d) n⁻¹ underflows at the largest finite distance: the zero would face a positive
        probability, which no finite budget allows.
    """
    diameter = distances[np.isfinite(distances)].max()
    if epsilon * diameter + math.log(len(distances)) > _LARGEST_EXPONENT:
        raise InvalidBudget(
            f"epsilon {epsilon!r} times the diameter {diameter!r} underflows double precision: "
            "lower epsilon, or clip the distances"
        )


def largest_private(build, level, epsilon, distances):
    """Return the channel matrix of the largest exponent found whose exact level is at most ε.

    Parameters
    ----------
    build : callable
        Maps an exponent α to a channel matrix of shape (n, m), of level between α and 2 α.
    level : callable
        Maps an exponent to the level of its channel.
    epsilon : float
        Budget per unit of distance.
    distances : ndarray, shape (n, n)
        Distances between the states.

    Returns
    -------
    ndarray, shape (n, m)

    Notes
    -----
    The level is continuous in α, at most ε at α = ε/2 and at least ε at α = ε, so a root lies
    between, whether or not the level is monotone; if it is not, some root is found, not
    necessarily the largest. :func:`settle` then removes the last units of rounding.
    """
    check_underflow(epsilon, distances)
    low, high = epsilon / 2 * (1 - 1e-9), epsilon

    def excess(alpha):
        return min(level(alpha), 4 * epsilon) - epsilon

    if excess(high) <= 0:
        exponent = high
    elif excess(low) >= 0:  # so small a budget that rounding hides the root
        exponent = low
    else:
        exponent = brentq(excess, low, high, xtol=1e-15 * epsilon, rtol=1e-14)
    return settle(build, exponent, epsilon, distances)


def settle(build, exponent, epsilon, distances):
    """Return the channel matrix at an exponent, lowered until rounding no longer shows.

    Parameters
    ----------
    build : callable
        Maps an exponent to a channel matrix.
    exponent : float
        An exponent whose exact level is at most ε up to rounding.
    epsilon : float
        Budget per unit of distance.
    distances : ndarray, shape (n, n)
        Distances between the states.

    Returns
    -------
    ndarray, shape (n, m)
        A matrix whose computed level is at most ε.

    Notes
    -----
    The exponent is lowered by the relative excess of the level, and by steps that start at 1e-15
    and double: the loop ends at the latest with a constant channel, of level zero.
    """
    step = 1e-15
    while True:
        matrix = build(exponent)
        level = privacy_level(matrix, distances)
        if level <= epsilon:
            return matrix
        exponent *= max(1 - step - (level / epsilon - 1), 0.0)
        step *= 2
