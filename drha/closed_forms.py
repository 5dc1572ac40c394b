"""Closed forms of the averaged measures, for the mechanisms and models that have one.

:mod:`drha.measures` takes a few of them as its fast route; the others are second routes, against
which its dynamic programme is checked. With a = exp(-1 / scale) the vanishing functions are

    Laplace:    u(0) = z = 1 - v,  u(c) = b a^c for c >= 1,  v = sqrt(a) / 2,  b = 1 / (2 sqrt(a)),
    geometric:  u(c) = a^c / (1 + a) for all c,

so that an average over counts becomes a sum of powers, and an average over sizes too a sum of
values of the generating function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import combinations

import numpy as np
from scipy.special import gammaln, hyp2f1, poch

from drha.conventions import RoundAndClip
from drha.errors import InvalidModel
from drha.noise import CountNoise, Geometric, Laplace
from drha.sizes import LONG, CellSizes, NegativeBinomial, trapezoids

MAX_TERMS = 1 << 17  # counts beyond, in a series of vanishing probabilities, are left out


def poisson_risk(rates, noise: CountNoise):
    """Probability that a cell with independent Poisson counts is disclosed.

    Parameters
    ----------
    rates : ndarray of float, shape (..., levels)
        Means of the counts, lambda p_k for Poisson sizes of mean lambda.
    noise : CountNoise

    Returns
    -------
    ndarray of float, shape (...)
        Not divided by the probability that the cell has records.

    Notes
    -----
    The levels combine as in the local risk, each with its averages E u(c) and E s(c) 1(c >= 1).
    """
    vanish, survive, _ = poisson_averages(rates, noise)
    return _sole_survivor(vanish, survive)


def poisson_record_risk(rates, p, noise: CountNoise):
    """Probability that the value of one more record is disclosed, in a cell of Poisson counts.

    Parameters
    ----------
    rates : ndarray of float, shape (..., levels)
        Means of the counts of the other records.
    p : ndarray of float, shape (..., levels)
        Probabilities of the level of the record itself.
    noise : CountNoise

    Returns
    -------
    ndarray of float, shape (...)
        The sum over k of p_k E s(c_k + 1) times the product over j != k of E u(c_j).
    """
    vanish, _, survive = poisson_averages(rates, noise)
    return _sole_survivor(vanish, p * survive)


def poisson_averages(rates, noise: CountNoise):
    """Averages of the vanishing function over Poisson counts.

    Parameters
    ----------
    rates : ndarray of float
        Means x of the counts.
    noise : CountNoise

    Returns
    -------
    vanish, survive, survive_more : ndarray of float, the shape of ``rates``
        E u(c), E s(c) 1(c >= 1) and E s(c + 1).

    Notes
    -----
    Under Laplace noise they are e^-x [z + b (e^(a x) - 1)], e^-x [(e^x - 1) - b (e^(a x) - 1)] and
    1 - v e^-(1 - a) x, written with differences of exponentials below 1 so that nothing overflows;
    the subtractions leave at least half of what they start from. Otherwise the series are summed
    from their largest terms outwards.
    """
    rates = np.asarray(rates, dtype=float)
    if isinstance(noise, Laplace) and noise.convention == RoundAndClip():
        a, half = np.exp(-1.0 / noise.scale), 0.5 / noise.scale
        with np.errstate(divide="ignore"):  # b in logarithms, for b alone may overflow
            grown = half - (1.0 - a) * rates + np.log(-np.expm1(-a * rates))
        kept = 0.5 * np.exp(grown)
        vanish = noise.vanishing(0) * np.exp(-rates) + kept
        more = 1.0 - noise.vanishing(1) * np.exp(-(1.0 - a) * rates)
        return vanish, -np.expm1(-rates) - kept, more
    from drha.kernels import poisson_series

    largest = float(rates.max(initial=0.0))
    c = np.arange(int(largest + 40.0 * np.sqrt(largest)) + 200)
    series = poisson_series(rates.ravel(), noise.vanishing(c), noise.survival(c))
    return tuple(values.reshape(rates.shape) for values in series)


def _sole_survivor(vanish: np.ndarray, collect: np.ndarray):
    """Sum over k of collect_k times the product over j != k of vanish_j, along the last axis."""
    none, one = np.ones(vanish.shape[:-1]), np.zeros(vanish.shape[:-1])
    for k in range(vanish.shape[-1]):
        one = one * vanish[..., k] + none * collect[..., k]
        none = none * vanish[..., k]
    return one


def laplace_inclusion_exclusion(power: Callable, p, noise: Laplace) -> float:
    """Exact risk under Laplace noise as an alternating sum of powers.

    Parameters
    ----------
    power : callable
        x -> x^n for the expected risk of n records; the generating function of the (truncated)
        sizes for the marginal risk.
    p : ndarray of float, shape (levels,)
    noise : Laplace

    Returns
    -------
    float

    Notes
    -----
    The sum over k and over the sets J of other levels of

        (z - b)^(K - 1 - |J|) b^|J| [power(p_k + a p_J) - b power(a p_k + a p_J)
                                     - (1 - b) power(a p_J)],

    K 2^(K - 1) terms. As z - b is negative they alternate and reach b^(K - 1), which grows like
    exp(epsilon (K - 1) / 2): much cancels, so this is a second route for few levels and moderate
    epsilon only.
    """
    a = np.exp(-1.0 / noise.scale)
    b, z = 0.5 / np.sqrt(a), noise.vanishing(0)
    total = 0.0
    for k in range(len(p)):
        others = np.delete(p, k)
        for size in range(len(others) + 1):
            shares = np.array([sum(subset) for subset in combinations(others, size)])
            bracket = power(p[k] + a * shares) - b * power(a * (p[k] + shares))
            bracket -= (1.0 - b) * power(a * shares)
            total += (z - b) ** (len(others) - size) * b**size * bracket.sum()
    return float(total)


def geometric_expected(n, p, noise: Geometric, kind: str = "exact"):
    """Return the expected risk under geometric noise, O(K) for each size.

    Parameters
    ----------
    n : ndarray of int
        Cell sizes, at least 1.
    p : ndarray of float, shape (levels,)
    noise : Geometric
    kind : {"exact", "refined"}

    Returns
    -------
    ndarray of float, shape of ``n``

    Notes
    -----
    The exact risk is (1 + a)^-K times the sum over k of (1 + a) x^n - a^n - a^(n+1) (1 - p_k)^n
    with x = p_k + a (1 - p_k), written here as the sum of x^n - a^n and of a times
    x^n - (a - a p_k)^n, whose differences are taken by expm1 and log1p; the refined one has
    p_k [(1 + a) x^(n-1) - a^n] instead.
    """
    n = np.asarray(n, dtype=float)[..., None]
    a = np.exp(-1.0 / noise.scale)
    empty = (1.0 + a) ** -len(p)
    p = p[p > 0]
    x = p + a * (1.0 - p)
    if kind == "refined":
        terms = p * ((1.0 + a) * x ** (n - 1.0) - a**n)
    else:
        with np.errstate(divide="ignore"):  # log1p(-1): the subtracted power is zero
            small, large = np.log1p(-p * (1.0 - a) / x), np.log1p(-p / x)
        terms = x**n * -(np.expm1(n * small) + a * np.expm1(n * large))
    return terms.sum(axis=-1) * empty


def geometric_marginal(sizes: CellSizes, p, noise: Geometric):
    """Exact marginal risk under geometric noise: generating functions in place of powers.

    Parameters
    ----------
    sizes : CellSizes
    p : ndarray of float, shape (..., levels)
    noise : Geometric

    Returns
    -------
    ndarray of float, shape (...)
        Averaged over cells with records.
    """
    a, pgf = np.exp(-1.0 / noise.scale), sizes.truncated_pgf
    alone, never = pgf(p + a * (1.0 - p)), pgf(a * (1.0 - p))
    terms = (alone - pgf(a)) + a * (alone - never)
    return (terms.sum(axis=-1) * (1.0 + a) ** -p.shape[-1])[()]


def geometric_shrinkage(n, alpha, noise: Geometric, kind: str = "exact"):
    """Shrinkage risk under geometric noise by hypergeometric functions; a second route.

    Parameters
    ----------
    n : ndarray of int
        Cell sizes, at least 1.
    alpha : ndarray of float, shape (levels,)
        At least two Dirichlet parameters.
    noise : Geometric
    kind : {"exact", "refined"}

    Returns
    -------
    ndarray of float, shape of ``n``

    Notes
    -----
    Averages :func:`geometric_expected` over the Dirichlet distribution: with alpha_0 the sum of
    alpha and rest_k = alpha_0 - alpha_k,

        E (p_k + a (1 - p_k))^n         = 2F1(-n, rest_k; alpha_0; 1 - a),
        E (1 - p_k)^n                   = (rest_k)_n / (alpha_0)_n,
        E p_k (p_k + a (1 - p_k))^(n-1) = alpha_k/alpha_0 2F1(1 - n, rest_k; alpha_0 + 1; 1 - a).
    """
    n, alpha = np.asarray(n, dtype=float)[..., None], np.asarray(alpha, dtype=float)
    a, total = np.exp(-1.0 / noise.scale), alpha.sum()
    rest = total - alpha
    if kind == "refined":
        mean = alpha / total * hyp2f1(1.0 - n, rest, total + 1.0, -np.expm1(-1.0 / noise.scale))
        terms = (1.0 + a) * mean - alpha / total * a**n
    else:
        mean = hyp2f1(-n, rest, total, -np.expm1(-1.0 / noise.scale))
        terms = (1.0 + a) * mean - a**n - a ** (n + 1.0) * poch(rest, n) / poch(total, n)
    return terms.sum(axis=-1) * (1.0 + a) ** -len(alpha)


def dirichlet_marginal(sizes: CellSizes, alpha, noise: CountNoise):
    """Exact marginal shrinkage risk as an integral over one variable, for sizes with a long tail.

    Parameters
    ----------
    sizes : CellSizes
    alpha : ndarray of float, shape (levels,)
    noise : CountNoise

    Returns
    -------
    float, or None
        Averaged over cells with records; None unless the sizes are negative binomial with
        r < alpha_0 - 0.05, the sum of alpha, and alpha_0 <= 1000.

    Notes
    -----
    Sizes that are negative binomial with parameters alpha_0 and 1 - t would make the counts
    independent (:func:`negative_binomial_dirichlet`). For x distributed as Beta(r, alpha_0 - r),
    E x^n is the ratio of the rising factorials (r)_n / (alpha_0)_n, so sizes with parameters r and
    q are a mixture of those over t = (1 - q) x, with weights proportional to (1 - t)^-alpha_0. The
    integral is taken over log(x / (1 - x)) by the trapezoidal rule, as for the marginal risk.
    """
    alpha = np.asarray(alpha, dtype=float)
    never = float(noise.vanishing(0)) ** np.count_nonzero(alpha == 0)
    alpha = alpha[alpha > 0]
    if not isinstance(sizes, NegativeBinomial) or alpha.sum() > 1000.0:
        return None
    total, r, q = float(alpha.sum()), sizes.r, sizes.q
    if r > total - 0.05:
        return None

    def log_success(y):
        """Logarithm of 1 - t = (1 + q x / (1 - x)) / (1 + x / (1 - x))."""
        return np.logaddexp(0.0, y + np.log(q)) - np.logaddexp(0.0, y)

    def log_weight(y):
        log_x, log_rest = -np.logaddexp(0.0, -y), -np.logaddexp(0.0, y)
        return r * log_x + (total - r) * log_rest - total * log_success(y)

    def log_filled(y):
        return log_weight(y) + np.log(-np.expm1(total * log_success(y)))

    def risk(odds):
        failure = (1.0 - q) * odds / (1.0 + odds)
        return _sole_survivor(*negative_binomial_averages(alpha, failure, noise))

    low, high = -LONG / (r + 1.0) - 5.0, LONG / (total - r) - np.log(q) + 5.0
    return never * float(trapezoids(risk, log_weight, log_filled, low, high, 0.2))


def negative_binomial_averages(shapes, t: float, noise: CountNoise):
    """Averages of the vanishing function over negative binomial counts.

    Parameters
    ----------
    shapes : ndarray of float
        Shape of each count.
    t : float
        One less their common success probability, between 0 and 1.
    noise : CountNoise

    Returns
    -------
    vanish, survive : ndarray of float, the shape of ``shapes``
        E u(c) and E s(c) 1(c >= 1).
    """
    log_none = shapes * np.log1p(-t)
    if isinstance(noise, Laplace) and noise.convention == RoundAndClip():
        a, half = np.exp(-1.0 / noise.scale), 0.5 / noise.scale
        with np.errstate(divide="ignore"):  # b in logarithms, for b alone may overflow
            grown = np.log(np.expm1(-shapes * np.log1p(-a * t)))
        gone = 0.5 * np.exp(half + log_none + grown)
    else:
        gone = _negative_binomial_series(shapes, t, log_none, noise)
    return np.exp(log_none) * noise.vanishing(0) + gone, -np.expm1(log_none) - gone


def _negative_binomial_series(shapes, t: float, log_none, noise: CountNoise):
    """E u(c) 1(c >= 1), summed from the mode outwards."""
    from drha.kernels import negative_binomial_series

    mode = np.floor(np.maximum(shapes - 1.0, 0.0) * t / (1.0 - t))
    start = np.clip(mode, 1, MAX_TERMS // 2).astype(np.int64)
    log_first = gammaln(start + shapes) - gammaln(shapes) - gammaln(start + 1.0)
    first = np.exp(log_first + start * np.log(t) + log_none)
    return negative_binomial_series(shapes, t, start, first, _vanishing_table(noise))


@lru_cache(maxsize=2)
def _vanishing_table(noise: CountNoise) -> np.ndarray:
    """u(c) for c = 0, 1, ... as far as series are summed; an integral asks for it many times."""
    return noise.vanishing(np.arange(MAX_TERMS))


def negative_binomial_dirichlet(sizes: NegativeBinomial, alpha, noise: CountNoise) -> float:
    """Exact marginal shrinkage risk when r is the sum of alpha, for any mechanism.

    Parameters
    ----------
    sizes : NegativeBinomial
    alpha : ndarray of float, shape (levels,)
        Dirichlet parameters whose sum is ``sizes.r``.
    noise : CountNoise

    Returns
    -------
    float
        Averaged over cells with records.

    Raises
    ------
    InvalidModel
        If the sum of ``alpha`` is not r.

    Notes
    -----
    The counts are then independent, negative binomial with parameters alpha_k and q, so the levels
    combine as in the local risk, each with its average vanishing probability.
    """
    alpha = np.asarray(alpha, dtype=float)
    if abs(alpha.sum() - sizes.r) > 1e-9 * sizes.r:
        raise InvalidModel(
            f"the counts are independent only when alpha adds up to r = {sizes.r}, not "
            f"{alpha.sum()}; use drha.marginal_shrinkage_risk"
        )
    never = noise.vanishing(0) ** np.count_nonzero(alpha == 0)
    risk = _sole_survivor(*negative_binomial_averages(alpha[alpha > 0], 1.0 - sizes.q, noise))
    return float(never * risk / sizes.probability_filled)
