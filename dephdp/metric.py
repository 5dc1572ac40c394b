"""Distances between states: component metrics, their weighted ℓp product, and the axioms."""

from collections.abc import Mapping
from functools import reduce

import numba
import numpy as np

from dephdp.errors import InvalidMetric
from dephdp.validation import check_exponent

RELATIVE_TOLERANCE = 1e-12
"""Relative rounding that the symmetry and triangle checks allow."""


def component_distances(attribute):
    """Return the distances between the levels of one attribute.

    Parameters
    ----------
    attribute : dephdp.Attribute
        An attribute with m levels.

    Returns
    -------
    ndarray, shape (m, m)
        Values in [0, 1]. Nominal: 1 for different levels. Ordinal: |rank difference| / (m - 1).
        Numeric: |u - v| / (b - a) with u, v the representatives of the levels (bin midpoints or
        declared values) and [a, b] the declared range.
    """
    if attribute.kind == "nominal":
        return 1.0 - np.eye(attribute.size)
    if attribute.kind == "ordinal":
        positions, span = np.arange(attribute.size, dtype=float), max(attribute.size - 1, 1)
    else:
        low, high = attribute.range
        positions, span = np.asarray(attribute.levels, dtype=float), high - low
    return np.abs(positions[:, None] - positions[None, :]) / span


def combine_distances(parts, p=2, weights=None):
    """Return the weighted ℓp metric on a product of state spaces.

    Parameters
    ----------
    parts : sequence of array_like, shapes (n_k, n_k)
        Distances of each factor.
    p : float, optional
        Exponent in [1, ∞].
    weights : sequence of float, optional
        One finite positive weight a factor; one by default.

    Returns
    -------
    ndarray, shape (n, n)
        n = Π n_k, states in row-major order (the last factor varies fastest).

    Raises
    ------
    InvalidMetric, InvalidBudget
        For a part that is no distance matrix, bad weights, or p below one.

    Notes
    -----
    d(x, x') = (Σ_k w_k d_k(x_k, x'_k)^p)^(1/p); for p = ∞ it is max_k d_k, the limit, in which the
    weights vanish. Distances are scaled by the largest component first, so no p overflows.
    """
    p = check_exponent(p)
    parts = [check_distances(part) for part in parts]
    if not parts:
        raise InvalidMetric("a product metric needs at least one component")
    weights = check_weights(weights, len(parts))
    sizes = [len(part) for part in parts]
    return _flatten(
        _lp([_spread(part, k, sizes) for k, part in enumerate(parts)], p, weights), sizes
    )


def distance_matrix(domain, attributes, p=2, weights=None, *, codes=None):
    """Return the distances between the states of a group of attributes.

    Parameters
    ----------
    domain : dephdp.Domain
        Where the attributes are declared.
    attributes : sequence of str
        The group.
    p : float, optional
        Exponent in [1, ∞].
    weights : mapping or sequence of float, optional
        Positive weight of each attribute of the group, by name or in the group's order; one by
        default. They vanish for p = ∞.
    codes : array_like of int, shape (n, attributes of the group), optional
        The states wanted, one row of level codes each; all states by default.

    Returns
    -------
    ndarray, shape (n, n)
        In the order of ``codes``, or of all states as ``domain.ravel`` numbers them.

    Raises
    ------
    InvalidDomain
        If an attribute is not declared or named twice, or a code is outside its levels.
    InvalidMetric, InvalidBudget
        For bad weights, or p below one.

    See Also
    --------
    combine_distances : the formula.
    """
    group = domain.group(attributes)
    if isinstance(weights, Mapping):
        names = [attribute.name for attribute in group]
        if set(weights) != set(names):
            raise InvalidMetric(f"weights name {sorted(weights)}, the group is {names}")
        weights = [weights[name] for name in names]
    components = [component_distances(attribute) for attribute in group]
    if codes is None:
        return combine_distances(components, p, weights)
    levels = domain.check_codes(codes, attributes).T
    parts = [part[column[:, None], column] for part, column in zip(components, levels, strict=True)]
    return _lp(parts, check_exponent(p), check_weights(weights, len(parts)))


def check_distances(distances, states=None):
    """Return a matrix of distances, checked for everything except the triangle inequality.

    Parameters
    ----------
    distances : array_like, shape (n, n)
        Nonnegative, symmetric, zero on the diagonal. Infinite distances are allowed (no privacy
        is asked between such states), and so are zeros off the diagonal (states that must not be
        told apart).
    states : int, optional
        The expected n.

    Returns
    -------
    ndarray, shape (n, n)

    Raises
    ------
    InvalidMetric
        Naming the first offending pair of states.
    """
    try:
        distances = np.asarray(distances, dtype=float)
    except (TypeError, ValueError):
        raise InvalidMetric("distances must be an array of numbers") from None
    if distances.ndim != 2 or distances.shape[0] != distances.shape[1] or not distances.size:
        raise InvalidMetric(f"distances must be a square matrix, got shape {distances.shape}")
    if states is not None and len(distances) != states:
        raise InvalidMetric(f"distances are for {len(distances)} states, expected {states}")
    _refuse(~(distances >= 0), distances, "distances must be nonnegative numbers")
    _refuse(np.diag(np.diag(distances) != 0), distances, "a state is at distance zero from itself")
    # An infinite distance must face an infinite one; inf - inf is not asked for.
    differ = distances != distances.T
    if differ.any():
        low, high = np.minimum(distances, distances.T), np.maximum(distances, distances.T)
        _refuse(
            differ & ~(high <= low * (1 + RELATIVE_TOLERANCE)),
            distances,
            "distances must be symmetric, but the reverse distance differs",
        )
    return distances


def check_metric(distances):
    """Return a matrix of distances that is an extended pseudo-metric.

    Parameters
    ----------
    distances : array_like, shape (n, n)
        Nonnegative, symmetric, zero on the diagonal, and d(x, z) ≤ d(x, y) + d(y, z) up to a
        relative 1e-12. Infinite distances and zeros off the diagonal are allowed.

    Returns
    -------
    ndarray, shape (n, n)

    Raises
    ------
    InvalidMetric
        Naming the states that break an axiom.

    Notes
    -----
    O(n³) time, O(n²) memory.
    """
    distances = check_distances(distances)
    x, z, middle = _first_detour(distances, 1 + RELATIVE_TOLERANCE)
    if x >= 0:
        raise InvalidMetric(
            f"the triangle inequality fails: d({x}, {z}) = {distances[x, z]!r} exceeds "
            f"d({x}, {middle}) + d({middle}, {z}) = {distances[x, middle] + distances[middle, z]!r}"
            "; shortest_path_closure gives the largest metric below these distances"
        )
    return distances


def shortest_path_closure(distances):
    """Return the largest metric that nowhere exceeds the given distances.

    Parameters
    ----------
    distances : array_like, shape (n, n)
        Distances that may break the triangle inequality.

    Returns
    -------
    ndarray, shape (n, n)
        Lengths of shortest paths.

    Notes
    -----
    Nothing is lost: chaining the constraints along a path shows that a channel is (ε, d)-private
    for the given distances exactly if it is for their closure. Floyd-Warshall, O(n³) time.
    """
    closed = check_distances(distances).copy()
    _relax(closed)
    return closed


def check_weights(weights, count):
    """Return finite positive weights, one for each of ``count`` components (one by default)."""
    if weights is None:
        return np.ones(count)
    weights = np.asarray(weights, dtype=float)
    if weights.shape != (count,):
        raise InvalidMetric(f"{count} weights are needed, got an array of shape {weights.shape}")
    bad = np.flatnonzero(~((weights > 0) & np.isfinite(weights)))
    if bad.size:
        raise InvalidMetric(
            f"weight {bad[0]} is {weights[bad[0]]!r}: weights must be finite and positive"
        )
    return weights


def _lp(parts, p, weights):
    """Weighted ℓp norm of the parts, which broadcast against one another."""
    largest = reduce(np.maximum, parts, 0.0)
    if np.isinf(p):
        return largest
    scale = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    total = np.zeros(largest.shape)
    for weight, part in zip(weights, parts, strict=True):
        total += weight * (part / scale) ** p
    total **= 1 / p
    total *= scale
    return total


def _spread(part, position, sizes):
    """Lay a component out along its two axes of the (x_1, ..., x_K, x'_1, ..., x'_K) array."""
    shape = np.ones(2 * len(sizes), dtype=int)
    shape[[position, position + len(sizes)]] = len(part)
    return part.reshape(shape)


def _flatten(array, sizes):
    states = int(np.prod(sizes))
    return np.ascontiguousarray(array).reshape(states, states)


def _refuse(bad, distances, message):
    if bad.any():
        x, z = np.argwhere(bad)[0]
        raise InvalidMetric(f"{message}: d({x}, {z}) = {distances[x, z]!r}")


@numba.njit(cache=True)
def _first_detour(distances, slack):
    n = len(distances)
    for x in range(n):
        for z in range(x + 1, n):
            shortest = np.inf
            for y in range(n):
                shortest = min(shortest, distances[x, y] + distances[z, y])
            if distances[x, z] > shortest * slack:
                for y in range(n):
                    if distances[x, z] > (distances[x, y] + distances[z, y]) * slack:
                        return x, z, y
    return -1, -1, -1


@numba.njit(cache=True)
def _relax(distances):
    n = len(distances)
    for middle in range(n):
        for x in range(n):
            first = distances[x, middle]
            if np.isfinite(first):
                for z in range(n):
                    distances[x, z] = min(distances[x, z], first + distances[middle, z])
