"""Noise in the case studies, by its formula: a route that shares no code with the package."""

import numpy as np


def noise_losses(profile, budgets):
    """Return the losses of the exponential mechanism, before and after its Bayesian remap.

    Parameters
    ----------
    profile : GroupProfile
        Prior, distances and losses of a group with n states.
    budgets : sequence of float, shape (points,)
        Budgets ε_k; the exponent is ε_k / 2.

    Returns
    -------
    ndarray, shape (2, points)
    """
    losses = []
    for budget in budgets:
        weights = np.exp(-budget / 2 * profile.distances)
        joint = profile.prior[:, None] * weights / weights.sum(axis=1, keepdims=True)
        remapped = (joint.T @ profile.loss).min(axis=1)
        losses.append(((joint * profile.loss).sum(), remapped.sum()))
    return np.array(losses).T


def near_only(profile, threshold):
    """Return distances that ask for privacy within a threshold only: not a private design.

    Parameters
    ----------
    profile : GroupProfile
        A group with n states.
    threshold : float
        Pairs of states farther apart than this are at distance infinity.

    Returns
    -------
    ndarray, shape (n, n)
    """
    return np.where(profile.distances <= threshold, profile.distances, np.inf)
