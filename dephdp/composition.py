"""Composition over independent groups: the dual norm, and the exact level of the product."""

import math
from itertools import pairwise

import numpy as np

from dephdp.certificate import log_ratios
from dephdp.errors import InvalidBudget
from dephdp.metric import check_weights
from dephdp.validation import check_epsilon, check_exponent


def compose_budget(group_budgets, p):
    """Return the budget of independent groups under the ℓp product metric.

    Parameters
    ----------
    group_budgets : array_like, shape (groups,)
        The privacy level ε_k ≥ 0 of each group's channel for its own metric.
    p : float
        Exponent of the product metric, in [1, ∞].

    Returns
    -------
    float
        The dual norm ‖ε‖_q, 1/p + 1/q = 1: max ε_k for p = 1, the Euclidean norm for p = 2,
        Σ ε_k for p = ∞.

    Raises
    ------
    InvalidBudget
        If a budget is negative or not finite, there is none, or p is below one.

    Notes
    -----
    By Hölder's inequality Σ_k ε_k d_k ≤ ‖ε‖_q ‖(d_k)‖_p (Theorem 1). On finite domains the exact
    level is often lower: see :func:`product_privacy_level`.
    """
    p = check_exponent(p)
    budgets = np.asarray(group_budgets, dtype=float)
    if budgets.ndim != 1 or not budgets.size:
        raise InvalidBudget(f"group budgets must be a nonempty vector, got shape {budgets.shape}")
    bad = np.flatnonzero(~((budgets >= 0) & np.isfinite(budgets)))
    if bad.size:
        raise InvalidBudget(
            f"the budget of group {bad[0]} is {budgets[bad[0]]!r}: "
            "it must be finite and nonnegative"
        )
    largest = budgets.max()
    if p == 1 or largest == 0:
        return float(largest)
    if math.isinf(p):
        return float(budgets.sum())
    q = p / (p - 1)
    return float(largest * ((budgets / largest) ** q).sum() ** (1 / q))


def split_budget(epsilon, groups, p):
    """Return equal group budgets that compose to epsilon.

    Parameters
    ----------
    epsilon : float
        Budget of the whole record, per unit of the ℓp metric.
    groups : int
        Number of groups, K.
    p : float
        Exponent of the product metric, in [1, ∞].

    Returns
    -------
    ndarray, shape (groups,)
        ε K^(-1/q) each (for p = 2: ε/√K), less a unit in the last place where rounding asks for
        it, so that ``compose_budget`` of the result is at most epsilon.

    Raises
    ------
    InvalidBudget
        If epsilon, groups or p lies outside its range.
    """
    epsilon = check_epsilon(epsilon)
    p = check_exponent(p)
    if isinstance(groups, bool) or not isinstance(groups, int | np.integer) or groups < 1:
        raise InvalidBudget(f"the number of groups must be a positive integer, got {groups!r}")
    budget = epsilon / groups ** (1 - 1 / p)
    while compose_budget(np.full(groups, budget), p) > epsilon:
        budget = math.nextafter(budget, 0.0)
    return np.full(groups, budget)


def product_privacy_level(channels, p=2, weights=None):
    """Return the exact level of the product of independent channels, without building it.

    Parameters
    ----------
    channels : sequence of Channel
        One channel a group.
    p : float, optional
        Exponent of the product metric, in [1, ∞].
    weights : sequence of float, optional
        Finite positive weight of each group's distance, as in
        :func:`dephdp.metric.combine_distances`; one by default.

    Returns
    -------
    float
        The same number as ``privacy_level`` of the product channel, up to rounding.

    Raises
    ------
    InvalidBudget, InvalidMetric
        If there is no channel, or for p or weights out of range.

    Notes
    -----
    Let ρ_k(t) be the largest log-likelihood ratio of group k over its pairs at distance t, with
    ρ_k(0) = 0. Outputs and states of different groups are chosen independently, so the level is

        max over t of Σ_k ρ_k(t_k) / (Σ_k w_k t_k^p)^(1/p).

    *Finite p.* Put s_k = w_k t_k^p. A level λ is exceeded exactly where R - λ S^(1/p) > 0 for
    some (S, R) in the Minkowski sum of the finite sets {(s_k, ρ_k)}. The left side is a convex
    function of (S, R), as S^(1/p) is concave; it falls in S and grows in R. Its maximum is hence
    attained at a vertex of the increasing upper hull of the sum, and those vertices are found by
    merging the groups' hull edges in the order of their slopes. Their number is at most
    the sum of the groups' hull sizes, instead of the product of their numbers of distances. All
    powers are kept as logarithms, so that no p underflows.

    *p = ∞.* For each T among the distances, every group contributes its largest ρ_k(t), t ≤ T.
    """
    p = check_exponent(p)
    channels = list(channels)
    if not channels:
        raise InvalidBudget("a product needs at least one channel")
    weights = check_weights(weights, len(channels))
    frontiers = [_frontier(channel) for channel in channels]
    if any(np.isinf(ratios[-1]) for _, ratios in frontiers):
        return math.inf
    if math.isinf(p):
        return _level_of_maximum(frontiers)
    return _level_of_sum(frontiers, p, np.log(weights))


def _frontier(channel):
    """Distances and log ratios that no closer pair matches: both strictly increasing, from 0."""
    ratios = log_ratios(channel.matrix)
    finite = np.isfinite(channel.distances)
    distances, ratios = channel.distances[finite], ratios[finite]
    order = np.lexsort((-ratios, distances))
    distances, ratios = distances[order], ratios[order]
    before = np.concatenate(([0.0], np.maximum.accumulate(ratios)[:-1]))
    better = ratios > before
    distances = np.concatenate(([0.0], distances[better]))
    ratios = np.concatenate(([0.0], ratios[better]))
    if len(distances) > 1 and distances[1] == 0:
        ratios[-1] = np.inf
    return distances, ratios


def _level_of_maximum(frontiers):
    thresholds = np.unique(np.concatenate([distances for distances, _ in frontiers]))
    total = np.zeros(len(thresholds))
    for distances, ratios in frontiers:
        total += ratios[np.searchsorted(distances, thresholds, side="right") - 1]
    return float(np.max(total[1:] / thresholds[1:], initial=0.0))


def _level_of_sum(frontiers, p, log_weights):
    edges = []
    for group, (distances, ratios) in enumerate(frontiers):
        with np.errstate(divide="ignore"):
            logs = p * np.log(distances) + log_weights[group]
        hull = _hull(logs, ratios)
        edges += [
            (_log_slope(logs, ratios, start, stop), group, stop) for start, stop in pairwise(hull)
        ]
    edges.sort(key=lambda edge: (-edge[0], edge[1], edge[2]))
    chosen = [0] * len(frontiers)
    level = 0.0
    for _, group, stop in edges:
        chosen[group] = stop
        distances = np.array([f[0][i] for f, i in zip(frontiers, chosen, strict=True)])
        ratio = sum(f[1][i] for f, i in zip(frontiers, chosen, strict=True))
        level = max(level, ratio / _norm(distances, p, log_weights))
    return float(level)


def _hull(logs, ratios):
    """Return the indices of the upper concave hull's vertices, for points (e^logs, ratios)."""
    hull = []
    for point in range(len(logs)):
        while len(hull) > 1 and _log_slope(logs, ratios, hull[-1], point) >= _log_slope(
            logs, ratios, hull[-2], hull[-1]
        ):
            hull.pop()
        hull.append(point)
    return hull


def _log_slope(logs, ratios, start, stop):
    """Log of the slope (ρ' - ρ) / (s' - s), from the logarithms of s and s'."""
    span = logs[stop] + math.log(-math.expm1(logs[start] - logs[stop]))
    return math.log(ratios[stop] - ratios[start]) - span


def _norm(distances, p, log_weights):
    largest = distances.max()
    terms = np.exp(log_weights) * (distances / largest) ** p
    return largest * terms.sum() ** (1 / p)
