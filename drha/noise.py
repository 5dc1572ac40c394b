"""Count mechanisms: what noise does to a count, seen through its vanishing function.

A mechanism adds independent noise e to every count c of the table, then follows a convention
(:mod:`drha.conventions`): by default it rounds to the nearest whole number and clips at zero. The
count is then released as 0 exactly when c + e < 1/2, so all that the homogeneity attack ever sees
of the mechanism is

    u(c) = Pr(c is released as 0) = F(1/2 - c),        s(c) = 1 - u(c) = F(c - 1/2),

with F the distribution function of the noise (symmetric about 0, no mass at half-integers).
"""

from __future__ import annotations

import abc
import math
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from scipy.optimize import brentq
from scipy.special import bernoulli, erfcx, eval_hermitenorm, log_ndtr, ndtr, ndtri

from drha.conventions import Convention, RoundAndClip, check_convention
from drha.counts import check_counts
from drha.errors import InvalidNoise

LOG_2 = math.log(2.0)
SQRT_2PI = math.sqrt(2.0 * math.pi)

MIN_SCALE, MAX_SCALE = 1e-9, 1e12  # in counts: beyond, released counts leave the exact floats


@dataclass(frozen=True)
class CountNoise(abc.ABC):
    """Symmetric noise added to each count, and the convention that follows it.

    A subclass gives the distribution function, its logarithm, the mass near a whole number and a
    sampler; whatever the homogeneity attack needs follows from these.

    Attributes
    ----------
    lattice : bool
        Whether the noise is always a whole number.
    convention : Convention
        What is done to the noisy counts; by default they are rounded, then clipped at 0.
    """

    lattice: ClassVar[bool] = False
    convention: Convention = field(default=RoundAndClip(), kw_only=True)

    @property
    @abc.abstractmethod
    def scale(self) -> float:
        """Scale of the noise, in counts."""

    @abc.abstractmethod
    def cdf(self, x):
        """Pr(noise <= x), to full relative precision in both tails."""

    @abc.abstractmethod
    def log_cdf(self, x):
        """Natural logarithm of :meth:`cdf`, finite where :meth:`cdf` underflows."""

    @abc.abstractmethod
    def log_rounded_mass(self, counts):
        """Logarithm of Pr(c - 1/2 < noise < c + 1/2) for whole c >= 0; it never underflows."""

    @abc.abstractmethod
    def sample(self, shape, rng):
        """Draw raw noise of the given shape from a ``numpy.random.Generator``."""

    def with_convention(self, convention) -> CountNoise:
        """Return the same noise followed by another convention.

        Parameters
        ----------
        convention : Convention or str
            An object of :mod:`drha.conventions`, such as ``Threshold(2.0)``, or the name of one
            without parameters: ``"round"`` (the default), ``"clip"``, ``"floor"``, ``"ceil"``,
            ``"signed"``, ``"rescale_cells"``, ``"project_cells"`` or ``"rescale_table"``.

        Returns
        -------
        CountNoise
            The privacy level is the same: a convention is post-processing.

        Raises
        ------
        InvalidNoise
            If the convention is unknown.

        Examples
        --------
        >>> import drha
        >>> noise = drha.laplace(1.0)
        >>> float(drha.local_risk([3, 0], noise).round(4))
        0.6681
        >>> float(drha.local_risk([3, 0], noise.with_convention("clip")).round(4))
        0.4876
        """
        return replace(self, convention=check_convention(convention))

    def upper_quantile(self, delta: float) -> float:
        """Smallest x >= 0 with Pr(noise >= x) <= delta, for 0 < delta < 1/2."""
        if not 0.0 < _number("delta", delta) < 0.5:
            raise InvalidNoise(f"delta must lie strictly between 0 and 1/2, not {delta!r}")
        target = math.log(delta)

        def gain(x: float) -> float:
            return target - float(self.log_cdf(-x))  # increasing; F(-x) = Pr(noise >= x)

        high = math.ceil(self.scale)
        while gain(high) < 0.0:
            high *= 2
        if self.lattice:
            return float(bisect_left(range(high + 1), 0.0, key=gain))
        return brentq(gain, 0.0, high, xtol=1e-15 * self.scale, rtol=1e-15)

    def vanishing(self, counts):
        """Probability u(c) that a true count c is released as 0.

        Parameters
        ----------
        counts : array_like of int
            True counts, any shape, each between 0 and 10^15.

        Returns
        -------
        ndarray of float
            u(c), same shape: F(1/2 - c) under the default convention.

        Raises
        ------
        InvalidCounts
            If a count is negative, fractional, not finite or too large.
        InvalidNoise
            If the convention treats several counts together, so that none vanishes on its own.
        """
        return self.convention.vanishing(self, check_counts(counts))

    def log_vanishing(self, counts):
        """Natural logarithm of :meth:`vanishing`; never underflows."""
        return self.convention.log_vanishing(self, check_counts(counts))

    def survival(self, counts):
        """Probability s(c) = 1 - u(c) that a true count c is not released as 0."""
        return self.convention.survival(self, check_counts(counts))

    def log_survival(self, counts):
        """Natural logarithm of :meth:`survival`, accurate also where u(c) is tiny."""
        return self.convention.log_survival(self, check_counts(counts))

    def release(self, counts, rng):
        """Sanitise counts: add noise, then follow the convention.

        Parameters
        ----------
        counts : array_like of int
            True counts, any shape; conventions that treat cells or tables together need the
            levels on the last axis, and the cells on the one before.
        rng : numpy.random.Generator

        Returns
        -------
        ndarray
            Released counts, same shape; whole numbers (int64) unless the convention keeps
            fractions. Count by count, zero with probability u(c), independently.

        Raises
        ------
        InvalidCounts
            If a count is not whole and non-negative, or the convention needs another shape.
        """
        true = check_counts(counts)
        noisy = true + self.sample(true.shape, rng)
        return self.convention.apply(self, noisy, true)


@dataclass(frozen=True)
class Laplace(CountNoise):
    """Laplace noise of scale sensitivity / epsilon; see :func:`laplace`."""

    epsilon: float
    sensitivity: float = 1.0

    @property
    def scale(self) -> float:
        """Scale of the noise, in counts."""
        return self.sensitivity / self.epsilon

    def cdf(self, x):  # noqa: D102
        tail = 0.5 * np.exp(-np.abs(x) / self.scale)
        return np.where(np.less(x, 0), tail, 1.0 - tail)[()]

    def log_cdf(self, x):  # noqa: D102
        depth = np.abs(x) / self.scale
        return np.where(np.less(x, 0), -depth - LOG_2, np.log1p(-0.5 * np.exp(-depth)))[()]

    def density(self, x):
        """Probability density of the noise."""
        return np.exp(-np.abs(x) / self.scale) / (2.0 * self.scale)

    def log_rounded_mass(self, counts):  # noqa: D102
        b = self.scale
        beside = -(np.asarray(counts) - 0.5) / b - LOG_2 + math.log(-math.expm1(-1.0 / b))
        return np.where(np.equal(counts, 0), math.log(-math.expm1(-0.5 / b)), beside)[()]

    def sample(self, shape, rng):  # noqa: D102
        return _generator(rng).laplace(scale=self.scale, size=shape)


@dataclass(frozen=True)
class Gaussian(CountNoise):
    """Normal noise of standard deviation sigma; see :func:`gaussian`."""

    sigma: float
    sensitivity: float = 1.0

    @property
    def scale(self) -> float:
        """Standard deviation of the noise, in counts."""
        return self.sigma

    def cdf(self, x):  # noqa: D102
        return ndtr(np.divide(x, self.sigma))

    def log_cdf(self, x):  # noqa: D102
        return log_ndtr(np.divide(x, self.sigma))

    def density(self, x):
        """Probability density of the noise."""
        return np.exp(-0.5 * np.square(np.divide(x, self.sigma))) / (self.sigma * SQRT_2PI)

    def log_rounded_mass(self, counts):
        """Logarithm of Phi((c + 1/2) / sigma) - Phi((c - 1/2) / sigma).

        Notes
        -----
        Where the density changes by less than a factor exp(8) from c to c + 1, the mass is the
        integral of the density, by Gauss-Legendre; elsewhere the further tail is negligible or
        nearly so, and is subtracted from the nearer one.
        """
        c = np.asarray(counts, dtype=float)
        smooth = (c <= 8.0 * self.sigma**2) & (self.sigma >= 0.5)
        near = self.log_cdf(0.5 - c)
        with np.errstate(divide="ignore", invalid="ignore"):  # not used where nothing is left
            apart = near + np.log1p(-np.exp(self.log_cdf(-0.5 - c) - near))
        t = np.where(smooth, c, 0.0) / self.sigma
        nodes, weights = _GAUSS_LEGENDRE_16
        y = 0.5 * nodes / max(self.sigma, 0.5)
        inside = np.exp(-(t[..., None] + 0.5 * y) * y) @ (0.5 * weights)
        together = -0.5 * t * t + np.log(inside) - math.log(self.sigma * SQRT_2PI)
        return np.where(smooth, together, apart)[()]

    def sample(self, shape, rng):  # noqa: D102
        return _generator(rng).normal(scale=self.sigma, size=shape)

    def privacy_profile(self, epsilon: float) -> float:
        """Smallest delta for which this noise is (epsilon, delta)-differentially private.

        Notes
        -----
        Phi(D / 2 sigma - epsilon sigma / D) - exp(epsilon) Phi(-D / 2 sigma - epsilon sigma / D)
        with D the l2 sensitivity (Balle & Wang 2018, Theorem 8).
        """
        _nonnegative("epsilon", epsilon)
        return math.exp(_log_gaussian_profile(self.sensitivity / self.sigma, epsilon))


@dataclass(frozen=True)
class Geometric(CountNoise):
    """Two-sided geometric (discrete Laplace) noise; see :func:`geometric`."""

    lattice: ClassVar[bool] = True
    epsilon: float
    sensitivity: float = 1.0

    @property
    def scale(self) -> float:
        """The noise takes value k with probability proportional to exp(-|k| / scale)."""
        return self.sensitivity / self.epsilon

    def cdf(self, x):  # noqa: D102
        return np.exp(self.log_cdf(x))

    def log_cdf(self, x):  # noqa: D102
        k = np.floor(x)
        # Pr(noise >= j) = a^j / (1 + a) for j >= 1, with a = exp(-1 / scale); here j is -k or k + 1
        depth = np.where(k < 0, -k, k + 1.0) / self.scale
        log_tail = -depth - math.log1p(math.exp(-1.0 / self.scale))
        return np.where(k < 0, log_tail, np.log1p(-np.exp(log_tail)))[()]

    def log_rounded_mass(self, counts):  # noqa: D102
        centre = math.tanh(0.5 / self.scale)  # (1 - a) / (1 + a)
        return (math.log(centre) - np.asarray(counts) / self.scale)[()]

    def sample(self, shape, rng):  # noqa: D102
        return _discrete_laplace(self.scale, shape, _generator(rng))


@dataclass(frozen=True)
class DiscreteGaussian(CountNoise):
    """Normal weights on the integers; see :func:`discrete_gaussian`."""

    lattice: ClassVar[bool] = True
    sigma: float
    sensitivity: float = 1.0
    substitution: bool = False  # neighbours move one record from one count to another

    @property
    def scale(self) -> float:
        """The parameter sigma, in counts."""
        return self.sigma

    @property
    def rho(self) -> float:
        """The mechanism is rho-zero-concentrated differentially private."""
        return 0.5 * (self.sensitivity / self.sigma) ** 2

    @property
    def log_normaliser(self) -> float:
        """Logarithm of the sum over all integers k of exp(-k^2 / 2 sigma^2)."""
        return _log_theta(self.sigma, 0.0)

    def log_upper_tail(self, counts):
        """Logarithm of Pr(noise >= c) for whole c >= 0."""
        c = np.asarray(counts, dtype=float)
        log_weight = -0.5 * (c / self.sigma) ** 2
        return (log_weight + np.log(_tail_ratio(c, self.sigma)) - self.log_normaliser)[()]

    def log_rounded_mass(self, counts):  # noqa: D102
        return (-0.5 * np.square(np.asarray(counts) / self.sigma) - self.log_normaliser)[()]

    def cdf(self, x):  # noqa: D102
        return np.exp(self.log_cdf(x))

    def log_cdf(self, x):  # noqa: D102
        k = np.floor(x)
        log_tail = self.log_upper_tail(np.where(k < 0, -k, k + 1.0))
        return np.where(k < 0, log_tail, np.log1p(-np.exp(log_tail)))[()]

    def sample(self, shape, rng):
        """Draw by rejection from the discrete Laplace distribution.

        Notes
        -----
        A proposal y of scale t = floor(sigma) + 1 is kept with probability
        exp(-(|y| - sigma^2 / t)^2 / 2 sigma^2), after Canonne, Kamath & Steinke (2020),
        Algorithm 3. The law is exact in real arithmetic; this implementation decides with
        double-precision floats, which is right for studying risk, not for hardened production.
        """
        rng = _generator(rng)
        t = math.floor(self.sigma) + 1
        draws = np.empty(math.prod(np.atleast_1d(shape).tolist()), dtype=np.int64)
        missing = np.arange(draws.size)
        while missing.size:
            proposal = _discrete_laplace(float(t), missing.size, rng)
            miss = (np.abs(proposal) - self.sigma**2 / t) / self.sigma
            kept = rng.random(missing.size) < np.exp(-0.5 * miss**2)
            draws[missing[kept]] = proposal[kept]
            missing = missing[~kept]
        return draws.reshape(shape)

    def privacy_profile(self, epsilon: float) -> float:
        """Smallest delta for which this noise is (epsilon, delta)-differentially private.

        For one count that changes by a whole ``sensitivity`` (adding or removing records), or for
        two counts that change by 1 in opposite directions (``substitution``).

        Notes
        -----
        One count: Pr(Y > t) - exp(epsilon) Pr(Y > t + D) with t = epsilon sigma^2 / D - D / 2
        (Canonne, Kamath & Steinke 2020, Theorem 7). Two counts: the privacy loss is
        (Y - Y' + 1) / sigma^2; the even and the odd values of Y - Y' are each, halved, a discrete
        Gaussian of parameter sigma / sqrt(2), on the whole numbers and on the half-integers.
        """
        _nonnegative("epsilon", epsilon)
        _whole_sensitivity(self.sensitivity, self.substitution)
        return math.exp(self._log_profile(epsilon))

    def _log_profile(self, epsilon: float) -> float:
        if self.substitution:
            return self._log_pair_profile(epsilon)
        shift = self.sensitivity
        first = math.floor(epsilon * self.sigma**2 / shift - shift / 2) + 1.0
        gain = self.log_cdf(-first)  # Pr(Y >= first)
        if first >= 0:  # the common factors of both tails cancel, their difference survives
            ratio = _tail_ratio(first + np.array([0.0, shift]), self.sigma)
            lost = -shift * (first + shift / 2) / self.sigma**2 + math.log(ratio[1] / ratio[0])
        else:
            lost = self.log_cdf(-first - shift) - gain
        return float(gain) + math.log(max(-math.expm1(min(epsilon + lost, 0.0)), 5e-324))

    def _log_pair_profile(self, epsilon: float) -> float:
        sigma = self.sigma / math.sqrt(2.0)
        parts = []
        for offset in (0.0, 0.5):  # half the difference of the two noises, even and odd
            first = math.floor(epsilon * sigma**2 - 0.5 - offset) + 1.0 + offset  # never negative
            ratio = _tail_ratio(np.array([first, first + 1.0]), sigma)
            gain = -0.5 * (first / sigma) ** 2 + math.log(ratio[0]) + _log_theta(sigma, offset)
            lost = -(first + 0.5) / sigma**2 + math.log(ratio[1] / ratio[0])
            parts.append(gain + math.log(max(-math.expm1(min(epsilon + lost, 0.0)), 5e-324)))
        return float(np.logaddexp(*parts)) - 2.0 * self.log_normaliser


def laplace(epsilon: float, *, sensitivity: float | str = "add_remove") -> Laplace:
    """Laplace mechanism for counts.

    Parameters
    ----------
    epsilon : float
        Privacy loss of the whole table, positive.
    sensitivity : float or {"add_remove", "substitution"}, default "add_remove"
        l1 sensitivity of the table. Neighbouring tables differ by one record added or removed
        (sensitivity 1), or by one record that is replaced by another, which moves it from one
        count to another (sensitivity 2).

    Returns
    -------
    Laplace

    Raises
    ------
    InvalidNoise
        If a parameter is not positive and finite, or the scale is outside [1e-9, 1e12] counts.

    Notes
    -----
    With a = exp(-epsilon / sensitivity): u(0) = 1 - sqrt(a) / 2 and u(c) = a^(c - 1/2) / 2 for
    c >= 1 (Dwork et al. 2006).

    Examples
    --------
    >>> import drha
    >>> float(drha.laplace(2.0).vanishing(1))
    0.18393972058572117
    """
    _positive("epsilon", epsilon)
    sensitivity = _sensitivity(sensitivity, substitution=2.0)
    _scale(sensitivity / epsilon)
    return Laplace(float(epsilon), sensitivity)


def geometric(epsilon: float, *, sensitivity: float | str = "add_remove") -> Geometric:
    """Two-sided geometric (discrete Laplace) mechanism for counts.

    Parameters
    ----------
    epsilon : float
        Privacy loss of the whole table, positive.
    sensitivity : float or {"add_remove", "substitution"}, default "add_remove"
        l1 sensitivity of the table: 1 under adding or removing a record, 2 under substitution.

    Returns
    -------
    Geometric

    Raises
    ------
    InvalidNoise
        If a parameter is not positive and finite, or the scale is outside [1e-9, 1e12] counts.

    Notes
    -----
    With a = exp(-epsilon / sensitivity) the noise is k with probability
    a^|k| (1 - a) / (1 + a), so u(c) = a^c / (1 + a) for every c >= 0
    (Ghosh, Roughgarden & Sundararajan 2012).
    """
    _positive("epsilon", epsilon)
    sensitivity = _sensitivity(sensitivity, substitution=2.0)
    _scale(sensitivity / epsilon)
    return Geometric(float(epsilon), sensitivity)


def gaussian(
    epsilon: float | None = None,
    *,
    delta: float | None = None,
    calibration: str = "analytic",
    sensitivity: float | str = "add_remove",
    sigma: float | None = None,
) -> Gaussian:
    """Gaussian mechanism for counts.

    Parameters
    ----------
    epsilon, delta : float
        Privacy parameters, epsilon > 0 and 0 < delta < 1.
    calibration : {"analytic", "classical", "pdp"}
        How sigma follows from them; see Notes.
    sensitivity : float or {"add_remove", "substitution"}, default "add_remove"
        l2 sensitivity of the table: 1 under adding or removing a record, sqrt(2) under
        substitution.
    sigma : float, optional
        The standard deviation itself, instead of epsilon and delta.

    Returns
    -------
    Gaussian
        With attribute ``sigma`` and method ``privacy_profile(epsilon)``.

    Raises
    ------
    InvalidNoise
        If a parameter is out of range, or both or neither of sigma and (epsilon, delta) is given.

    Notes
    -----
    D is the sensitivity.

    * ``"analytic"``: the smallest sigma that is (epsilon, delta)-DP (Balle & Wang 2018).
    * ``"classical"``: D sqrt(2 ln(1.25 / delta)) / epsilon, proved (epsilon, delta)-DP only for
      epsilon < 1 (Dwork & Roth 2014, Theorem A.1); ``privacy_profile`` tells what it delivers.
    * ``"pdp"``: D (sqrt(q^2 + 2 epsilon) - q) / (2 epsilon) with q = Phi^-1(delta / 2), under
      which the privacy loss exceeds epsilon in absolute value with probability at most delta.
    """
    sensitivity = _sensitivity(sensitivity, substitution=math.sqrt(2.0))
    if calibration not in _CALIBRATIONS:
        raise InvalidNoise(
            f"calibration {calibration!r} is unknown; choose one of {sorted(_CALIBRATIONS)}"
        )
    if _one_way({"sigma": sigma}, {"epsilon": epsilon, "delta": delta}) == 0:
        _positive("sigma", sigma)
    else:
        _positive("epsilon", epsilon)
        _probability("delta", delta)
        sigma = sensitivity * _CALIBRATIONS[calibration](float(epsilon), float(delta))
    _scale(sigma)
    return Gaussian(float(sigma), sensitivity)


def discrete_gaussian(
    epsilon: float | None = None,
    *,
    delta: float | None = None,
    rho: float | None = None,
    sigma: float | None = None,
    sensitivity: float | str = "add_remove",
) -> DiscreteGaussian:
    """Discrete Gaussian mechanism for counts.

    Give exactly one of (epsilon, delta), rho or sigma.

    Parameters
    ----------
    epsilon, delta : float
        Privacy parameters, epsilon > 0 and 0 < delta < 1; sigma is then where the exact privacy
        profile equals delta, which needs a named or a whole-number sensitivity.
    rho : float
        Zero-concentrated privacy loss; sigma = sensitivity / sqrt(2 rho).
    sigma : float
        The parameter of the weights exp(-k^2 / 2 sigma^2) itself.
    sensitivity : float or {"add_remove", "substitution"}, default "add_remove"
        l2 sensitivity of the table: 1 under adding or removing a record, sqrt(2) under
        substitution.

    Returns
    -------
    DiscreteGaussian
        With attributes ``sigma`` and ``rho`` and method ``privacy_profile(epsilon)``.

    Raises
    ------
    InvalidNoise
        If a parameter is out of range or not exactly one way to choose sigma is given.

    Notes
    -----
    u(c) = Pr(noise <= -c) under Pr(noise = k) proportional to exp(-k^2 / 2 sigma^2)
    (Canonne, Kamath & Steinke 2020).
    """
    substitution = sensitivity == "substitution"
    sensitivity = _sensitivity(sensitivity, substitution=math.sqrt(2.0))
    way = _one_way({"sigma": sigma}, {"rho": rho}, {"epsilon": epsilon, "delta": delta})
    if way == 0:
        _positive("sigma", sigma)
    elif way == 1:
        _positive("rho", rho)
        sigma = sensitivity / math.sqrt(2.0 * rho)
    else:
        _positive("epsilon", epsilon)
        _probability("delta", delta)
        _whole_sensitivity(sensitivity, substitution)
        sigma = _safe_sigma(
            lambda s: DiscreteGaussian(s, sensitivity, substitution)._log_profile(epsilon), delta
        )
    _scale(sigma)
    return DiscreteGaussian(float(sigma), sensitivity, substitution)


# Calibrations of the Gaussian mechanism, for sensitivity 1.


def _classical_sigma(epsilon: float, delta: float) -> float:
    return math.sqrt(2.0 * (math.log(1.25) - math.log(delta))) / epsilon


def _pdp_sigma(epsilon: float, delta: float) -> float:
    q = ndtri(delta / 2.0)  # negative, so nothing cancels below
    return (math.sqrt(q * q + 2.0 * epsilon) - q) / (2.0 * epsilon)


def _analytic_sigma(epsilon: float, delta: float) -> float:
    return _safe_sigma(lambda sigma: _log_gaussian_profile(1.0 / sigma, epsilon), delta)


_CALIBRATIONS = {"analytic": _analytic_sigma, "classical": _classical_sigma, "pdp": _pdp_sigma}

_GAUSS_LEGENDRE = np.polynomial.legendre.leggauss(8)
_GAUSS_LEGENDRE_16 = np.polynomial.legendre.leggauss(16)


def _mills(t):
    """Mills ratio Phi(-t) / phi(t) of the standard normal."""
    return math.sqrt(math.pi / 2.0) * erfcx(np.divide(t, math.sqrt(2.0)))


def _log_gaussian_profile(shift: float, epsilon: float) -> float:
    """Logarithm of the smallest delta when the mean moves by ``shift`` standard deviations.

    With a = epsilon / shift - shift / 2 and b = a + shift, phi(a) = exp(epsilon) phi(b), so
    delta = phi(a) [M(a) - M(b)], M the Mills ratio: the exponential never appears. For a small
    shift the difference is the integral of -M'(t) = 1 - t M(t) over [a, b].
    """
    a = epsilon / shift - shift / 2.0
    b = a + shift
    log_density = -0.5 * a * a - math.log(SQRT_2PI)
    if shift < 0.1:
        nodes, weights = _GAUSS_LEGENDRE
        t = a + 0.5 * shift * (nodes + 1.0)
        difference = 0.5 * shift * float(weights @ (1.0 - t * _mills(t)))
    elif a > 0.0:
        difference = _mills(a) - _mills(b)
    else:  # M(a) may overflow, Phi(-a) does not
        return math.log(ndtr(-a) - math.exp(log_density) * _mills(b))
    return log_density + math.log(max(difference, 5e-324))


def _safe_sigma(log_profile, delta: float) -> float:
    """Where a decreasing log privacy profile of sigma reaches log(delta), from the safe side."""
    target = math.log(delta)

    def excess(log_sigma: float) -> float:
        return log_profile(math.exp(log_sigma)) - target

    low = high = 0.0
    while excess(low) <= 0.0:
        low -= LOG_2
    while excess(high) > 0.0:
        high += LOG_2
    root = brentq(excess, low, high, xtol=1e-15, rtol=1e-15)
    step = 1e-15
    while excess(root) > 0.0:
        root, step = root + step, 2.0 * step
    return math.exp(root)


# The discrete Gaussian and discrete Laplace distributions.

_DIRECT_SIGMA = 20.0
_LOG_NEGLIGIBLE = 42.0
# coefficients of 1 / (2 sinh(D / 2)) = 1 / D - D / 24 + 7 D^3 / 5760 - ...
_MIDPOINT = [
    -(1.0 - 2.0 ** (1 - 2 * j)) * bernoulli(2 * j)[-1] / math.factorial(2 * j) for j in range(1, 6)
]


def _log_theta(sigma: float, offset: float) -> float:
    """Logarithm of the sum over integers k of exp(-(k + offset)^2 / 2 sigma^2), offset 0 or 1/2.

    The theta series directly for sigma < 1, after Poisson summation for sigma >= 1. In both forms
    the terms decrease faster than a geometric series of ratio 1/2, so what is left out is below
    twice the first omitted term: 2e-26 after ten terms, 1e-76 after two.
    """
    if sigma < 1.0:
        k = np.arange(0 if offset else 1, 11) + offset
        scaled = 2.0 * np.exp(-0.5 * (k**2 - offset**2) / sigma**2).sum()
        if offset:  # its largest terms, those of -1/2 and 1/2, are taken out of the sum
            return math.log(scaled) - 0.5 * (offset / sigma) ** 2
        return math.log1p(scaled)
    k = np.arange(1, 3)
    folded = (np.exp(-2.0 * (math.pi * sigma * k) ** 2) * np.cos(2.0 * math.pi * k * offset)).sum()
    return math.log(sigma * SQRT_2PI) + math.log1p(2.0 * folded)


def _tail_ratio(c: np.ndarray, sigma: float) -> np.ndarray:
    """Sum over j >= 0 of exp(-((c + j)^2 - c^2) / 2 sigma^2), elementwise for any c >= 0.

    Summed directly where at most some 200 terms matter; elsewhere (sigma >= 20, c < sigma^2 / 4)
    the sum is smooth enough for the Euler-Maclaurin formula.
    """
    smooth = (c < 0.25 * sigma**2) & (sigma >= _DIRECT_SIGMA)
    ratio = np.empty_like(c)
    ratio[smooth] = _smooth_tail_ratio(c[smooth], sigma)
    ratio[~smooth] = _direct_tail_ratio(c[~smooth], sigma)
    return ratio


def _direct_tail_ratio(c: np.ndarray, sigma: float) -> np.ndarray:
    """Sum until the exponent is below -42.

    Successive terms then shrink at least by exp(-1/4), so what is left out of the sum (which is
    at least 1) is below 5 exp(-42) < 1e-17.
    """
    total = np.ones_like(c)
    if c.size:
        span = 2.0 * _LOG_NEGLIGIBLE * sigma**2  # (c + j)^2 - c^2 reaches it after `terms`
        terms = math.ceil(span / (math.hypot(c.min(), math.sqrt(span)) + c.min()))
        for j in range(1, terms + 1):
            total += np.exp(-(0.5 * j / sigma) * ((2.0 * c + j) / sigma))
    return total


def _smooth_tail_ratio(c: np.ndarray, sigma: float) -> np.ndarray:
    """Integral from c - 1/2 on, corrected by odd derivatives there.

    Relative to the sum, the j-th correction falls off as (x / 2 pi sigma^2)^(2 j), where
    x / sigma^2 <= 1/4: after five of them the rest is below (1 / 8 pi)^12 < 1e-16.
    """
    x = c - 0.5
    t = x / sigma
    total = sigma * _mills(t)
    for j, coefficient in enumerate(_MIDPOINT, start=1):
        order = 2 * j - 1  # this derivative of exp(-x^2 / 2 sigma^2) is -He(t) / sigma^order of it
        total += coefficient * eval_hermitenorm(order, t) / sigma**order
    return total * np.exp((x + 0.25) / (2.0 * sigma**2))


def _discrete_laplace(scale: float, shape, rng: np.random.Generator) -> np.ndarray:
    """Whole numbers k with probability proportional to exp(-|k| / scale)."""
    success = -math.expm1(-1.0 / scale)
    return rng.geometric(success, size=shape) - rng.geometric(success, size=shape)


# Checks of parameters.


def _generator(rng) -> np.random.Generator:
    if not isinstance(rng, np.random.Generator):
        raise InvalidNoise(
            f"rng must be a numpy.random.Generator, not {type(rng).__name__}; "
            "pass numpy.random.default_rng(seed)"
        )
    return rng


def _number(name: str, value) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise InvalidNoise(f"{name} must be a number, not {value!r}") from error


def _positive(name: str, value) -> None:
    if not 0.0 < _number(name, value) < math.inf:
        raise InvalidNoise(f"{name} must be positive and finite, not {value!r}")


def _nonnegative(name: str, value) -> None:
    if not 0.0 <= _number(name, value) < math.inf:
        raise InvalidNoise(f"{name} must be non-negative and finite, not {value!r}")


def _probability(name: str, value) -> None:
    if not 0.0 < _number(name, value) < 1.0:
        raise InvalidNoise(f"{name} must lie strictly between 0 and 1, not {value!r}")


def _scale(scale: float) -> None:
    if not MIN_SCALE <= scale <= MAX_SCALE:
        raise InvalidNoise(
            f"the noise would have scale {scale:.3g} counts, outside [{MIN_SCALE:.0e}, "
            f"{MAX_SCALE:.0e}]; choose another privacy level or sensitivity"
        )


def _sensitivity(value: float | str, *, substitution: float) -> float:
    """Return the sensitivity as a number: 1 for an added or removed record, else as given."""
    if isinstance(value, str):
        named = {"add_remove": 1.0, "substitution": substitution}
        if value not in named:
            raise InvalidNoise(
                f"sensitivity {value!r} is unknown; give a number or one of {sorted(named)}"
            )
        return named[value]
    _positive("sensitivity", value)
    return float(value)


def _whole_sensitivity(sensitivity: float, substitution: bool) -> None:
    if not substitution and sensitivity != math.floor(sensitivity):
        raise InvalidNoise(
            f"the exact (epsilon, delta) profile of the discrete Gaussian needs a whole "
            f"sensitivity, not {sensitivity!r}; calibrate by rho or sigma, or name the "
            "sensitivity: 'substitution' for one record that moves from count to count"
        )


def _one_way(*ways: dict) -> int:
    """Index of the only group of parameters that is given, and given completely."""
    given = [i for i, way in enumerate(ways) if any(value is not None for value in way.values())]
    names = " or ".join("(" + ", ".join(way) + ")" for way in ways)
    if len(given) != 1:
        raise InvalidNoise(f"give exactly one of {names}")
    missing = [name for name, value in ways[given[0]].items() if value is None]
    if missing:
        raise InvalidNoise(f"{', '.join(missing)} is missing; give exactly one of {names}")
    return given[0]
