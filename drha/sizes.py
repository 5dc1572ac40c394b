"""How many records a cell has: the distributions of cell sizes, and what truncating zero does.

A distribution of sizes gives Pr(n) for n = 0, 1, 2, ... Nobody lives in an empty cell, so what
the risk measures average over is the distribution of the sizes of the cells with records,
Pr(n) / (1 - Pr(0)) for n >= 1.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log1p, logsumexp

from drha.counts import check_counts
from drha.errors import DrhaError, InvalidModel

LONG = 45.0  # exp(-LONG) is negligible next to 1
MAX_HALVINGS = 7

NEGLIGIBLE = 1e-18  # probability of all the sizes that a sum over sizes leaves out


class CellSizes(abc.ABC):
    """Distribution of the number of records of a cell, zero included.

    A subclass gives the mean, log Pr(0), the probabilities, the generating functions and samplers.
    """

    @property
    @abc.abstractmethod
    def mean(self) -> float:
        """Mean of the sizes, zero included."""

    @property
    @abc.abstractmethod
    def log_empty(self) -> float:
        """Natural logarithm of the probability of an empty cell."""

    @property
    @abc.abstractmethod
    def law(self):
        """The distribution as a frozen distribution of ``scipy.stats``, imported when asked."""

    @abc.abstractmethod
    def pgf(self, s):
        """Probability generating function G(s) = E s^n, for 0 <= s <= 1."""

    @abc.abstractmethod
    def truncated_pgf(self, s):
        """(G(s) - G(0)) / (1 - G(0)), the generating function of the sizes of non-empty cells."""

    @abc.abstractmethod
    def average(self, risk: Callable[[float], np.ndarray]) -> np.ndarray:
        """Average over cells with records, from an average over cells of Poisson size.

        Parameters
        ----------
        risk : callable
            Maps a Poisson mean to the average of a risk over sizes with that mean, where an empty
            cell has risk 0.

        Returns
        -------
        ndarray, the shape of the results of ``risk``
        """

    @abc.abstractmethod
    def average_per_record(self, risk: Callable[[float], np.ndarray]) -> np.ndarray:
        """Average of a risk of one record, over the records of a cell and over cells with records.

        Parameters
        ----------
        risk : callable
            Maps a Poisson mean to the average risk of a record whose cell has a Poisson number of
            other records with that mean.

        Returns
        -------
        ndarray, the shape of the results of ``risk``

        Notes
        -----
        For a Poisson size of mean x, Pr(n) = (x/n) Pr(n - 1) gives the integral of
        exp(t - x) risk(t) over 0 < t < x.
        """

    @abc.abstractmethod
    def sample_empty_too(self, shape, rng):
        """Draw sizes, zeros included."""

    @property
    def probability_empty(self) -> float:
        """Probability of an empty cell, Pr(0)."""
        return math.exp(self.log_empty)

    @property
    def probability_filled(self) -> float:
        """Probability 1 - Pr(0) of a cell with records, accurate also when it is tiny."""
        return -math.expm1(self.log_empty)

    def pmf(self, n):
        """Probability of size n, zero included.

        Parameters
        ----------
        n : array_like of int

        Returns
        -------
        ndarray of float, same shape
        """
        return self.law.pmf(check_counts(n))

    def truncated_pmf(self, n):
        """Probability of size n among the cells with records; zero for n = 0."""
        n = check_counts(n)
        return np.where(n > 0, self.pmf(n) / self.probability_filled, 0.0)[()]

    def largest(self, tail: float = NEGLIGIBLE) -> int:
        """Smallest n such that non-empty cells are larger with probability at most ``tail``."""
        allowed = tail * self.probability_filled
        high = max(1, math.ceil(self.mean))
        while self.law.sf(high) > allowed:
            high *= 2
        low = 0
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.law.sf(middle) <= allowed else (middle, high)
        return high

    def sample(self, shape, rng):
        """Draw sizes of cells with records: a zero is drawn again.

        Parameters
        ----------
        shape : int or tuple of int
        rng : numpy.random.Generator

        Returns
        -------
        ndarray of int64, entries at least 1
        """
        wanted = math.prod(np.atleast_1d(shape).tolist())
        if self.probability_filled < 1e-3:  # drawing again would take ages: invert instead
            below = self.probability_empty + self.probability_filled * rng.random(wanted)
            return np.maximum(self.law.ppf(below), 1).astype(np.int64).reshape(shape)
        draws = self.sample_empty_too(wanted, rng)
        empty = np.flatnonzero(draws == 0)
        while empty.size:
            draws[empty] = self.sample_empty_too(empty.size, rng)
            empty = empty[draws[empty] == 0]
        return draws.reshape(shape)


@dataclass(frozen=True)
class Poisson(CellSizes):
    """Poisson sizes; see :func:`poisson`."""

    rate: float

    @property
    def mean(self) -> float:  # noqa: D102
        return self.rate

    @property
    def log_empty(self) -> float:  # noqa: D102
        return -self.rate

    @property
    def law(self):  # noqa: D102
        from scipy import stats

        return stats.poisson(self.rate)

    def pgf(self, s):  # noqa: D102
        return np.exp(-self.rate * (1.0 - np.asarray(s, float)))

    def truncated_pgf(self, s):  # noqa: D102
        s = np.asarray(s, float)
        return np.exp(-self.rate * (1.0 - s)) * np.expm1(-self.rate * s) / np.expm1(-self.rate)

    def average(self, risk):  # noqa: D102
        return risk(self.rate) / self.probability_filled

    def average_per_record(self, risk):  # noqa: D102
        nodes, weights = np.polynomial.legendre.leggauss(64)
        below = 0.5 * min(self.rate, LONG) * (nodes + 1.0)  # what exp(-LONG) leaves out is rounding
        weights = weights * np.exp(-below)
        values = [w * risk(self.rate - t) for w, t in zip(weights, below, strict=True)]
        return np.sum(values, axis=0) / weights.sum()

    def sample_empty_too(self, shape, rng):  # noqa: D102
        return rng.poisson(self.rate, shape)


@dataclass(frozen=True)
class NegativeBinomial(CellSizes):
    """Negative binomial sizes; see :func:`negative_binomial`."""

    r: float
    q: float

    @property
    def mean(self) -> float:  # noqa: D102
        return self.r * (1.0 - self.q) / self.q

    @property
    def log_empty(self) -> float:  # noqa: D102
        return self.r * math.log(self.q)

    @property
    def law(self):  # noqa: D102
        from scipy import stats

        return stats.nbinom(self.r, self.q)

    def pgf(self, s):  # noqa: D102
        return np.exp(self.r * (math.log(self.q) - log1p((self.q - 1.0) * np.asarray(s, float))))

    def truncated_pgf(self, s):  # noqa: D102
        growth = -self.r * log1p((self.q - 1.0) * np.asarray(s, float))  # log G(s) - log G(0)
        return np.exp(growth + self.log_empty) * np.expm1(-growth) / np.expm1(self.log_empty)

    @property
    def _scale(self) -> float:
        """Scale of the gamma distribution of the Poisson mean."""
        return (1.0 - self.q) / self.q

    def average(self, risk):
        """Integrate over the gamma distributed Poisson mean, on a logarithmic axis.

        In y = log(mean) the density is exp(r y - mean / scale) and the integrand is analytic and
        falls off at both ends, so that the trapezoidal rule converges faster than any power of the
        step, however long the tail of the sizes. The weights are normalised by the probability
        1 - exp(-mean) of having records, integrated alike.
        """

        def log_weight(y):
            return self.r * y - np.exp(y) / self._scale

        def log_filled(y):
            return log_weight(y) + np.log(-np.expm1(-np.exp(y)))

        return trapezoids(risk, log_weight, log_filled, *self._range())

    def average_per_record(self, risk):
        """Integrate on a logarithmic axis too, with weight E exp(t - mean) 1(mean > t)."""
        step = np.arange(math.log(1e-20), math.log(LONG * 4.0), 0.1)
        beyond = np.exp(step)

        def log_weight(y):
            mean = np.exp(y)[:, None] + beyond
            inner = (self.r - 1.0) * np.log(mean) - beyond / (1.0 - self.q) + step
            return y - np.exp(y) / self._scale + logsumexp(inner, axis=1)

        return trapezoids(risk, log_weight, log_weight, *self._range())

    def _range(self) -> tuple[float, float, float]:
        """Lowest and highest log mean that can matter, and a first step between them."""
        top = math.log(self._scale * (self.r + 1.0))
        width = LONG / (self.r + 1.0) + 12.0 / math.sqrt(self.r + 1.0)
        return min(top, 0.0) - width, top + 5.0, min(0.2, 0.6 / math.sqrt(self.r + 1.0))

    def sample_empty_too(self, shape, rng):  # noqa: D102
        return rng.negative_binomial(self.r, self.q, shape)


def poisson(mean: float) -> Poisson:
    """Poisson distribution of cell sizes.

    Parameters
    ----------
    mean : float
        Mean number of records of a cell, empty cells included; positive and at most 1e9.

    Returns
    -------
    Poisson

    Raises
    ------
    InvalidModel
        If the mean is out of range.

    Notes
    -----
    Pr(n) = exp(-mean) mean^n / n!. The cells with records have mean size
    mean / (1 - exp(-mean)), which is larger.

    Examples
    --------
    >>> import drha
    >>> drha.poisson(0.5).truncated_pmf([0, 1, 2]).round(4)
    array([0.    , 0.7707, 0.1927])
    """
    return Poisson(_within("mean", mean, 1e-12, 1e9))


def negative_binomial(r: float, q: float) -> NegativeBinomial:
    """Negative binomial distribution of cell sizes.

    Parameters
    ----------
    r : float
        Shape, positive (need not be whole), between 1e-9 and 1e9.
    q : float
        Success probability, between 1e-9 and 1 - 1e-9.

    Returns
    -------
    NegativeBinomial

    Raises
    ------
    InvalidModel
        If a parameter is out of range.

    Notes
    -----
    Pr(n) = binom(n + r - 1, n) (1 - q)^n q^r, with mean r (1 - q) / q and variance mean / q; it is
    the mixture of Poisson distributions whose mean is Gamma(r) distributed with scale (1 - q) / q.
    """
    return NegativeBinomial(_within("r", r, 1e-9, 1e9), _within("q", q, 1e-9, 1.0 - 1e-9))


def trapezoids(risk, log_weight, log_filled, low: float, high: float, step: float):
    """Average of risk(exp(y)) with weights over the average of what is filled, to rounding.

    The step is halved, keeping the sums so far, until the average no longer changes.
    """
    grid = np.arange(low, high, step)
    peak = log_filled(grid).max()
    total, filled, before, halvings = 0.0, 0.0, None, 0
    while True:
        grid = grid[log_filled(grid) > peak - LONG]
        weights = np.exp(log_weight(grid) - peak)
        filled += np.exp(log_filled(grid) - peak).sum()
        for weight, rate in zip(weights, np.exp(grid), strict=True):
            total = total + weight * risk(rate)
        average = total / filled
        if before is not None and np.allclose(average, before, rtol=1e-12, atol=1e-15):
            return average
        if halvings == MAX_HALVINGS:
            raise DrhaError(
                "the average over sizes did not settle; the vanishing function of the noise has a "
                "sharp edge at a large count, or the sizes are almost Poisson: use drha.poisson"
            )
        before, halvings = average, halvings + 1
        grid = np.arange(low, high, step) + 0.5 * step
        step *= 0.5


def check_sizes(sizes) -> None:
    """Raise unless ``sizes`` is a distribution of cell sizes."""
    if not isinstance(sizes, CellSizes):
        raise InvalidModel(
            f"sizes must be a distribution such as drha.poisson(3.0), not {sizes!r}; "
            "for given sizes use drha.expected_risk or drha.shrinkage_risk"
        )


def _within(name: str, value, low: float, high: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise InvalidModel(f"{name} must be a number, not {value!r}") from error
    if not low <= number <= high:
        raise InvalidModel(f"{name} must lie between {low:g} and {high:g}, not {value!r}")
    return number
