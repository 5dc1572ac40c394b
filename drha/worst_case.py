"""Worst heterogeneous cells, bounds that hold for every cell, and where the printed one fails."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq

from drha.conventions import RoundAndClip
from drha.errors import DrhaError, InvalidCounts
from drha.noise import CountNoise, Geometric, Laplace
from drha.risk import check_cell_sizes, check_noise, local_risk, scenario_8_expression

SEARCH_LIMIT = 20_000_000  # partial cells visited before the search for a worst one gives up

KINDS = ("exact", "refined")


def worst_case_risk(n, levels: int, noise: CountNoise, kind: str = "exact"):
    """Largest local risk of all heterogeneous cells of a given size.

    Parameters
    ----------
    n : array_like of int
        Cell sizes, at least 2.
    levels : int
        Number K of sensitive levels, at least 2.
    noise : CountNoise
        A mechanism whose vanishing function does not increase.
    kind : {"exact", "refined"}
        Of which :func:`drha.local_risk`.

    Returns
    -------
    ndarray of float
        Same shape as ``n``: the local risk of :func:`worst_cell`.

    Raises
    ------
    InvalidCounts
        If a size is below 2 or not whole, ``levels`` is below 2, or the search takes too long.
    InvalidNoise
        If ``noise`` is not a count mechanism.
    DrhaError
        If ``kind`` is unknown.

    Examples
    --------
    >>> import drha
    >>> drha.worst_case_risk([3, 10], 3, drha.laplace(0.1)).round(4)
    array([0.3559, 0.2906])
    """
    return local_risk(worst_cell(n, levels, noise, kind), noise, kind)


def worst_cell(n, levels: int, noise: CountNoise, kind: str = "exact") -> np.ndarray:
    """Heterogeneous cell of a given size with the largest local risk.

    Parameters
    ----------
    n : array_like of int
        Cell sizes, at least 2.
    levels : int
        Number K of sensitive levels, at least 2.
    noise : CountNoise
        A mechanism whose vanishing function does not increase.
    kind : {"exact", "refined"}
        Of which :func:`drha.local_risk`.

    Returns
    -------
    ndarray of int, shape (*n.shape, levels)
        Counts in descending order.

    Raises
    ------
    InvalidCounts, InvalidNoise, DrhaError
        As :func:`worst_case_risk`.

    Notes
    -----
    For Laplace and geometric noise, rounded and clipped, the exact risk of a cell with m present
    levels is largest at (n - m + 1, 1, ..., 1), and that maximum is convex in m: the worst cell
    has m = 2 or m = min(n, K), so two cells are compared. The refined risk is always largest at
    (n - 1, 1). For any other mechanism all partitions of n into at most K parts are searched,
    leaving out those whose beginning already bounds the risk below the best cell found.
    """
    sizes = check_cell_sizes(n, levels, least=2)
    check_noise(noise)
    if kind not in KINDS:
        raise DrhaError(f"kind {kind!r} is unknown; choose one of {KINDS}")
    distinct, back = np.unique(sizes, return_inverse=True)
    cells = np.array([_worst_of_size(int(size), levels, noise, kind) for size in distinct])
    return cells.reshape(-1, levels)[back.reshape(sizes.shape)]


def risk_bound(n, levels: int, noise: CountNoise, kind: str = "exact"):
    """Bound on the local risk of every heterogeneous cell, for any mechanism, in closed form.

    Parameters
    ----------
    n : array_like of int
        Cell sizes, at least 2.
    levels : int
        Number K of sensitive levels, at least 2.
    noise : CountNoise
        A mechanism whose vanishing function does not increase.
    kind : {"exact", "refined"}
        Of which :func:`drha.local_risk`.

    Returns
    -------
    ndarray of float
        Same shape as ``n``.

    Raises
    ------
    InvalidCounts, InvalidNoise, DrhaError
        As :func:`worst_case_risk`, except that nothing is searched.

    Notes
    -----
    With z = u(0) and v = u(1), the exact risk of m present levels is affine in each u(n_k), which
    lies in [0, v], so it is at most its value at a corner: m z^(K-m) (1 - v) v^(m-1) where no
    u(n_k) is 0, z^(K-m) v^(m-1) where one is. The bound is the largest for 2 <= m <= min(n, K); it
    is attained at (1, ..., 1) when v <= 1/2. The refined risk is at most z^(K-2) v s(n - 1).
    """
    sizes = check_cell_sizes(n, levels, least=2)
    check_noise(noise)
    if kind not in KINDS:
        raise DrhaError(f"kind {kind!r} is unknown; choose one of {KINDS}")
    z, v = noise.vanishing(0), noise.vanishing(1)
    if kind == "refined":
        return z ** (levels - 2) * v * noise.survival(sizes - 1)
    m = np.arange(2, levels + 1)
    corners = np.maximum(m * noise.survival(1), 1.0) * z ** (levels - m) * v ** (m - 1.0)
    return np.maximum.accumulate(corners)[np.minimum(sizes, levels) - 2]


def printed_bound_threshold(
    n: int, levels: int, mechanism: Callable[[float], CountNoise], bracket: tuple[float, float]
) -> float:
    """Parameter at which the printed bound of Scenario 8 starts to fail for cells of one size.

    Parameters
    ----------
    n : int
        Cell size, at least 3.
    levels : int
        Number K of sensitive levels, at least 3.
    mechanism : callable
        Maps the parameter to a noise, e.g. ``drha.laplace`` for epsilon, or
        ``lambda sigma: drha.gaussian(sigma=sigma)`` for the standard deviation.
    bracket : (float, float)
        Two positive parameters: the bound fails for some cell at one of them only.

    Returns
    -------
    float
        Where the largest exact risk of all heterogeneous cells other than (n - 1, 1, 0, ..., 0)
        equals that cell's, which is what :func:`scenario_8_expression` computes.

    Raises
    ------
    DrhaError
        If the printed bound fails at both ends of the bracket, or at neither.
    InvalidCounts
        If ``n`` or ``levels`` is below 3, or the search takes too long.

    Examples
    --------
    >>> import drha
    >>> round(drha.printed_bound_threshold(3, 3, drha.laplace, (0.01, 2.0)), 9)
    0.550990194
    """
    check_cell_sizes(n, levels, least=3)

    def excess(log_parameter: float) -> float:
        noise = mechanism(float(np.exp(log_parameter)))
        bound = scenario_8_expression(n, levels, noise)
        return float(local_risk(_rival(n, levels, noise), noise) / bound - 1.0)

    low, high = np.log(bracket)
    at_low, at_high = excess(low), excess(high)
    if (at_low > 0) == (at_high > 0):
        what = "fails at both ends" if at_low > 0 else "holds at both ends"
        raise DrhaError(
            f"the printed bound {what} of the bracket {bracket} for n = {n} and {levels} levels; "
            "choose a bracket with one end on either side of the threshold"
        )
    return float(np.exp(brentq(excess, low, high, xtol=1e-14, rtol=1e-14)))


def _has_ends(noise: CountNoise) -> bool:
    """Whether the worst cell is one with the fewest or the most levels: proved for these."""
    return isinstance(noise, (Laplace, Geometric)) and noise.convention == RoundAndClip()


def _extreme(n: int, m: int, levels: int) -> np.ndarray:
    """Return counts (n - m + 1, 1, ..., 1, 0, ..., 0) with m present levels."""
    counts = np.zeros(levels, dtype=np.int64)
    counts[:m] = 1
    counts[0] = n - m + 1
    return counts


def _balanced(n: int, m: int, levels: int) -> np.ndarray:
    """Return counts that differ by at most one, with m present levels."""
    counts = np.zeros(levels, dtype=np.int64)
    counts[:m] = n // m
    counts[: n % m] += 1
    return counts


def _worst_of_size(n: int, levels: int, noise: CountNoise, kind: str) -> np.ndarray:
    two, most = (_extreme(n, m, levels) for m in (2, min(n, levels)))
    if not _has_ends(noise):
        return _search(n, levels, noise, kind, n - 1)
    if kind == "refined":
        return two
    return max((two, most), key=lambda cell: local_risk(cell, noise))


def _rival(n: int, levels: int, noise: CountNoise) -> np.ndarray:
    """Worst heterogeneous cell other than (n - 1, 1)."""
    if _has_ends(noise):  # the worst for m >= 3 present levels where it can exceed m = 2
        return _extreme(n, min(n, levels), levels)
    return _search(n, levels, noise, "exact", n - 2)


def _search(n: int, levels: int, noise: CountNoise, kind: str, largest: int) -> np.ndarray:
    """Worst of all cells of size n with no count above ``largest``."""
    from drha.kernels import search_partitions

    most = min(n, levels)
    starts = [_balanced(n, most, levels)]
    starts += [_extreme(n, m, levels) for m in (2, most) if n - m + 1 <= largest]
    best = max(starts, key=lambda cell: local_risk(cell, noise, kind))
    c = np.arange(n + 1)
    vanish, survive = noise.vanishing(c), noise.survival(c)
    weight = survive * c / n if kind == "refined" else survive * (c > 0)
    found = local_risk(best, noise, kind)
    found, visited = search_partitions(
        n, largest, vanish, weight, kind == "refined", found, best, SEARCH_LIMIT
    )
    if visited > SEARCH_LIMIT:
        raise InvalidCounts(
            f"there are too many cells of {n} records in {levels} levels to find the worst one for "
            f"{noise!r}; use drha.risk_bound, or Laplace or geometric noise"
        )
    return best
