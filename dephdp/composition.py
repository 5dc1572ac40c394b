"""Composition over independent groups: the dual norm, and the exact level of the product."""

import math
from itertools import pairwise

import numpy as np

from dephdp.certificate import largest_ratio_output, log_ratios
from dephdp.errors import InvalidBudget, InvalidMetric
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
    channels = list(channels)
    frontiers, p, log_weights = _checked_frontiers(channels, p, weights)
    return _worst(frontiers, p, log_weights)[0]


def product_worst_case(channels, p=2, weights=None):
    """Return two records and a report at which the product attains its level.

    Parameters
    ----------
    channels : sequence of Channel
        One channel a group.
    p : float, optional
        Exponent of the product metric, in [1, ∞].
    weights : sequence of float, optional
        Finite positive weight of each group's distance; one by default.

    Returns
    -------
    record, other, report : ndarray of int, shape (groups,)
        State indices x and x', and the output index y, of each group:
        ln(M(y | x) / M(y | x')) = level · d(x, x'). The two records coincide only if no pair of
        records is distinguished at all.

    Raises
    ------
    InvalidBudget, InvalidMetric
        As :func:`product_privacy_level`, whose maximisation this is.
    """
    channels = list(channels)
    frontiers, p, log_weights = _checked_frontiers(channels, p, weights)
    chosen = _worst(frontiers, p, log_weights)[1]
    worst = []
    for channel, (_, _, pairs), point in zip(channels, frontiers, chosen, strict=True):
        record, other = divmod(int(pairs[point]), channel.states)
        worst.append((record, other, largest_ratio_output(channel.matrix, record, other)))
    record, other, report = np.array(worst).T
    return record, other, report


def guaranteed_level(group_budgets, distance_sets, p=2):
    """Return the least budget of the record that group budgets keep, whatever the mechanisms.

    Parameters
    ----------
    group_budgets : array_like, shape (groups,)
        The privacy level ε_k ≥ 0 of each group's channel for its own metric.
    distance_sets : sequence of array_like
        For each group, the distances that occur between its states; shapes and repetitions do not
        matter, and zero and infinity are ignored.
    p : float, optional
        Exponent of the product metric, in [1, ∞].

    Returns
    -------
    level : float
        max over t of Σ_k ε_k t_k / ‖t‖_p, t_k among the distances of group k and zero: the exact
        budget rule. At most ``compose_budget(group_budgets, p)``, and attained by some mechanisms.
    face : ndarray, shape (groups,)
        The maximiser t / ‖t‖_p; zero if no distance occurs or all budgets are zero.

    Raises
    ------
    InvalidBudget
        If a budget or p is out of range, or there is not one set of distances a budget.
    InvalidMetric
        If a distance is negative or NaN.

    Notes
    -----
    The level of a product, with ρ_k(t) = ε_k t; see :func:`product_privacy_level`.
    """
    compose_budget(group_budgets, p)  # checks both
    budgets, p = np.asarray(group_budgets, dtype=float), float(p)
    if len(distance_sets) != len(budgets):
        raise InvalidBudget(
            f"there are {len(budgets)} budgets but {len(distance_sets)} sets of distances"
        )
    spending, frontiers = [], []
    for group, (budget, distances) in enumerate(zip(budgets, distance_sets, strict=True)):
        occurring = np.unique(np.append(0.0, np.asarray(distances, dtype=float)))
        if not occurring[0] >= 0 or np.isnan(occurring[-1]):
            raise InvalidMetric(f"group {group} has a negative distance or NaN")
        occurring = occurring[np.isfinite(occurring)]
        if budget > 0 and len(occurring) > 1:
            spending.append(group)
            frontiers.append((occurring, budget * occurring, np.arange(len(occurring))))
    face = np.zeros(len(budgets))
    if not spending:
        return 0.0, face
    level, chosen = _worst(frontiers, p, np.zeros(len(frontiers)))
    face[spending] = [points[0][i] for points, i in zip(frontiers, chosen, strict=True)]
    return level, face / np.linalg.norm(face, p)


def _checked_frontiers(channels, p, weights):
    p = check_exponent(p)
    if not channels:
        raise InvalidBudget("a product needs at least one channel")
    weights = check_weights(weights, len(channels))
    return [_frontier(channel) for channel in channels], p, np.log(weights)


def _frontier(channel):
    """Distances, log ratios that no closer pair matches, and pairs of states that attain them.

    Distances and ratios both increase strictly, from 0; a pair (x, x') is the number n x + x'.
    """
    n = channel.states
    x, z = np.triu_indices(n, k=1)
    ratios = log_ratios(channel.matrix)
    pairs = np.where(ratios[x, z] >= ratios[z, x], n * x + z, n * z + x)
    ratios, distances = ratios.ravel()[pairs], channel.distances.ravel()[pairs]
    order = np.argsort(distances)
    order = order[np.isfinite(distances[order])]
    records = np.maximum.accumulate(np.append(0.0, ratios[order]))
    order = order[records[1:] > records[:-1]]
    # Among records at one distance only the last, the largest, is on the frontier.
    order = order[np.diff(distances[order], append=np.inf) > 0]
    distances, ratios = np.append(0.0, distances[order]), np.append(0.0, ratios[order])
    if len(distances) > 1 and distances[1] == 0:
        ratios[1:] = np.inf
    return distances, ratios, np.append(0, pairs[order])  # pair 0 is (0, 0)


def _worst(frontiers, p, log_weights):
    """Return the level of the product, and the point of each frontier where it is attained."""
    for group, (_, ratios, _) in enumerate(frontiers):
        if np.isinf(ratios[-1]):
            chosen = [0] * len(frontiers)
            chosen[group] = int(np.argmax(ratios))
            return math.inf, chosen
    return _worst_maximum(frontiers) if math.isinf(p) else _worst_sum(frontiers, p, log_weights)


def _worst_maximum(frontiers):
    thresholds = np.unique(np.concatenate([distances for distances, _, _ in frontiers]))
    chosen = [
        np.searchsorted(distances, thresholds, side="right") - 1 for distances, _, _ in frontiers
    ]
    total = sum(ratios[points] for (_, ratios, _), points in zip(frontiers, chosen, strict=True))
    if len(thresholds) == 1:
        return 0.0, [0] * len(frontiers)
    worst = 1 + int(np.argmax(total[1:] / thresholds[1:]))
    return float(total[worst] / thresholds[worst]), [int(points[worst]) for points in chosen]


def _worst_sum(frontiers, p, log_weights):
    edges = []
    for group, (distances, ratios, _) in enumerate(frontiers):
        with np.errstate(divide="ignore"):
            logs = p * np.log(distances) + log_weights[group]
        hull = _hull(logs, ratios)
        edges += [
            (_log_slope(logs, ratios, start, stop), group, stop) for start, stop in pairwise(hull)
        ]
    edges.sort(key=lambda edge: (-edge[0], edge[1], edge[2]))
    current = [0] * len(frontiers)
    level, chosen = 0.0, list(current)
    for _, group, stop in edges:
        current[group] = stop
        distances = np.array([f[0][i] for f, i in zip(frontiers, current, strict=True)])
        ratio = float(sum(f[1][i] for f, i in zip(frontiers, current, strict=True)))
        attained = float(ratio / _norm(distances, p, log_weights))
        if attained > level:
            level, chosen = attained, list(current)
    return level, chosen


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
    if logs[stop] == logs[start]:  # distances that differ by rounding only
        return math.inf
    span = logs[stop] + math.log(-math.expm1(logs[start] - logs[stop]))
    return math.log(ratios[stop] - ratios[start]) - span


def _norm(distances, p, log_weights):
    largest = distances.max()
    terms = np.exp(log_weights) * (distances / largest) ** p
    return largest * terms.sum() ** (1 / p)
