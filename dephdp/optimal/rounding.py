"""The last units of rounding: a channel whose computed level is at most the budget."""

from __future__ import annotations

import numpy as np

from dephdp.certificate import privacy_level
from dephdp.errors import SolverError
from dephdp.optimal.problem import Problem

_LARGEST_SHARE = 1e-3


def private(channel, problem: Problem) -> np.ndarray:
    """Mix in as little of a constant channel as makes the computed level at most epsilon.

    Interior iterates are private with room to spare; dividing the rows by their sums can use it up
    only where distances are so small that rounding counts.

    Parameters
    ----------
    channel : ndarray, shape (n, m)
        Rows sum to one up to rounding; private up to rounding.
    problem : Problem

    Returns
    -------
    ndarray, shape (n, m)

    Raises
    ------
    SolverError
        If that takes more than a trace.
    """
    share = 0.0
    constant = channel.mean(axis=0)
    while share < _LARGEST_SHARE:
        mixed = (1 - share) * channel + share * constant
        mixed /= mixed.sum(axis=1, keepdims=True)
        if privacy_level(mixed, problem.distances) <= problem.epsilon:
            return mixed
        share = max(1e-15, 10 * share)
    raise SolverError(
        "no iterate is private at the budget: epsilon times the smallest distance is too close to "
        "the rounding of probabilities; merge states that are almost at distance zero"
    )
