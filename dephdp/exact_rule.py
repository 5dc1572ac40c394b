"""Stage 4 beyond Theorem 1: budgets that only the exact level of the product limits.

On finite domains ‖ε‖_q bounds the level of a product of channels but seldom equals it, so larger
budgets are private too. Which ones, the exact product rule says: the level of the product is
max_t Σ_k ρ_k(t_k) / ‖t‖_p, see `product_privacy_level`.
"""

import math
from functools import cache

import numpy as np

from dephdp.allocation import Allocation
from dephdp.composition import compose_budget, product_privacy_level

_RESOLUTION = 1e-3  # of epsilon, at which the search for a larger ball ends


def exact_allocation(allocate, curves, coefficients, epsilon, p):
    """Spend what an allocation under Theorem 1 leaves of the budget.

    Parameters
    ----------
    allocate : callable
        ``allocate(total) -> Allocation`` of a total budget under Theorem 1, from epsilon on.
    curves : sequence of LossCurve
        One a group, sampled up to epsilon.
    coefficients : array_like, shape (groups,)
        The surrogate's β_k.
    epsilon : float
        Budget of the record.
    p : float
        Exponent of the record metric.

    Returns
    -------
    Allocation
        The exact level of its mechanisms' product is at most epsilon, while its budgets may
        compose to more. Its loss is at most that of ``allocate(epsilon)``. Its lower bound holds
        for all budgets with which the product can be private: none exceeds epsilon.

    Notes
    -----
    A local search, from nothing, from the allocation under Theorem 1, and from that of the largest
    total whose product is still private: each group in turn comes first and is given the largest
    sample that keeps the product private, then the others, those with most to gain first. The
    level is taken of the very channels that will be used. Other budgets may be better.
    """
    scaled = list(zip(coefficients, curves, strict=True))
    losses = np.array([b * curve.losses for b, curve in scaled])
    bound = math.fsum(b * curve.lower_bounds[-1] for b, curve in scaled)
    last, groups = losses.shape[1] - 1, np.arange(len(curves))

    @cache
    def channel(k, sample):
        return curves[k].mechanism(curves[k].budgets[sample])

    def private(choices):
        channels = [channel(k, int(sample)) for k, sample in enumerate(choices)]
        return product_privacy_level(channels, p) <= epsilon

    plain = allocate(epsilon)
    largest = compose_budget(np.full(len(curves), epsilon), p)
    stretched = _stretched(allocate, plain, private, last, epsilon, largest)
    ends = [
        _filled(start, first, losses, private)
        for start in (np.zeros_like(plain.choices), plain.choices, stretched)
        for first in groups
    ]
    choices = min(ends, key=lambda choices: losses[groups, choices].sum())
    budgets = np.array([curve.budgets[i] for curve, i in zip(curves, choices, strict=True)])
    loss = math.fsum(losses[groups, choices])
    return Allocation(budgets, choices, loss, min(bound, loss))


def _filled(choices, first, losses, private):
    """Raise the choice of one group, then the others', as far as the product stays private."""
    choices = choices.copy()
    gains = losses[np.arange(len(losses)), choices] - losses[:, -1]
    gains[first] = np.inf
    for k in np.argsort(-gains, kind="stable"):
        low, high = choices[k], losses.shape[1]
        while high - low > 1:
            choices[k] = (low + high) // 2
            if private(choices):
                low = choices[k]
            else:
                high = choices[k]
        choices[k] = low
    return choices


def _stretched(allocate, plain, private, last, epsilon, largest):
    """Return the choices at the largest total, by bisection, whose product is private."""
    best, low, high = plain, epsilon, largest
    while high - low > _RESOLUTION * epsilon:
        middle = (low + high) / 2
        found = allocate(middle)
        if private(np.minimum(found.choices, last)):
            low = middle
            best = found if found.loss < best.loss else best
        else:
            high = middle
    return np.minimum(best.choices, last)
