"""A program that leaves constraints out: an exhibit, to explain numbers. It is not private.

The optimal mechanism's linear program has one row for each pair of states and each report. Keeping
the rows of near pairs only leaves states with no constraint at all, and solutions whose privacy
level is infinite. Rows that really are redundant are those between states with a third one on a
shortest path between them.
"""

import numpy as np

from book.cases.noise import near_only
from dephdp import optimal_mechanism


def truncated_optimum(profile, threshold, epsilon, *, tol=1e-3):
    """Solve the program of the optimal mechanism with the rows of near pairs only. NOT PRIVATE.

    Parameters
    ----------
    profile : GroupProfile
        Prior, distances and losses of a group.
    threshold : float
        Pairs of states farther apart are left out.
    epsilon : float
        Budget asked of the other pairs.
    tol : float, optional
        Relative gap at which to stop.

    Returns
    -------
    OptimalMechanism
        Its channel is private for the distances that were kept, and for no others.
    """
    near = near_only(profile, threshold)
    return optimal_mechanism(profile.prior, profile.loss, near, epsilon, tol=tol, closure=True)


def coverage(profile, threshold):
    """Return what a threshold leaves of the pairs of states.

    Parameters
    ----------
    profile : GroupProfile
        A group of at least two states.
    threshold : float
        The largest distance whose rows are kept.

    Returns
    -------
    kept : float
        Share of the ordered pairs of different states within the threshold.
    isolated : int
        Number of states that no other one is within the threshold of.
    """
    within = np.isfinite(near_only(profile, threshold))
    n = len(within)
    return float((within.sum() - n) / (n * (n - 1))), int((within.sum(axis=1) == 1).sum())
