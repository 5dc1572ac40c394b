"""Risk of a cell that has not been drawn yet: expected, shrinkage, marginal, marginal shrinkage.

The four measures average the local risk over what is random in a cell of n records: its counts,
given the probabilities p of the levels (expected); the probabilities too (shrinkage); the size n
too (marginal, and marginal shrinkage). The paper numbers them Definitions 7 to 10.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import betaln, logsumexp, xlogy

from drha import closed_forms
from drha.conventions import RoundAndClip
from drha.counts import check_counts
from drha.errors import DrhaError, InvalidCounts, InvalidModel
from drha.noise import CountNoise, Geometric, Laplace
from drha.risk import check_noise, homogeneous_risk, scenario_8_expression
from drha.sizes import CellSizes, check_sizes

MAX_SIZE = 50_000  # the dynamic programme takes time quadratic in the largest size

SHORT = 1000  # sizes up to here are summed one by one, longer distributions are integrated

KINDS = ("exact", "paper_bound", "refined")


def expected_risk(n, p, noise: CountNoise, kind: str = "exact"):
    """Risk of a cell of n records, averaged over its multinomial counts (Definition 7).

    Parameters
    ----------
    n : array_like of int
        Cell sizes. An empty cell has risk 0.
    p : array_like of float, shape (levels,) or (cells, levels)
        Probabilities of the sensitive levels: one vector for all sizes, or one for each cell, and
        then ``n`` has shape (cells,).
    noise : CountNoise
        The mechanism that sanitises every count, e.g. ``drha.laplace(1.0)``.
    kind : {"exact", "refined", "paper_bound"}
        The average of which :func:`drha.local_risk`. The printed expression is
        h A(n) + (1 - h) B(n) with h the sum of p_k^n (Liu & Zhao, Eq. 14).

    Returns
    -------
    ndarray of float, shape of ``n``

    Raises
    ------
    InvalidCounts
        If a size is negative, fractional, or beyond what the dynamic programme can reach.
    InvalidModel
        If ``p`` holds no probability vectors.
    InvalidNoise
        If ``noise`` is not a count mechanism.
    DrhaError
        If ``kind`` is unknown.

    Notes
    -----
    The levels are added one at a time. Given n records in the first j levels, the j-th holds a
    binomial number c of them, so with g_0 the probability that all levels so far vanish and g_1
    that exactly one survives, a true one,

        g_0(n) <- sum over c of w(c|n) u(c) g_0(n - c),
        g_1(n) <- sum over c of w(c|n) [u(c) g_1(n - c) + 1(c >= 1) s(c) g_0(n - c)].

    That takes O(K n^2) operations and O(n) memory for all sizes up to n at once, and only adds
    and multiplies positive numbers. For the refined risk, (c / n) s(c) takes the place of
    1(c >= 1) s(c). Geometric noise has a closed form in O(K), which is used instead.

    Examples
    --------
    >>> import drha
    >>> drha.expected_risk([1, 3, 20], [0.6, 0.3, 0.1], drha.laplace(1.0)).round(4)
    array([0.3382, 0.2911, 0.0019])
    """
    sizes = _check_sizes_of_cells(n)
    p = check_probabilities(p)
    closed = _is_plain(noise, Geometric)
    rule = _geometric_rule if closed else _multinomial_rule
    return _conditional(sizes, p, noise, kind, rule, _log_multinomial_h, bounded=not closed)


def shrinkage_risk(n, alpha, noise: CountNoise, kind: str = "exact"):
    """Risk of a cell of n records, averaged over Dirichlet-multinomial counts (Definition 8).

    Parameters
    ----------
    n : array_like of int
        Cell sizes. An empty cell has risk 0.
    alpha : array_like of float, shape (levels,) or (cells, levels)
        Parameters of the Dirichlet distribution of the level probabilities; 0 for a level that
        never occurs, whose zero counts are sanitised all the same.
    noise : CountNoise
        The mechanism that sanitises every count.
    kind : {"exact", "refined", "paper_bound"}
        The average of which :func:`drha.local_risk`; printed is h A(n) + (1 - h) B(n) with h the
        probability that all n records share a level (Liu & Zhao, Eq. 15).

    Returns
    -------
    ndarray of float, shape of ``n``

    Raises
    ------
    InvalidCounts, InvalidModel, InvalidNoise, DrhaError
        As :func:`expected_risk`.

    Notes
    -----
    The dynamic programme of :func:`expected_risk` with beta-binomial splits
    BetaBin(n; alpha_j, alpha_1 + ... + alpha_(j-1)).

    Examples
    --------
    >>> import drha
    >>> drha.shrinkage_risk([1, 5], [1.0, 1.0], drha.laplace(1.0)).round(4)
    array([0.4854, 0.3818])
    """
    sizes = _check_sizes_of_cells(n)
    alpha = check_alpha(alpha)
    return _conditional(sizes, alpha, noise, kind, _dirichlet_rule, _log_dirichlet_h)


def marginal_risk(sizes: CellSizes, p, noise: CountNoise, kind: str = "exact", *, zeros="truncate"):
    """Risk of a cell with given level probabilities, averaged over its size (Definition 9).

    Parameters
    ----------
    sizes : CellSizes
        Distribution of the cell sizes, ``drha.poisson(mean)`` or ``drha.negative_binomial(r, q)``.
    p : array_like of float, shape (levels,) or (cells, levels)
        Probabilities of the sensitive levels.
    noise : CountNoise
        The mechanism that sanitises every count.
    kind : {"exact", "refined", "paper_bound"}
        As in :func:`expected_risk` (Liu & Zhao, Eq. 16).
    zeros : {"truncate", "omit", "literal"}
        What becomes of empty cells. ``"truncate"``: the average is over cells with records, the
        probabilities of their sizes adding up to 1. ``"omit"``: the sum over n >= 1 is not divided
        by 1 - Pr(0). ``"literal"``: the printed sum over n >= 0, whose term n = 0 makes no sense
        (see Notes); only for Laplace noise and ``kind="paper_bound"``.

    Returns
    -------
    float, or ndarray of shape (cells,)

    Raises
    ------
    InvalidCounts
        If the sizes reach beyond what the dynamic programme can do.
    InvalidModel
        If ``sizes`` or ``p`` is not a distribution.
    InvalidNoise, DrhaError
        As :func:`expected_risk`; if ``zeros`` is unknown or its literal reading does not exist.

    Notes
    -----
    Sizes up to 1,000 are summed one by one, with the dynamic programme of :func:`expected_risk`;
    what is left out has probability below 1e-18. Longer distributions are mixtures of Poisson
    sizes, under which the counts of the levels are independent, so that the risk is an integral
    over one variable of a product over the levels (:mod:`drha.closed_forms`), computed to rounding
    for any mechanism. Laplace and geometric noise have closed forms there. In the literal
    reading the term of n = 0 has h = sum of p_k^0 = K "probability" of being homogeneous, times
    A(0) = (1 - exp(-epsilon/2)/2)^(K-1) (1 - exp(epsilon/2)/2), which is negative for large
    epsilon: with mean 1/2 and p = (0.7, 0.3) it gives -0.376 at epsilon = 1 instead of 0.494.

    Examples
    --------
    >>> import drha
    >>> sizes, noise = drha.poisson(0.5), drha.laplace(1.0)
    >>> drha.marginal_risk(sizes, [0.7, 0.3], noise, "paper_bound").round(3)
    np.float64(0.494)
    >>> drha.marginal_risk(sizes, [0.7, 0.3], noise, "paper_bound", zeros="literal").round(3)
    np.float64(-0.376)
    """
    p = check_probabilities(p)
    check_sizes(sizes)
    check_noise(noise)
    _check_kind(kind)
    if kind == "paper_bound":
        return _marginal(sizes, p, noise, kind, zeros, _multinomial_rule, _log_multinomial_h)
    scaling = _scaling(zeros, sizes, literal=False)
    if _is_plain(noise, Geometric) and kind == "exact":
        return scaling * closed_forms.geometric_marginal(sizes, p, noise)
    closed = _is_plain(noise, Laplace) and kind == "exact"
    if not closed and sizes.largest() <= SHORT:
        return _marginal(sizes, p, noise, kind, zeros, _multinomial_rule, _log_multinomial_h)
    cells = np.atleast_2d(p)
    distinct, back = np.unique(np.sort(cells, axis=1), axis=0, return_inverse=True)
    if kind == "exact":
        risk = sizes.average(lambda rate: closed_forms.poisson_risk(rate * distinct, noise))
    else:
        risk = sizes.average_per_record(
            lambda rate: closed_forms.poisson_record_risk(rate * distinct, distinct, noise)
        )
    return scaling * risk[back.ravel()].reshape(p.shape[:-1])[()]


def marginal_shrinkage_risk(
    sizes: CellSizes, alpha, noise: CountNoise, kind: str = "exact", *, zeros="truncate"
):
    """Risk of a generic cell, averaged over its size and level probabilities (Definition 10).

    Parameters
    ----------
    sizes : CellSizes
        Distribution of the cell sizes, independent of the probabilities of the levels.
    alpha : array_like of float, shape (levels,) or (cells, levels)
        Parameters of the Dirichlet distribution of the level probabilities; 0 for a level that
        never occurs, whose zero counts are sanitised all the same.
    noise : CountNoise
        The mechanism that sanitises every count.
    kind : {"exact", "refined", "paper_bound"}
        As in :func:`shrinkage_risk` (Liu & Zhao, Eq. 17).
    zeros : {"truncate", "omit", "literal"}
        As in :func:`marginal_risk`.

    Returns
    -------
    float, or ndarray of shape (cells,)

    Raises
    ------
    InvalidCounts, InvalidModel, InvalidNoise, DrhaError
        As :func:`marginal_risk`.

    Notes
    -----
    Sizes are summed one by one. Where they reach beyond 1,000, the exact risk for one alpha and
    negative binomial sizes with r below the sum of alpha is an integral over one variable instead
    (:func:`drha.closed_forms.dirichlet_marginal`).

    Examples
    --------
    >>> import drha
    >>> drha.marginal_shrinkage_risk(drha.poisson(2.0), [1.0, 1.0], drha.laplace(1.0)).round(4)
    np.float64(0.4993)
    """
    alpha = check_alpha(alpha)
    check_sizes(sizes)
    check_noise(noise)
    if kind == "exact" and alpha.ndim == 1 and sizes.largest() > SHORT:
        risk = closed_forms.dirichlet_marginal(sizes, alpha, noise)
        if risk is not None:
            return _scaling(zeros, sizes, literal=False) * np.float64(risk)
    return _marginal(sizes, alpha, noise, kind, zeros, _dirichlet_rule, _log_dirichlet_h)


def check_probabilities(p) -> np.ndarray:
    """Return probability vectors along the last axis as floats, or raise InvalidModel."""
    p = _vectors("p", p)
    if (p < 0).any() or not np.allclose(p.sum(axis=-1), 1.0, rtol=0, atol=1e-9):
        raise InvalidModel(
            "p must hold non-negative probabilities that add up to 1 along the last axis; "
            f"the sums go from {p.sum(axis=-1).min():.12g} to {p.sum(axis=-1).max():.12g}"
        )
    return p


def check_alpha(alpha) -> np.ndarray:
    """Return Dirichlet parameters along the last axis as floats, or raise InvalidModel."""
    alpha = _vectors("alpha", alpha)
    if not ((alpha == 0) | (alpha >= 1e-12) & (alpha <= 1e12)).all():
        raise InvalidModel(
            "alpha must lie between 1e-12 and 1e12, or be 0 for a level that never occurs; it goes "
            f"from {alpha.min():g} to {alpha.max():g}"
        )
    if not alpha.any(axis=-1).all():
        raise InvalidModel("alpha must have at least one positive entry for each cell")
    return alpha


def _vectors(name: str, values) -> np.ndarray:
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InvalidModel(f"{name} must be an array of numbers, not {values!r}") from error
    if array.ndim not in (1, 2) or array.shape[-1] == 0:
        raise InvalidModel(f"{name} has shape {array.shape}; it needs (levels,) or (cells, levels)")
    if not np.isfinite(array).all():
        raise InvalidModel(f"{name} has an entry that is not finite")
    return array


def _check_sizes_of_cells(n) -> np.ndarray:
    return np.asarray(check_counts(n), dtype=np.int64)


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise DrhaError(f"kind {kind!r} is unknown; choose one of {KINDS}")


def _is_plain(noise, family: type) -> bool:
    """Whether closed forms hold: noise of this family, rounded and clipped."""
    return isinstance(noise, family) and noise.convention == RoundAndClip()


def _check_reach(largest: int) -> None:
    if largest > MAX_SIZE:
        raise InvalidCounts(
            f"sizes up to {largest} were asked for, but the dynamic programme over counts takes "
            f"time quadratic in the size and stops at {MAX_SIZE}; use drha.local_risk for cells "
            "whose counts are known, or geometric noise, which has a closed form"
        )


# A rule maps (largest size, sizes wanted, one parameter vector, noise, kind) to the risk of a cell
# of each wanted size.

Rule = Callable[[np.ndarray, np.ndarray, CountNoise, str], np.ndarray]


def _conditional(sizes, parameters, noise, kind, rule: Rule, log_h, *, bounded=True):
    """Risk at given sizes, for one parameter vector or one for each cell."""
    check_noise(noise)
    _check_kind(kind)
    if kind == "paper_bound":
        rule, bounded = _printed(log_h), False
    if bounded:
        _check_reach(int(sizes.max(initial=0)))
    if parameters.ndim == 1:
        wanted, back = np.unique(sizes, return_inverse=True)
        return rule(wanted, parameters, noise, kind)[back.reshape(sizes.shape)]
    if sizes.ndim == 0:
        sizes = np.full(len(parameters), sizes)
    if sizes.shape != (len(parameters),):
        raise InvalidModel(
            f"sizes of shape {sizes.shape} do not match {len(parameters)} parameter vectors; "
            "give one size for each, or one vector for all"
        )
    risk = np.empty(len(sizes))
    for vector, cells in _equal_rows(parameters):
        wanted, back = np.unique(sizes[cells], return_inverse=True)
        risk[cells] = rule(wanted, vector, noise, kind)[back]
    return risk


def _equal_rows(parameters: np.ndarray):
    """Yield each distinct parameter vector with the cells that share it; order cannot matter."""
    distinct, back = np.unique(np.sort(parameters, axis=1), axis=0, return_inverse=True)
    order = np.argsort(back.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(back.ravel(), minlength=len(distinct)))
    yield from zip(distinct, np.split(order, ends[:-1]), strict=True)


def _marginal(sizes, parameters, noise, kind, zeros, rule: Rule, log_h):
    """Dot product of the conditional risks with the probabilities of the sizes."""
    check_sizes(sizes)
    check_noise(noise)
    _check_kind(kind)
    scaling = _scaling(zeros, sizes, kind == "paper_bound" and _is_plain(noise, Laplace))
    largest = sizes.largest()
    if kind == "paper_bound":
        rule = _printed(log_h)
    else:
        _check_reach(largest)
    n = np.arange(1, largest + 1)
    probability = sizes.truncated_pmf(n) * scaling
    cells = np.atleast_2d(parameters)
    risk = np.empty(len(cells))
    for vector, where in _equal_rows(cells):
        risk[where] = rule(n, vector, noise, kind) @ probability
    if zeros == "literal":
        risk += sizes.probability_empty * _printed_at_zero(cells.shape[1], noise)
    return risk.reshape(parameters.shape[:-1])[()]


def _scaling(zeros: str, sizes: CellSizes, literal: bool) -> float:
    """Total probability of the sizes n >= 1 under a reading; ``literal``: whether it exists."""
    if zeros not in ("truncate", "omit", "literal"):
        raise DrhaError(f"zeros {zeros!r} is unknown; choose 'truncate', 'omit' or 'literal'")
    if zeros == "literal" and not literal:
        raise DrhaError(
            "the literal reading continues the printed Laplace expressions to n = 0; it exists "
            'only for Laplace noise and kind="paper_bound"'
        )
    return 1.0 if zeros == "truncate" else sizes.probability_filled


# The dynamic programme.


def _multinomial_rule(wanted, p, noise, kind):
    present = p[p > 0]
    n = np.arange(int(wanted.max(initial=0)) + 1)
    each = n[1:].astype(float)

    def splits():
        for share, rest in zip(present[1:], np.cumsum(present), strict=False):
            start = np.minimum(np.floor((n + 1) * (share / (share + rest))).astype(np.int64), n)
            yield share / each, rest / each, start

    never = noise.vanishing(0) ** (len(p) - len(present))
    return never * _programme(wanted, len(present), splits(), noise, kind)


def _dirichlet_rule(wanted, alpha, noise, kind):
    never = noise.vanishing(0) ** np.count_nonzero(alpha == 0)
    alpha = alpha[alpha > 0]
    n = np.arange(int(wanted.max(initial=0)) + 1)
    each = n[1:].astype(float)

    def splits():
        for first, rest in zip(alpha[1:], np.cumsum(alpha), strict=False):
            start = _beta_binomial_start(n, first, rest)
            yield (n[:-1] + first) / each, (n[:-1] + rest) / each, start

    return never * _programme(wanted, len(alpha), splits(), noise, kind)


def _beta_binomial_start(n: np.ndarray, a: float, b: float) -> np.ndarray:
    """Near the largest probability of BetaBin(n; a, b), or in the middle of a U-shaped one."""
    if a <= 1 and b <= 1:
        return n // 2
    if a <= 1:
        return np.zeros_like(n)
    if b <= 1:
        return n
    return np.floor(n * ((a - 1.0) / (a + b - 2.0))).astype(np.int64)


def _programme(wanted, levels, splits, noise, kind):
    """Risk for each wanted size, from the splits of the levels after the first, in order."""
    from drha.kernels import absorb_level, all_sizes

    largest = int(wanted.max(initial=0))
    n = np.arange(largest + 1)
    vanish, weight = noise.vanishing(n), noise.survival(n)
    weight *= n if kind == "refined" else n > 0
    none, one = vanish.copy(), weight.copy()
    everything, asked = all_sizes(largest), wanted[::-1].astype(np.int64)
    for level, split in enumerate(splits, start=2):
        if level < levels:
            absorb_level(none, one, vanish, weight, *split, everything, none, one)
        else:
            result = np.zeros(largest + 1), np.zeros(largest + 1)
            absorb_level(none, one, vanish, weight, *split, asked, *result)
            none, one = result
    risk = one[wanted]
    return risk / np.maximum(wanted, 1) if kind == "refined" else risk


def _geometric_rule(wanted, p, noise, kind):
    risk = closed_forms.geometric_expected(np.maximum(wanted, 1), p, noise, kind)
    return np.where(wanted > 0, risk, 0.0)


# The printed expressions.


def _printed(log_h) -> Rule:
    """Rule h A(n) + (1 - h) B(n), from log h as a function of sizes and parameters."""

    def rule(wanted, parameters, noise, kind):
        levels = len(parameters)
        n = np.maximum(wanted, 1)
        log_share = log_h(n, parameters)
        risk = np.exp(log_share) * homogeneous_risk(n, levels, noise)
        if levels > 1:
            mixed = scenario_8_expression(np.maximum(n, 2), levels, noise)
            risk -= np.expm1(log_share) * mixed
        return np.where(wanted > 0, risk, 0.0)

    return rule


def _log_multinomial_h(n, p):
    """Log of the sum over k of p_k^n, the probability that all records share a level."""
    return np.minimum(logsumexp(xlogy(n[:, None].astype(float), p), axis=1), 0.0)


def _log_dirichlet_h(n, alpha):
    """Log of the sum over k of B(alpha_k + n, rest_k) / B(alpha_k, rest_k)."""
    alpha = alpha[alpha > 0]
    if len(alpha) == 1:
        return np.zeros(len(n))
    rest = np.array([np.delete(alpha, k).sum() for k in range(len(alpha))])
    log_terms = betaln(alpha + n[:, None], rest) - betaln(alpha, rest)
    return np.minimum(logsumexp(log_terms, axis=1), 0.0)


def _printed_at_zero(levels: int, noise: CountNoise) -> float:
    """Return the printed term of n = 0, in which the "probability" h of homogeneity is K."""
    half = 0.5 / noise.scale
    keep = noise.vanishing(0)
    alone = keep ** (levels - 1) * (1.0 - 0.5 * np.exp(half))
    if levels == 1:
        return alone
    mixed = 0.5 * keep ** (levels - 2) * (np.exp(-half) + np.exp(3 * half) - np.exp(2 * half))
    return levels * alone + (1 - levels) * mixed
