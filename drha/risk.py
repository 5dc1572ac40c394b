"""Local disclosure risk of a cell: exact, refined, and as bounded in print."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from drha.counts import check_cells, check_counts, map_cells, tabulate
from drha.errors import DrhaError, InvalidCounts, InvalidNoise
from drha.noise import CountNoise


def local_risk(counts, noise: CountNoise, kind: str = "exact"):
    """Disclosure risk from homogeneity attack of each cell, given its true counts.

    Parameters
    ----------
    counts : array_like of int, shape (cells, levels) or (levels,), or FrequencyTable
        Records per cell and sensitive level. A cell without records has risk 0: nobody is in it.
    noise : CountNoise
        The mechanism that sanitises every count, e.g. ``drha.laplace(1.0)``.
    kind : {"exact", "refined", "paper_bound"}
        ``"exact"``: probability that one level alone survives and it is a true one;
        ``"refined"``: expected share of the cell's records whose value is disclosed so;
        ``"paper_bound"``: the expression printed as a bound of the exact risk, which it is not
        for small epsilon (see Notes).

    Returns
    -------
    ndarray of float, shape (cells,)
        Probabilities; a scalar for counts of shape (levels,).

    Raises
    ------
    InvalidCounts
        If a count is negative, fractional or not finite.
    InvalidNoise
        If ``noise`` is not a count mechanism.
    DrhaError
        If ``kind`` is unknown.

    Notes
    -----
    With u(c) the vanishing function, s = 1 - u, K levels and n records in the cell, independence
    of the noises gives the exact and the refined risk (Liu & Zhao, Definition 6 and Eq. 7)

        T = sum over k with n_k > 0 of         s(n_k) product over j != k of u(n_j),
        R = sum over k              of (n_k/n) s(n_k) product over j != k of u(n_j),

    in O(K) per cell by a recurrence of positive terms over the levels. The printed bound is
    :func:`homogeneous_risk` or :func:`scenario_8_expression`, whichever case the cell is. The
    latter bounds R for every mechanism with non-increasing u, but it does not bound T: for
    counts (1, 1, 1) and Laplace noise T is larger whenever epsilon < 0.55099. What does bound T
    for every cell of a size are :func:`worst_case_risk` and :func:`risk_bound`.

    Examples
    --------
    >>> import drha
    >>> drha.local_risk([[3, 0], [2, 1]], drha.laplace(1.0)).round(4)
    array([0.6681, 0.3472])
    """
    if kind not in _RULES:
        raise DrhaError(f"kind {kind!r} is unknown; choose one of {sorted(_RULES)}")
    check_noise(noise)
    cells = check_cells(counts)
    return map_cells(_RULES[kind](cells, noise), cells)


def homogeneous_risk(n, levels: int, noise: CountNoise):
    """Exact risk of a cell whose n records share one of K levels: A(n) = u(0)^(K-1) s(n).

    Parameters
    ----------
    n : array_like of int
        Cell sizes, at least 1.
    levels : int
        Number K of sensitive levels, at least 1.
    noise : CountNoise

    Returns
    -------
    ndarray of float
        Same shape as ``n`` (Liu & Zhao, Theorem 1, Scenario 1).

    Raises
    ------
    InvalidCounts
        If a size is below 1 or not whole, or ``levels`` is below 1.
    """
    return _homogeneous(check_cell_sizes(n, levels, least=1), levels, noise)


def scenario_8_expression(n, levels: int, noise: CountNoise):
    """Risk of the cell (n - 1, 1, 0, ..., 0), printed as a bound for all heterogeneous cells.

    Parameters
    ----------
    n : array_like of int
        Cell sizes, at least 2.
    levels : int
        Number K of sensitive levels, at least 2.
    noise : CountNoise

    Returns
    -------
    ndarray of float
        B(n) = u(0)^(K-2) [v s(n - 1) + (1 - v) u(n - 1)] with v = u(1), same shape as ``n``
        (Liu & Zhao, Theorem 1, Scenario 8).

    Raises
    ------
    InvalidCounts
        If a size is below 2 or not whole, or ``levels`` is below 2.
    """
    return _scenario_8(check_cell_sizes(n, levels, least=2), levels, noise)


def check_noise(noise) -> None:
    """Raise unless ``noise`` is a count mechanism."""
    if not isinstance(noise, CountNoise):
        raise InvalidNoise(
            f"noise must be a count mechanism such as drha.laplace(1.0), not {noise!r}"
        )


def check_cell_sizes(n, levels: int, least: int) -> np.ndarray:
    """Return cell sizes as integers; raise if they or the number of levels are below ``least``."""
    sizes = check_counts(n)
    if sizes.min(initial=least) < least:
        raise InvalidCounts(f"a cell of size {sizes.min()} was given; sizes start at {least} here")
    if not isinstance(levels, (int, np.integer)) or levels < least:
        raise InvalidCounts(f"levels must be a whole number from {least} on here, not {levels!r}")
    return sizes


def _homogeneous(n: np.ndarray, levels: int, noise: CountNoise):
    return noise.vanishing(0) ** (levels - 1) * noise.survival(n)


def _scenario_8(n: np.ndarray, levels: int, noise: CountNoise):
    majority = n - 1
    minority_vanishes = noise.vanishing(1) * noise.survival(majority)
    majority_vanishes = noise.survival(1) * noise.vanishing(majority)
    return noise.vanishing(0) ** (levels - 2) * (minority_vanishes + majority_vanishes)


# Each rule prepares its look-ups once and returns a function of blocks of shape (levels, cells).

Rule = Callable[[np.ndarray], np.ndarray]


def _sole_survivor(weight, vanishing) -> Rule:
    """Sum over k of weight(n_k) times the product over j != k of vanishing(n_j)."""

    def rule(levels: np.ndarray) -> np.ndarray:
        none = np.ones(levels.shape[1])  # every level so far vanished
        one = np.zeros(levels.shape[1])  # exactly one level so far survived
        for count in levels:
            vanish = vanishing(count)
            one *= vanish
            one += none * weight(count)
            none *= vanish
        return one

    return rule


def _exact(cells: np.ndarray, noise: CountNoise) -> Rule:
    weight = tabulate(lambda c: np.where(c > 0, noise.survival(c), 0.0), cells)
    return _sole_survivor(weight, tabulate(noise.vanishing, cells))


def _refined(cells: np.ndarray, noise: CountNoise) -> Rule:
    weight = tabulate(lambda c: c * noise.survival(c), cells)
    disclosed = _sole_survivor(weight, tabulate(noise.vanishing, cells))
    return lambda levels: disclosed(levels) / np.maximum(levels.sum(axis=0), 1)


def _paper_bound(cells: np.ndarray, noise: CountNoise) -> Rule:
    levels, sizes = cells.shape[-1], cells.sum(axis=-1)
    alone = tabulate(lambda n: _homogeneous(n, levels, noise), sizes)
    mixed = tabulate(lambda n: _scenario_8(np.maximum(n, 2), levels, noise), sizes)

    def rule(block: np.ndarray) -> np.ndarray:
        size, support = block.sum(axis=0), np.count_nonzero(block, axis=0)
        return np.select([support == 1, support > 1], [alone(size), mixed(size)], default=0.0)

    return rule


_RULES = {"exact": _exact, "refined": _refined, "paper_bound": _paper_bound}
