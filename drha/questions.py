"""Better questions than that of the homogeneity attack.

The disclosure risk asks how often exactly one level of a cell is released positive and it is a
true one. At the strongest noise this happens by coin tossing, so the risk has a floor which says
nothing about anybody. Two corrections have none: the probability that the attacker is right given
that she sees one level, and her successes in excess of guessing. An attacker need not wait for a
homogeneous release either: she can always guess the largest count.
"""

from __future__ import annotations

import numpy as np

from drha.conventions import Clip, SignedRounding
from drha.counts import check_cells, map_cells, tabulate
from drha.errors import DrhaError, InvalidNoise
from drha.noise import CountNoise
from drha.risk import check_noise, local_risk

NEGLIGIBLE = 1e-18  # probability that the arg-max sums leave out
MAX_TERMS = 1 << 20  # of one such sum
BLOCK = 1 << 14  # terms of several sums handled at once


def positive_predictive_value(counts, noise: CountNoise, kind: str = "refined"):
    """Probability that the attacker is right, given that exactly one level is released positive.

    Parameters
    ----------
    counts : array_like of int, shape (cells, levels) or (levels,), or FrequencyTable
        Records per cell and sensitive level. A cell without records has value 0.
    noise : CountNoise
        Noise and convention, e.g. ``drha.laplace(1.0)``.
    kind : {"refined", "exact"}
        ``"refined"``: the level is that of a random record of the cell; ``"exact"``: it is that
        of some record.

    Returns
    -------
    ndarray of float, shape (cells,)
        A scalar for counts of shape (levels,).

    Raises
    ------
    InvalidCounts
        If a count is not whole and non-negative.
    InvalidNoise
        If ``noise`` is not a count mechanism, or its convention has no vanishing function.
    DrhaError
        If ``kind`` is unknown.

    Notes
    -----
    Given that one level alone survives, it is level k with probability proportional to the odds
    of its survival, s(n_k) / u(n_k); the value is the sum over k of these probabilities times
    n_k / n, or times 1 where n_k > 0. As epsilon tends to 0 the odds become equal and the refined
    value tends to 1 / K in every cell. A homogeneous cell of size n has the value
    (1 - v)(1 - w) / [(1 - v)(1 - w) + (K - 1) v w] with 1 - v = u(0) and w = u(n). Computed from
    logarithms, so it is defined where both events underflow.

    Examples
    --------
    >>> import drha
    >>> drha.positive_predictive_value([[3, 0], [2, 1]], drha.laplace(1.0)).round(4)
    array([0.9817, 0.592 ])
    """
    _check_kind(kind)
    check_noise(noise)
    cells = check_cells(counts)
    logit = tabulate(lambda c: noise.log_survival(c) - noise.log_vanishing(c), cells)

    def rule(levels: np.ndarray) -> np.ndarray:
        odds = np.array([logit(count) for count in levels])
        odds = np.exp(odds - odds.max(axis=0))
        weight = levels > 0 if kind == "exact" else levels / np.maximum(levels.sum(axis=0), 1)
        return (weight * odds).sum(axis=0) / odds.sum(axis=0)

    return map_cells(rule, cells)


def excess_risk(counts, noise: CountNoise):
    """Refined risk minus what blind guessing would earn: right less wrong over K - 1.

    Parameters
    ----------
    counts : array_like of int, shape (cells, levels) or (levels,), or FrequencyTable
        Records per cell and sensitive level. A cell without records has excess 0.
    noise : CountNoise
        Noise and convention, e.g. ``drha.laplace(1.0)``.

    Returns
    -------
    ndarray of float, shape (cells,)
        Pr(right) - Pr(wrong) / (K - 1) for a random record of the cell, where the attacker speaks
        when exactly one level is released positive; 0 for K = 1, where there is nothing to guess.
        A scalar for counts of shape (levels,).

    Raises
    ------
    InvalidCounts
        If a count is not whole and non-negative.
    InvalidNoise
        If ``noise`` is not a count mechanism, or its convention has no vanishing function.

    Notes
    -----
    When the release does not depend on the data, each level is the shown one equally often, and
    the excess is 0: it has no floor. A homogeneous cell of size n has the excess
    u(0)^(K - 2) [s(n) - s(0)]. In a heterogeneous cell it can be negative, because rare levels
    are shown too.

    Examples
    --------
    >>> import drha
    >>> drha.excess_risk([[3, 0], [2, 1]], drha.laplace(1.0)).round(4)
    array([0.6557, 0.0639])
    """
    check_noise(noise)
    cells = check_cells(counts)
    levels = cells.shape[-1]
    right = local_risk(cells, noise, kind="refined")
    if levels == 1:
        return 0.0 * right
    wrong = map_cells(_sole_survivor(cells, noise), cells) - right
    return right - wrong / (levels - 1)


def _sole_survivor(cells: np.ndarray, noise: CountNoise):
    """Probability that exactly one level survives, of cells with records."""
    vanishing, survival = tabulate(noise.vanishing, cells), tabulate(noise.survival, cells)

    def rule(levels: np.ndarray) -> np.ndarray:
        none, one = np.ones(levels.shape[1]), np.zeros(levels.shape[1])
        for count in levels:
            one = one * vanishing(count) + none * survival(count)
            none = none * vanishing(count)
        return np.where(levels.any(axis=0), one, 0.0)

    return rule


def argmax_risk(counts, noise: CountNoise, *, seen: str = "released"):
    """Probability that guessing the level with the largest count is right, for a random record.

    Parameters
    ----------
    counts : array_like of int, shape (cells, levels) or (levels,), or FrequencyTable
        Records per cell and sensitive level. A cell without records has risk 0.
    noise : CountNoise
        Noise and convention, e.g. ``drha.laplace(1.0)``.
    seen : {"released", "noisy"}
        Whether the attacker sees the released counts or, before any convention, the noisy ones.

    Returns
    -------
    ndarray of float, shape (cells,)
        Expected share of the records of the cell whose level has the largest count; among equal
        counts the attacker tosses a fair coin. A scalar for counts of shape (levels,).

    Raises
    ------
    InvalidCounts
        If a count is not whole and non-negative.
    InvalidNoise
        If ``noise`` is not a count mechanism, its convention treats counts jointly, or the noise
        is so wide that a sum would have more than 2^20 terms.
    DrhaError
        If ``seen`` is unknown.

    Notes
    -----
    With p_j(x) and G_j(x) the probabilities that level j is released as x and as at most x,
    level k is guessed with probability

        sum over x of  p_k(x)  integral over t in [0, 1] of
            product over j != k of [G_j(x - 1) + t p_j(x)],

    since 1 / (1 + number of ties) is the integral of t^ties; the integrand is a polynomial, so
    Gauss-Legendre with K / 2 nodes is exact. For continuous counts it is the integral of
    f_k(x) product F_j(x), by Gauss-Legendre between the kinks of the distribution functions.
    What is left out has probability below 1e-17.

    Two levels, a homogeneous cell of size n, Laplace noise seen before any convention:
    1 - (1/2 + n epsilon / 4) exp(-n epsilon). It exceeds the disclosure risk, which is therefore
    no upper bound of what an attacker can infer.

    Examples
    --------
    >>> import drha
    >>> noise = drha.laplace(1.0)
    >>> float(drha.argmax_risk([4, 0], noise, seen="noisy").round(4))
    0.9725
    >>> float(drha.local_risk([4, 0], noise).round(4))
    0.6862
    """
    if seen not in ("released", "noisy"):
        raise DrhaError(f"seen {seen!r} is unknown; choose one of ['released', 'noisy']")
    check_noise(noise)
    cells = check_cells(counts)
    if seen == "noisy":
        noise = noise.with_convention(SignedRounding() if noise.lattice else Clip())
    elif noise.convention.axes:
        raise InvalidNoise(
            f"{type(noise.convention).__name__} treats the counts of a cell together, so their "
            "order has no closed form; use drha.simulated_risk with kind='largest'"
        )
    fractional = isinstance(noise.convention, Clip) and not noise.lattice
    reach = noise.upper_quantile(NEGLIGIBLE)
    if not fractional and 2.0 * reach > MAX_TERMS:
        raise InvalidNoise(
            f"noise of scale {noise.scale:.3g} spreads a released count over {2 * reach:.1e} "
            "values; use seen='noisy' with continuous noise, which integrates instead"
        )
    rows, where = np.unique(
        np.sort(cells.reshape(-1, cells.shape[-1]), axis=1), axis=0, return_inverse=True
    )
    if fractional:
        values = [_largest_fraction(row, noise, reach, clipped=seen == "released") for row in rows]
    else:
        at_once = max(1, BLOCK // (2 * int(reach) + 4))
        starts = range(0, len(rows), at_once)
        blocks = [_largest_whole(rows[i : i + at_once], noise, int(reach)) for i in starts]
        values = np.concatenate([np.zeros(0), *blocks])
    return np.array(values, dtype=float)[where.ravel()].reshape(cells.shape[:-1])[()]


def _largest_whole(rows: np.ndarray, noise: CountNoise, reach: int) -> np.ndarray:
    """Share of each row's records with the largest count, where whole numbers are released.

    The largest noisy count is hardly ever further than ``reach`` from the largest true one.
    """
    values = rows[:, -1:] + np.arange(-reach - 1, reach + 2)
    if isinstance(noise.convention, SignedRounding):
        edges = values + 0.5
    else:
        values = np.maximum(np.insert(values, 0, 0, axis=1), 0)  # a value twice has no mass
        edges = noise.convention.edge(noise, values)
    nodes, weights = np.polynomial.legendre.leggauss((rows.shape[1] + 1) // 2)
    levels = []
    for count in rows.T:
        at_most = noise.cdf(edges - count[:, None])
        below = np.insert(at_most[:, :-1], 0, 0.0, axis=1)
        levels.append((count[:, None], below, at_most - below))
    right = np.zeros(edges.shape)
    for node, weight in zip(0.5 * (nodes + 1.0), 0.5 * weights, strict=True):
        right += weight * _winning((n, mass, below + node * mass) for n, below, mass in levels)
    return right.sum(axis=1) / np.maximum(rows.sum(axis=1), 1)


def _largest_fraction(row: np.ndarray, noise: CountNoise, reach: float, *, clipped: bool) -> float:
    """Share of the records with the largest count, where fractions are released."""
    if not row.any():
        return 0.0
    start = max(0.0, row[-1] - reach) if clipped else row[-1] - reach
    kinks = np.unique(np.clip(row, start, None))
    steps = np.geomspace(1e-3, 1.0, 12) * reach  # panels grow away from the kinks
    points = np.concatenate([kinks, *(kinks + sign * step for step in steps for sign in (-1, 1))])
    points = points[(points > start) & (points < row[-1] + reach)]
    points = np.unique(np.append(points, (start, row[-1] + reach)))
    nodes, weights = np.polynomial.legendre.leggauss(16)
    half = 0.5 * np.diff(points)[:, None]
    x = points[:-1, None] + half * (nodes + 1.0)
    right = _winning((n, noise.density(x - n), noise.cdf(x - n)) for n in row)
    share = float((half * weights * right).sum()) / float(row.sum())
    if clipped:  # nothing positive: a coin with K faces
        share += float(noise.cdf(-row).prod()) / len(row)
    return share


def _winning(levels) -> np.ndarray:
    """Sum over k of n_k p_k times the product of G_j over j != k, from triples (n_k, p_k, G_k)."""
    none, one = 1.0, 0.0
    for n, mass, below in levels:
        one = one * below + none * (n * mass)
        none = none * below
    return one


def _check_kind(kind: str) -> None:
    if kind not in ("refined", "exact"):
        raise DrhaError(f"kind {kind!r} is unknown; choose one of ['exact', 'refined']")
