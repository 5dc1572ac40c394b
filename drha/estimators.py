"""Estimators of the models behind the measures: how levels mix in a cell, how large cells are.

Counts of the cells are Dirichlet-multinomial given their sizes; sizes are Poisson or negative
binomial, truncated at zero when only non-empty cells are seen. Every likelihood here is a sum of
logarithms of rising factorials x (x + 1) ... (x + n - 1), and every boundary of a parameter space
is decided by a closed criterion before anything is iterated: a fit ends in the interior, or says
in ``boundary`` which limit the data ask for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, gammaln, lambertw, polygamma

from drha.counts import check_cells, check_counts
from drha.errors import BoundaryEstimate, DrhaError, InvalidCounts, InvalidModel, NotEstimable

MAX_CONCENTRATION = 1e10  # beyond, the likelihood is that of its limit to rounding


# How levels mix.


@dataclass(frozen=True)
class DirichletFit:
    """A Dirichlet distribution of the level proportions of a cell.

    Attributes
    ----------
    mean : ndarray of float, shape (levels,)
        Mean proportions alpha / alpha_0. A level that never occurs has mean 0.
    concentration : float
        alpha_0, the sum of alpha: 0 and infinity are the limits that ``boundary`` names.
    log_likelihood : float
        Dirichlet-multinomial log likelihood of the records in a fixed order.
    iterations : int
    covariance : ndarray of float, shape (levels, levels), or None
        Inverse observed information of alpha, for maximum likelihood in the interior. Levels that
        never occur have variance 0.
    """

    mean: np.ndarray
    concentration: float
    log_likelihood: float
    iterations: int = 0
    covariance: np.ndarray | None = None

    @property
    def boundary(self) -> str | None:
        """The limit that the data ask for.

        ``"homogeneous"``: every cell shows one level, alpha_0 = 0, and ``mean`` says how often
        each level takes a cell. ``"no over-dispersion"``: all cells share the proportions
        ``mean``, alpha_0 = infinity. None in the interior.
        """
        return {0.0: "homogeneous", math.inf: "no over-dispersion"}.get(self.concentration)

    @property
    def alpha(self) -> np.ndarray:
        """The parameters, shape (levels,).

        Raises
        ------
        BoundaryEstimate
            If alpha_0 is 0 or infinite, so that no Dirichlet distribution is estimated.
        """
        if self.boundary is not None:
            instead = (
                "every cell is homogeneous: average drha.homogeneous_risk over the sizes"
                if self.concentration == 0
                else "all cells share the proportions `mean`: use drha.expected_risk with them"
            )
            raise BoundaryEstimate(f"alpha_0 is {self.concentration}, for {instead}")
        return self.concentration * self.mean


def fit_dirichlet(
    counts, method: str = "newton", *, tol: float = 1e-10, max_iterations: int = 10_000
) -> DirichletFit:
    """Fit a Dirichlet distribution to the level proportions of the cells.

    Parameters
    ----------
    counts : array_like of int, shape (cells, levels), or FrequencyTable
        Cells without records carry no information and are passed over.
    method : {"newton", "minka", "moments"}
        Maximum likelihood by Newton steps or by Minka's fixed point, or the moments of pairs.
    tol : float
        Maximum likelihood stops when no parameter changes by more than this, relatively.
    max_iterations : int

    Returns
    -------
    DirichletFit

    Raises
    ------
    InvalidCounts
        If a count is not whole and non-negative, or the array is not a matrix.
    NotEstimable
        If no cell has two records: single records say nothing about how records mix. Also if
        the iteration does not end.
    DrhaError
        If ``method`` is unknown.

    Notes
    -----
    Conditional on the cell sizes, so it does not matter that empty cells are not seen.

    * Newton: the Hessian is diag(q) + z 1 1', inverted in O(K) (Minka 2000); a step that does
      not raise the likelihood is halved, and where the Hessian is not negative definite the fixed
      point, which always raises it, steps in.
    * Fixed point: alpha_k <- alpha_k sum_i [psi(n_ik + alpha_k) - psi(alpha_k)]
      / sum_i [psi(n_i + alpha_0) - psi(alpha_0)].
    * Pairs: with h the share of agreeing pairs of records of a cell, weighted by n_i - 1, and pi
      the pooled proportions, alpha_0 = (1 - h) / (h - sum pi^2).

    All cells homogeneous: the likelihood increases strictly as alpha_0 falls to 0. At
    1 / alpha_0 = 0 it increases with 1 / alpha_0 exactly when
    sum_i sum_k n_ik (n_ik - 1) / pi_k > sum_i n_i (n_i - 1); otherwise the limit is compared
    with whatever interior maximum is found.

    Examples
    --------
    >>> import drha
    >>> drha.fit_dirichlet([[9, 1], [2, 8], [5, 5], [7, 3]]).alpha.round(3)
    array([2.667, 1.977])
    >>> drha.fit_dirichlet([[3, 0], [0, 2]]).boundary
    'homogeneous'
    """
    if method not in ("newton", "minka", "moments"):
        raise DrhaError(f"method {method!r} is unknown; choose one of newton, minka, moments")
    table = check_cells(counts)
    if table.ndim != 2:
        raise InvalidCounts(f"counts have shape {table.shape}; pass (cells, levels)")
    table = table.astype(np.int64)[table.any(axis=1)]
    sizes = table.sum(axis=1)
    if not (sizes > 1).any():
        raise NotEstimable(
            "no cell has two records, so nothing tells how records of one cell mix; "
            "coarsen the quasi-identifiers"
        )
    seen = table.any(axis=0)
    mean = np.zeros(table.shape[1])
    if (np.count_nonzero(table, axis=1) == 1).all():
        cells = np.count_nonzero(table, axis=0)
        mean = cells / len(table)
        return DirichletFit(mean, 0.0, float(_xlogy(cells, mean)))
    pooled = table.sum(axis=0) / sizes.sum()
    model = _DirichletMultinomial(table[:, seen], sizes)
    start = _pair_concentration(table, sizes, pooled)
    limit = DirichletFit(pooled, math.inf, float(_xlogy(table.sum(axis=0), pooled)))
    if method == "moments":
        if start == math.inf:
            return limit
        return DirichletFit(pooled, start, model.log_likelihood(start * pooled[seen]))
    overdispersed = model.slope_at_limit(pooled[seen]) > 0
    alpha = (start if start < math.inf else 10.0) * pooled[seen]
    climb = method if overdispersed else "newton"  # the fixed point crawls towards infinity
    alpha, iterations = model.maximise(alpha, climb, tol, max_iterations)
    value = model.log_likelihood(alpha)
    concentration = float(alpha.sum())
    at_limit = not overdispersed and value <= limit.log_likelihood + 1e-9
    if at_limit or concentration > MAX_CONCENTRATION:
        return limit
    mean[seen] = alpha / concentration
    covariance = np.zeros((len(mean), len(mean)))
    covariance[np.ix_(seen, seen)] = model.covariance(alpha)
    return DirichletFit(mean, concentration, value, iterations, covariance)


class _DirichletMultinomial:
    """Likelihood of counts given sizes, of records in a fixed order, through its tallies."""

    def __init__(self, table: np.ndarray, sizes: np.ndarray):
        self.levels = [_tally(column) for column in table.T]
        self.sizes = _tally(sizes)

    def _sums(self, alpha: np.ndarray, order: int) -> tuple[np.ndarray, float]:
        """Sum derivatives of the log rising factorials, of each level and of the sizes."""
        levels = [_rise_sum(a, tally, order) for a, tally in zip(alpha, self.levels, strict=True)]
        return np.array(levels), _rise_sum(alpha.sum(), self.sizes, order)

    def log_likelihood(self, alpha: np.ndarray) -> float:
        levels, sizes = self._sums(alpha, 0)
        return float(levels.sum() - sizes)

    def slope_at_limit(self, mean: np.ndarray) -> float:
        """Twice the derivative of the log likelihood in 1 / alpha_0 at 0."""
        pairs = [_pairs(tally) / p for tally, p in zip(self.levels, mean, strict=True)]
        return sum(pairs) - _pairs(self.sizes)

    def fixed_point(self, alpha: np.ndarray) -> np.ndarray:
        levels, sizes = self._sums(alpha, 1)
        return alpha * levels / sizes

    def newton_direction(self, alpha: np.ndarray) -> np.ndarray | None:
        """Newton step, or None where the Hessian diag(q) + z 1 1' is not negative definite."""
        levels, sizes = self._sums(alpha, 1)
        gradient = levels - sizes
        q, z = self._hessian(alpha)
        spread = 1.0 + z * (1.0 / q).sum()
        if spread <= 0.0:
            return None
        shared = z * (gradient / q).sum() / spread
        return -(gradient - shared) / q

    def _hessian(self, alpha: np.ndarray) -> tuple[np.ndarray, float]:
        q, sizes = self._sums(alpha, 2)
        return q, -sizes

    def covariance(self, alpha: np.ndarray) -> np.ndarray:
        """Inverse of minus the Hessian (Sherman-Morrison)."""
        q, z = self._hessian(alpha)
        spread = 1.0 + z * (1.0 / q).sum()
        return np.outer(1.0 / q, 1.0 / q) * (z / spread) - np.diag(1.0 / q)

    def maximise(self, alpha, method, tol, max_iterations) -> tuple[np.ndarray, int]:
        """Climb from alpha until it stands still or leaves for infinity."""
        value = self.log_likelihood(alpha)
        for iteration in range(1, max_iterations + 1):
            step = self.newton_direction(alpha) if method == "newton" else None
            following = None if step is None else self._climb(alpha, step, value)
            if following is None:
                following = self.fixed_point(alpha)
            moved = np.abs(following / alpha - 1.0).max()
            alpha = following
            value = self.log_likelihood(alpha)
            if moved <= tol or alpha.sum() > MAX_CONCENTRATION:
                return alpha, iteration
        raise NotEstimable(
            f"{method} still moved by {moved:.1e} after {max_iterations} iterations at alpha_0 = "
            f"{alpha.sum():.4g}; raise tol or max_iterations, or use method='newton'"
        )

    def _climb(self, alpha, step, value) -> np.ndarray | None:
        """Largest halved step that stays positive and does not lower the likelihood."""
        for _ in range(30):
            following = alpha + step
            slack = 1e-13 * abs(value)  # of rounding
            if (following > 0).all() and self.log_likelihood(following) >= value - slack:
                return following
            step = step / 2.0
        return None


def _pair_concentration(table: np.ndarray, sizes: np.ndarray, pooled: np.ndarray) -> float:
    """alpha_0 from the share of agreeing pairs, infinite when pairs agree as if pooled."""
    several = sizes > 1
    n, cells = sizes[several].astype(float), table[several].astype(float)
    agreeing = ((cells * (cells - 1.0)).sum(axis=1) / n).sum() / (n - 1.0).sum()
    excess = agreeing - (pooled**2).sum()
    return math.inf if excess <= 0.0 else float((1.0 - agreeing) / excess)


def dirichlet_posterior(counts, alpha) -> np.ndarray:
    """Parameters of each cell's own Dirichlet posterior, alpha + n_i.

    Parameters
    ----------
    counts : array_like of int, shape (..., levels), or FrequencyTable
    alpha : array_like of float, shape (levels,)
        Prior parameters; 0 for a level that cannot occur.

    Returns
    -------
    ndarray of float, shape (..., levels)
        Used in the shrinkage measure in place of one common alpha, they make it a posterior
        predictive one: each cell is shrunk from its own proportions towards the prior mean.

    Raises
    ------
    InvalidCounts
        If a count is not whole and non-negative.
    InvalidModel
        If alpha has another shape, or an entry that is negative or not finite, or no positive
        one.
    """
    cells = check_cells(counts)
    alpha = np.asarray(alpha, dtype=float)
    proper = alpha.shape == cells.shape[-1:] and np.isfinite(alpha).all() and (alpha >= 0).all()
    if not (proper and alpha.any()):
        raise InvalidModel(
            f"alpha must hold {cells.shape[-1]} non-negative, finite numbers, one per level and "
            f"not all 0, not {alpha!r}"
        )
    return cells + alpha


# How large cells are.


def fit_poisson(sizes, *, truncated: bool = True) -> float:
    """Maximum-likelihood mean of Poisson cell sizes.

    Parameters
    ----------
    sizes : array_like of int, shape (cells,)
        Records per cell.
    truncated : bool, default True
        Whether empty cells are left out of ``sizes``, as in a frequency table. If not, every
        possible cell must be there, with its zero.

    Returns
    -------
    float
        The mean of the Poisson distribution before truncation.

    Raises
    ------
    InvalidCounts
        If a size is not whole, or is zero although ``truncated``.
    BoundaryEstimate
        If every size is one and ``truncated`` (the mean tends to 0), or every size is zero.

    Notes
    -----
    Truncated: the sample mean m satisfies m = x / (1 - exp(-x)), solved by
    x = m + W_0(-m exp(-m)) with Lambert's W (also the estimator by moments).

    Examples
    --------
    >>> import drha
    >>> round(drha.fit_poisson([1, 2, 1, 4, 2]), 4)
    1.5936
    """
    sample = _sizes(sizes, truncated)
    mean = float(sample.mean())
    if not truncated:
        if mean == 0.0:
            raise BoundaryEstimate("every cell is empty: the Poisson mean is 0")
        return mean
    if mean == 1.0:
        raise BoundaryEstimate("every cell has one record: the Poisson mean tends to 0")
    return _untruncated_mean(mean, math.inf)


class NegativeBinomialFit(NamedTuple):
    """A negative binomial distribution of cell sizes.

    Attributes
    ----------
    r, q : float
        P(n) = C(n + r - 1, n) (1 - q)^n q^r before truncation.
    mean : float
        r (1 - q) / q, before truncation.
    log_likelihood : float
        Of the sizes, truncated if they are.
    covariance : ndarray of float, shape (2, 2), or None
        Inverse observed information of (r, q), for maximum likelihood in the interior.
    """

    r: float
    q: float
    mean: float
    log_likelihood: float
    covariance: np.ndarray | None = None

    @property
    def boundary(self) -> str | None:
        """The limit that the data ask for.

        ``"poisson"``: no over-dispersion, r is infinite and q is 1; use ``mean``.
        ``"logarithmic"``: r is 0 and truncated sizes follow the logarithmic series of 1 - q.
        None in the interior.
        """
        return {0.0: "logarithmic", math.inf: "poisson"}.get(self.r)


def fit_negative_binomial(
    sizes, method: str = "mle", *, truncated: bool = True
) -> NegativeBinomialFit:
    """Fit negative binomial cell sizes.

    Parameters
    ----------
    sizes : array_like of int, shape (cells,)
        Records per cell.
    method : {"mle", "moments"}
        Maximum likelihood, or moments: those of the sample, and of truncated sizes also the share
        of ones (Brass 1958).
    truncated : bool, default True
        Whether empty cells are left out of ``sizes``, as in a frequency table.

    Returns
    -------
    NegativeBinomialFit

    Raises
    ------
    InvalidCounts
        If a size is not whole, or is zero although ``truncated``.
    NotEstimable
        If all sizes are zero, or all are one and ``truncated``.
    DrhaError
        If ``method`` is unknown.

    Notes
    -----
    With N cells of mean m and x = r (1 - q) / q, the likelihood equations are

        m = x, or x / (1 - (1 + x / r)^-r) if truncated,
        sum_i [psi(n_i + r) - psi(r)] = N m log(1 + x / r) / x,

    one unknown after the other. For large r the difference of the last two sides is
    (N m x - sum_i n_i (n_i - 1)) / 2 r^2 to leading order, with x the Poisson fit: the sizes are
    over-dispersed when it is negative. Truncated sizes have a limit at r = 0 too, the logarithmic
    series, from which the likelihood does not increase when the harmonic sums
    sum_i (1 + 1/2 + ... + 1/(n_i - 1)) are at most -N log(q) / 2.

    Examples
    --------
    >>> import drha
    >>> fit = drha.fit_negative_binomial([1, 2, 5, 4, 2, 9, 1, 3])
    >>> round(fit.r, 4), round(fit.q, 4)
    (1.6631, 0.3816)
    >>> drha.fit_negative_binomial([2, 2, 3, 3]).boundary
    'poisson'
    """
    if method not in ("mle", "moments"):
        raise DrhaError(f"method {method!r} is unknown; choose one of mle, moments")
    sample = _sizes(sizes, truncated)
    mean = float(sample.mean())
    if mean == 0.0 or (truncated and mean == 1.0):
        raise NotEstimable(
            f"every cell has {int(mean)} records: the sizes do not vary, so nothing tells r and q"
        )
    model = _NegativeBinomial(sample, truncated)
    return model.fit() if method == "mle" else model.fit_moments()


class _NegativeBinomial:
    """Likelihood of cell sizes, truncated at zero or not."""

    def __init__(self, sizes: np.ndarray, truncated: bool):
        self.tally, self.truncated = _tally(sizes), truncated
        self.number, self.mean = len(sizes), float(sizes.mean())
        self.variance = float(sizes.var(ddof=1)) if len(sizes) > 1 else 0.0
        self.ones = float((sizes == 1).mean())

    def full_mean(self, r: float) -> float:
        """Mean x before truncation that fits the sample mean, given r."""
        return _untruncated_mean(self.mean, r) if self.truncated else self.mean

    def score(self, r: float) -> float:
        """Differentiate in r the log likelihood profiled over q."""
        x = self.full_mean(r)
        return _rise_sum(r, self.tally, 1) - self.number * self.mean * math.log1p(x / r) / x

    def fit(self) -> NegativeBinomialFit:
        if _pairs(self.tally) <= self.number * self.mean * self.full_mean(math.inf):
            return self.poisson()
        if self.truncated:
            limit = self.logarithmic()
            values, times = self.tally
            harmonic = times @ (digamma(values) - digamma(1.0))
            if harmonic <= -0.5 * self.number * math.log(limit.q):
                return limit
        low = high = math.log(max(self.mean, 1.0))
        while low > -25.0 and self.score(math.exp(low)) <= 0.0:
            low -= 1.0
        while high < math.log(MAX_CONCENTRATION) and self.score(math.exp(high)) >= 0.0:
            high += 1.0
        if high >= math.log(MAX_CONCENTRATION):
            return self.poisson()
        if low <= -25.0:
            return self.logarithmic()
        r = math.exp(brentq(lambda t: self.score(math.exp(t)), low, high, xtol=1e-14, rtol=1e-14))
        x = self.full_mean(r)
        return self.at(r, r / (r + x), exact=True)

    def fit_moments(self) -> NegativeBinomialFit:
        if not self.variance > 0.0:
            return self.poisson()
        q = self.mean / self.variance * ((1.0 - self.ones) if self.truncated else 1.0)
        if q >= 1.0:
            return self.poisson()
        r = (q * self.mean - (self.ones if self.truncated else 0.0)) / (1.0 - q)
        return self.at(r, q) if r > 0.0 else self.logarithmic()

    def at(self, r: float, q: float, exact: bool = False) -> NegativeBinomialFit:
        value, covariance = self.log_likelihood(r, q), self.covariance(r, q) if exact else None
        return NegativeBinomialFit(r, q, r * (1.0 - q) / q, value, covariance)

    def poisson(self) -> NegativeBinomialFit:
        x = self.full_mean(math.inf)
        value = self.number * (self.mean * math.log(x) - x) - self._log_factorials()
        if self.truncated:
            value -= self.number * math.log(-math.expm1(-x))
        return NegativeBinomialFit(math.inf, 1.0, x, value)

    def logarithmic(self) -> NegativeBinomialFit:
        """P(n) proportional to (1 - q)^n / n, with the sample mean (1 - q) / (-q log q)."""

        def excess(t: float) -> float:  # q = exp(-t)
            return math.expm1(t) / t - self.mean

        high = 1.0
        while excess(high) < 0.0:
            high *= 2.0
        t = brentq(excess, 1e-12, high, xtol=1e-15, rtol=1e-14)
        values, times = self.tally
        value = self.number * (self.mean * math.log(-math.expm1(-t)) - math.log(t))
        return NegativeBinomialFit(0.0, math.exp(-t), 0.0, value - float(times @ np.log(values)))

    def log_likelihood(self, r: float, q: float) -> float:
        value = _rise_sum(r, self.tally, 0) - self._log_factorials()
        value += self.number * (self.mean * math.log1p(-q) + r * math.log(q))
        if self.truncated:
            value -= self.number * math.log(-math.expm1(r * math.log(q)))
        return float(value)

    def _log_factorials(self) -> float:
        values, times = self.tally
        return float(times @ gammaln(values + 1.0))

    def covariance(self, r: float, q: float) -> np.ndarray:
        """Inverse of minus the Hessian of the log likelihood in (r, q)."""
        number, log_q = self.number, math.log(q)
        rr = _rise_sum(r, self.tally, 2)
        rq = number / q
        qq = -number * (self.mean / (1.0 - q) ** 2 + r / q**2)
        if self.truncated:
            empty = math.exp(r * log_q)
            odds = empty / -math.expm1(r * log_q)
            steep = odds / -math.expm1(r * log_q)
            rr += number * steep * log_q**2
            rq += number * (odds + r * log_q * steep) / q
            qq += number * r * (r * steep - odds) / q**2
        return np.linalg.inv(-np.array([[rr, rq], [rq, qq]]))


def _untruncated_mean(mean: float, r: float) -> float:
    """Solve mean = x / (1 - (1 + x / r)^-r), Poisson for infinite r, where mean > 1."""
    if math.isinf(r):
        above = mean - 1.0
        if above < 1e-4:  # inverse of above = x / 2 + x^2 / 12 - x^4 / 720 + ...
            return above * (2.0 + above * (-2 / 3 + above * (4 / 9 - above * 44 / 135)))
        x = mean + float(lambertw(-mean * math.exp(-mean)).real)
        for _ in range(2):  # Newton, for W loses digits near its branch point
            x -= (x + mean * math.expm1(-x)) / (1.0 - mean * math.exp(-x))
        return x

    def excess(x: float) -> float:
        return x + mean * math.expm1(-r * math.log1p(x / r))

    low = mean
    while excess(low) >= 0.0:
        low /= 2.0
    return brentq(excess, low, mean, xtol=1e-300, rtol=1e-14)


def poisson_posterior(sizes, *, shape: float, rate: float) -> tuple[float, float]:
    """Posterior predictive of Poisson sizes under a Gamma prior: negative binomial (r, q).

    Parameters
    ----------
    sizes : array_like of int, shape (cells,)
        Records of all cells, the empty ones among them.
    shape, rate : float
        Gamma prior of the Poisson mean, of mean shape / rate; both positive.

    Returns
    -------
    r, q : float
        r = shape + sum n_i and q = (rate + N) / (rate + N + 1): the size of a new cell has
        P(n) = C(n + r - 1, n) (1 - q)^n q^r.

    Raises
    ------
    InvalidCounts
        If a size is not whole and non-negative.
    InvalidModel
        If ``shape`` or ``rate`` is not positive and finite.

    See Also
    --------
    poisson_posterior_grid : for sizes of non-empty cells only.
    """
    _check_prior(shape, rate)
    sample = _sizes(sizes, truncated=False)
    weight = rate + len(sample)
    return float(shape + sample.sum()), float(weight / (weight + 1.0))


def poisson_posterior_grid(
    sizes, *, shape: float, rate: float, points: int = 400
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior of the Poisson mean when only non-empty cells are seen, on a grid.

    Parameters
    ----------
    sizes : array_like of int, shape (cells,)
        Records of the non-empty cells.
    shape, rate : float
        Gamma prior of the Poisson mean, of mean shape / rate; both positive.
    points : int, default 400
        Nodes, at least 32.

    Returns
    -------
    means, weights : ndarray of float, each of shape (points,)
        Nodes and their posterior probabilities: ``weights @ f(means)`` is the posterior mean of
        any smooth function f of the Poisson mean, a measure of risk for instance.

    Raises
    ------
    InvalidCounts
        If a size is not whole and positive.
    InvalidModel
        If ``shape`` or ``rate`` is not positive and finite.
    DrhaError
        If ``points`` is below 32.

    Notes
    -----
    The density is that of Gamma(shape + sum n, rate + N) times (1 - exp(-x))^-N. In log x it is
    integrated by the trapezoidal rule, which converges exponentially for a smooth density that
    has decayed by exp(-40) at both ends.
    """
    _check_prior(shape, rate)
    if not isinstance(points, (int, np.integer)) or points < 32:
        raise DrhaError(f"points must be a whole number from 32 on, not {points!r}")
    sample = _sizes(sizes, truncated=True)
    number, total = len(sample), float(sample.sum())

    def log_density(t):  # of t = log x
        x = np.exp(t)
        return (shape + total) * t - (rate + number) * x - number * np.log(-np.expm1(-x))

    def slope(t):
        x = math.exp(t)
        hazard = x / math.expm1(x) if x < 700.0 else 0.0
        return shape + total - (rate + number) * x - number * hazard

    low, high = -1.0, 1.0
    while slope(low) <= 0.0:
        low -= 2.0
    while slope(high) >= 0.0:
        high += 2.0
    mode = brentq(slope, low, high, xtol=1e-12)
    peak = log_density(mode)
    ends = []
    for direction in (-1.0, 1.0):
        reach = 1e-3
        while peak - log_density(mode + direction * reach) < 40.0:
            reach *= 1.5
        ends.append(mode + direction * reach)
    t = np.linspace(*ends, points)
    weights = np.exp(log_density(t) - peak)
    return np.exp(t), weights / weights.sum()


# Rising factorials and tallies.


def _rise(x: float, n: np.ndarray, order: int) -> np.ndarray:
    """Differentiate log[x (x + 1) ... (x + n - 1)] in x, 0, 1 or 2 times.

    Differences of gamma functions, and of their asymptotic series where x is large and they
    would cancel; the first omitted term is below 1e-15 of the result for x >= 16.
    """
    n = np.asarray(n, dtype=float)
    y = x + n
    if x < 16.0:
        if order == 0:
            return gammaln(y) - gammaln(x)
        if order == 1:
            return digamma(y) - digamma(x)
        return polygamma(1, y) - polygamma(1, x)
    grow = np.log1p(n / x)
    if order == 0:
        main = n * math.log(x) + (y - 0.5) * grow - n
    elif order == 1:
        main = grow + 0.5 * n / (x * y)
    else:
        main = -n / (x * y) - 0.5 * n * (x + y) / (x * y) ** 2
    for j, bernoulli in enumerate(_BERNOULLI, start=1):
        power = 2 * j - 1 + order  # of the derivative of B_2j / (2 j (2 j - 1) x^(2 j - 1))
        factor = (1.0 / (2 * j - 1), -1.0, 2.0 * j)[order] * bernoulli / (2 * j)
        main = main + factor * (y**-power - x**-power)
    return main


_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66)


def _tally(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct positive values and how often each occurs, as floats."""
    distinct, times = np.unique(values[values > 0], return_counts=True)
    return distinct.astype(float), times.astype(float)


def _rise_sum(x: float, tally: tuple[np.ndarray, np.ndarray], order: int) -> float:
    values, times = tally
    return float(times @ _rise(float(x), values, order))


def _pairs(tally: tuple[np.ndarray, np.ndarray]) -> float:
    """Sum of n (n - 1)."""
    values, times = tally
    return float(times @ (values * (values - 1.0)))


def _xlogy(counts: np.ndarray, mean: np.ndarray) -> float:
    positive = counts > 0
    return counts[positive] @ np.log(mean[positive])


def _sizes(sizes, truncated: bool) -> np.ndarray:
    sample = check_counts(sizes)
    if sample.ndim != 1 or sample.size == 0:
        raise InvalidCounts(f"sizes have shape {sample.shape}; pass one size per cell, (cells,)")
    if truncated and sample.min() == 0:
        raise InvalidCounts(
            f"cell {int(np.argmin(sample))} is empty, but truncated sizes are those of non-empty "
            "cells; leave it out, or pass truncated=False with every possible cell"
        )
    return sample


def _check_prior(shape: float, rate: float) -> None:
    for name, value in (("shape", shape), ("rate", rate)):
        if not (isinstance(value, (int, float, np.number)) and 0.0 < value < math.inf):
            raise InvalidModel(f"{name} must be positive and finite, not {value!r}")
