"""Conventions: what is done to a noisy count before it is released.

Noise makes counts fractional and negative, so something must follow it. Whatever follows is
post-processing and costs no privacy, but it decides which counts are released as zero, and so
what a homogeneity attack sees. Where each count is treated alone, a convention is its vanishing
function

    u(c) = Pr(c is released as 0) = F(x - c),        s(c) = 1 - u(c) = F(c - x),

with F the distribution function of the noise (symmetric about 0) and x the cutoff below which a
noisy count is released as 0. Signed rounding has a formula of its own. The conventions that treat
the counts of a cell or of a table together have no vanishing function:
:func:`drha.simulated_risk` answers for them.
"""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from drha.errors import InvalidCounts, InvalidNoise

if TYPE_CHECKING:
    from drha.noise import CountNoise


class Convention(abc.ABC):
    """What is done to noisy counts before they are released.

    Attributes
    ----------
    axes : int
        How many trailing axes of an array of counts are treated together: 0 for count by count,
        1 for the levels of a cell, 2 for the cells of a table.
    """

    axes: ClassVar[int] = 0

    @abc.abstractmethod
    def apply(self, noise: CountNoise, noisy: np.ndarray, true: np.ndarray) -> np.ndarray:
        """Released counts from noisy ones.

        Parameters
        ----------
        noise : CountNoise
            The noise that was added; its scale sets some thresholds.
        noisy : ndarray
            Noisy counts.
        true : ndarray of int, same shape
            True counts; only their public margins may be used.
        """

    @abc.abstractmethod
    def log_vanishing(self, noise: CountNoise, counts: np.ndarray) -> np.ndarray:
        """Logarithm of the probability that each count is released as 0."""

    @abc.abstractmethod
    def log_survival(self, noise: CountNoise, counts: np.ndarray) -> np.ndarray:
        """Logarithm of the probability that each count is not released as 0."""

    def vanishing(self, noise: CountNoise, counts: np.ndarray) -> np.ndarray:
        """Probability that each count is released as 0."""
        return np.exp(self.log_vanishing(noise, counts))

    def survival(self, noise: CountNoise, counts: np.ndarray) -> np.ndarray:
        """Probability that each count is not released as 0."""
        return np.exp(self.log_survival(noise, counts))


class _Cutoff(Convention):
    """Released as 0 when the noisy count falls below a cutoff."""

    @abc.abstractmethod
    def edge(self, noise: CountNoise, value):
        """Return x such that at most ``value`` is released exactly when c + noise < x.

        ``value`` is at least 0, and whole where only whole numbers are released. Whole-number
        noise reaches whole edges, so for it x is a half-integer.
        """

    def cutoff(self, noise: CountNoise) -> float:
        """Return x such that a count c vanishes exactly when c + noise < x."""
        return self.edge(noise, 0)

    def vanishing(self, noise, counts):
        return noise.cdf(self.cutoff(noise) - counts)

    def survival(self, noise, counts):
        return noise.cdf(counts - self.cutoff(noise))

    def log_vanishing(self, noise, counts):
        return noise.log_cdf(self.cutoff(noise) - counts)

    def log_survival(self, noise, counts):
        return noise.log_cdf(counts - self.cutoff(noise))


def _below(threshold, noise: CountNoise):
    """Edge of a rule about what is strictly below a threshold."""
    return np.ceil(threshold) - 0.5 if noise.lattice else threshold


def _up_to(threshold, noise: CountNoise):
    """Edge of a rule about what is at most a threshold."""
    return np.floor(threshold) + 0.5 if noise.lattice else threshold


def _nearest(values: np.ndarray) -> np.ndarray:
    """Round to the nearest whole number, halves up."""
    return np.floor(values + 0.5).astype(np.int64)


@dataclass(frozen=True)
class RoundAndClip(_Cutoff):
    """Round to the nearest whole number, then replace negative ones by 0: x = 1/2."""

    def edge(self, noise, value):
        """Return value + 1/2."""
        return value + 0.5

    def apply(self, noise, noisy, true):
        """Round, then clip at 0."""
        return np.maximum(_nearest(noisy), 0)


@dataclass(frozen=True)
class Clip(_Cutoff):
    """Replace negative noisy counts by 0 and keep the fractional others: x = 0.

    Half of the empty levels then show some positive number at any epsilon, unless the noise is
    itself whole, where this is the same as rounding.
    """

    def edge(self, noise, value):
        """Return the value, or 1/2 more for whole-number noise."""
        return _up_to(value, noise)

    def apply(self, noise, noisy, true):
        """Clip at 0, without rounding."""
        return np.maximum(noisy, 0)


@dataclass(frozen=True)
class Floor(_Cutoff):
    """Round down, then replace negative counts by 0: x = 1."""

    def edge(self, noise, value):
        """Return value + 1, or 1/2 less for whole-number noise."""
        return _below(value + 1.0, noise)

    def apply(self, noise, noisy, true):
        """Round down, then clip at 0."""
        return np.maximum(np.floor(noisy).astype(np.int64), 0)


@dataclass(frozen=True)
class Ceil(_Cutoff):
    """Round up, then replace negative counts by 0: x = 0."""

    def edge(self, noise, value):
        """Return the value, or 1/2 more for whole-number noise."""
        return _up_to(value, noise)

    def apply(self, noise, noisy, true):
        """Round up, then clip at 0."""
        return np.maximum(np.ceil(noisy).astype(np.int64), 0)


class _Threshold(_Cutoff):
    """Release 0 below a threshold; round the rest to the nearest whole number.

    A threshold that follows the noise may fall below 1/2. Rounding then decides, since what is
    below 1/2 rounds to 0: the threshold is never taken below 1/2.
    """

    @abc.abstractmethod
    def threshold(self, noise: CountNoise) -> float:
        """Smallest noisy count that is kept."""

    def edge(self, noise, value):
        """Return value + 1/2, but at least the threshold."""
        return np.maximum(_below(self.threshold(noise), noise), value + 0.5)

    def apply(self, noise, noisy, true):
        """Round what reaches the threshold, and zero the rest."""
        return np.where(noisy < self.threshold(noise), 0, _nearest(noisy))


@dataclass(frozen=True)
class Threshold(_Threshold):
    """Release a noisy count below ``tau`` as 0 and round the others.

    Parameters
    ----------
    tau : float
        In counts, at least 1/2; smaller noisy counts would be rounded to 0 in any case.
    """

    tau: float

    def __post_init__(self):
        if not 0.5 <= _real("tau", self.tau) < math.inf:
            raise InvalidNoise(
                f"tau must be a finite number of counts from 1/2 on, not {self.tau!r}; "
                "what lies below 1/2 rounds to 0 without a threshold"
            )

    def threshold(self, noise):
        """Return ``tau``."""
        return float(self.tau)


@dataclass(frozen=True)
class ScaledThreshold(_Threshold):
    """A threshold of ``t`` noise scales: ``tau = max(1/2, t * noise.scale)``.

    Parameters
    ----------
    t : float
        Positive. For Laplace noise under added or removed records tau = t / epsilon, and an empty
        level survives with probability exp(-t) / 2 at every epsilon below 2 t.
    """

    t: float

    def __post_init__(self):
        if not 0.0 < _real("t", self.t) < math.inf:
            raise InvalidNoise(
                f"t must be a positive, finite number of noise scales, not {self.t!r}"
            )

    def threshold(self, noise):
        """Return t noise scales, but at least 1/2."""
        return max(0.5, self.t * noise.scale)


@dataclass(frozen=True)
class StabilityThreshold(_Threshold):
    """The smallest threshold that a count of one reaches with probability at most ``delta``.

    Under it, levels that occur in no record may be left out of the release altogether at the
    price of ``delta`` (stability-based histograms, Korolova et al. 2009). For Laplace noise under
    added or removed records tau = 1 + ln(1 / 2 delta) / epsilon.

    Parameters
    ----------
    delta : float
        Between 0 and 1/2, exclusive.
    """

    delta: float

    def __post_init__(self):
        if not 0.0 < _real("delta", self.delta) < 0.5:
            raise InvalidNoise(
                f"delta must lie strictly between 0 and 1/2, not {self.delta!r}; "
                "at 1/2 noise alone already hides a count of one"
            )

    def threshold(self, noise):
        """Return one more than the upper delta-quantile of the noise."""
        return 1.0 + noise.upper_quantile(self.delta)


@dataclass(frozen=True)
class SignedRounding(Convention):
    """Round to the nearest whole number and keep negative counts.

    A count is then released as 0 only when the noise is within 1/2 of its negative,
    u(c) = F(1/2 - c) - F(-1/2 - c), which tends to 0 with epsilon: the floor 2^-K of the
    disclosure risk is the work of clipping.
    """

    def apply(self, noise, noisy, true):
        """Round."""
        return _nearest(noisy)

    def log_vanishing(self, noise, counts):
        """Logarithm of Pr(c - 1/2 < noise < c + 1/2), by symmetry."""
        return noise.log_rounded_mass(counts)

    def log_survival(self, noise, counts):
        """Logarithm of F(c - 1/2) + F(-c - 1/2), a sum of positive terms."""
        return np.logaddexp(noise.log_cdf(counts - 0.5), noise.log_cdf(-counts - 0.5))


class _Joint(Convention):
    """Treats several counts together, so none has a vanishing probability of its own."""

    def _refuse(self):
        raise InvalidNoise(
            f"{type(self).__name__} treats the counts of a cell together, so there is no vanishing "
            "function and no closed form; use drha.simulated_risk"
        )

    def log_vanishing(self, noise, counts):
        """Refused: the counts do not vanish independently."""
        self._refuse()

    log_survival = log_vanishing

    def apply(self, noise, noisy, true):
        """Treat cells together; the last axes must be the levels, and for a table the cells."""
        if true.ndim < self.axes or 0 in true.shape[true.ndim - self.axes :]:
            wanted = "(..., levels)" if self.axes == 1 else "(..., cells, levels)"
            raise InvalidCounts(
                f"{type(self).__name__} needs counts of shape {wanted}, not {true.shape}"
            )
        return self._release(np.asarray(noisy, dtype=float), true)

    @abc.abstractmethod
    def _release(self, noisy: np.ndarray, true: np.ndarray) -> np.ndarray:
        """Released counts, once the shape is known to be right."""


@dataclass(frozen=True)
class RescaleCells(_Joint):
    """Clip at 0, rescale each cell to its true size, which is public, and round.

    A cell of which nothing positive is left has no proportions to rescale and is released empty.
    The sizes are released as they are, so privacy is that of the levels within cells of known
    size: neighbouring tables differ by the substitution of one sensitive value.
    """

    axes: ClassVar[int] = 1

    def _release(self, noisy, true):
        return _rescale(noisy, true, axis=-1)


@dataclass(frozen=True)
class ProjectCells(_Joint):
    """Move each noisy cell to the nearest point with its true, public size, and round.

    The nearest point, in Euclidean distance, among non-negative numbers that add up to the size
    of the cell (Held, Wolfe & Crowder 1974). Of privacy the same holds as for
    :class:`RescaleCells`.
    """

    axes: ClassVar[int] = 1

    def _release(self, noisy, true):
        return _nearest(project_to_simplex(noisy, true.sum(axis=-1)))


@dataclass(frozen=True)
class RescaleTable(_Joint):
    """Clip at 0, rescale the whole table to its true total, which is public, and round.

    The last two axes of the counts are the cells and the levels of one table. A table of which
    nothing positive is left is released empty.
    """

    axes: ClassVar[int] = 2

    def _release(self, noisy, true):
        return _rescale(noisy, true, axis=(-2, -1))


def _rescale(noisy: np.ndarray, true: np.ndarray, axis) -> np.ndarray:
    """Clip, rescale to the true sums over ``axis`` and round."""
    positive = np.maximum(noisy, 0.0)
    total = positive.sum(axis=axis, keepdims=True)
    size = true.sum(axis=axis, keepdims=True)
    return _nearest(positive * (size / np.where(total > 0, total, 1.0)))


def project_to_simplex(points, totals) -> np.ndarray:
    """Nearest non-negative vectors with given sums, along the last axis.

    Parameters
    ----------
    points : ndarray of float, shape (..., K)
    totals : array_like, shape (...)
        Non-negative.

    Returns
    -------
    ndarray of float, shape (..., K)
        max(x_k - t, 0) with t such that the entries add up to the total.

    Notes
    -----
    The entries above t are the largest ones; their number is the last j for which the j-th
    largest exceeds the t that the j largest alone would need (Held, Wolfe & Crowder 1974).
    """
    descending = -np.sort(-points, axis=-1)
    number = np.arange(1, points.shape[-1] + 1)
    shift = (np.cumsum(descending, axis=-1) - np.asarray(totals)[..., None]) / number
    kept = np.maximum((descending > shift).sum(axis=-1, keepdims=True), 1)
    return np.maximum(points - np.take_along_axis(shift, kept - 1, axis=-1), 0.0)


CONVENTIONS = {
    "round": RoundAndClip(),
    "clip": Clip(),
    "floor": Floor(),
    "ceil": Ceil(),
    "signed": SignedRounding(),
    "rescale_cells": RescaleCells(),
    "project_cells": ProjectCells(),
    "rescale_table": RescaleTable(),
}
"""The conventions that need no parameter, by name."""


def check_convention(convention) -> Convention:
    """Return a convention, given itself or a name in :data:`CONVENTIONS`."""
    if isinstance(convention, Convention):
        return convention
    if isinstance(convention, str) and convention in CONVENTIONS:
        return CONVENTIONS[convention]
    raise InvalidNoise(
        f"convention {convention!r} is unknown; choose one of {list(CONVENTIONS)} or pass a "
        "drha.conventions object such as Threshold(2.0)"
    )


def _real(name: str, value) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise InvalidNoise(f"{name} must be a number, not {value!r}") from error
