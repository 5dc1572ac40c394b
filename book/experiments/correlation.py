"""Correlations with confidence intervals."""

import numpy as np
from scipy.stats import norm, rankdata


def correlation(x, y, rng, *, ranks=False, level=0.95, resamples=2000):
    """Return a correlation coefficient with a bootstrap interval.

    Parameters
    ----------
    x, y : array_like, shape (n,)
        Paired values.
    rng : numpy.random.Generator
        Draws the resamples.
    ranks : bool, optional
        Spearman's coefficient of ranks, not Pearson's.
    level : float, optional
        Confidence, in (0, 1).
    resamples : int, optional
        How many times n pairs are drawn with replacement.

    Returns
    -------
    tuple of float
        Coefficient, lower and upper end.

    Raises
    ------
    ValueError
        If there are fewer than four pairs, or a coordinate does not vary.

    Notes
    -----
    The ends are percentiles of the resampled coefficients. Nothing is assumed of the joint
    distribution, as `fisher_interval` does.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if x.shape != y.shape or x.ndim != 1 or len(x) < 4:
        raise ValueError(f"at least four pairs are needed, got shapes {x.shape} and {y.shape}")
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        raise ValueError("a coordinate that does not vary has no correlation")
    drawn = rng.integers(len(x), size=(resamples, len(x)))
    tail = (1 - level) / 2
    low, high = np.nanquantile(_coefficients(x[drawn], y[drawn], ranks), [tail, 1 - tail])
    return float(_coefficients(x, y, ranks)), float(low), float(high)


def fisher_interval(coefficient, count, level=0.95):
    """Return Fisher's confidence interval of Pearson's coefficient.

    Parameters
    ----------
    coefficient : float
        Of the sample, in (-1, 1).
    count : int
        Pairs in the sample, at least four.
    level : float, optional
        Confidence, in (0, 1).

    Returns
    -------
    tuple of float
        Lower and upper end.

    Notes
    -----
    For normal pairs artanh of the coefficient is nearly normal with variance 1 / (n - 3).
    """
    if count < 4:
        raise ValueError(f"Fisher's interval needs at least four pairs, got {count}")
    width = norm.isf((1 - level) / 2) / np.sqrt(count - 3)
    low, high = np.tanh(np.arctanh(coefficient) + np.array([-width, width]))
    return float(low), float(high)


def partial_correlation(x, y, given):
    """Return Pearson's coefficient of what a quadratic in a third variable leaves of two.

    Parameters
    ----------
    x, y, given : array_like, shape (n,)

    Returns
    -------
    float
    """
    known = np.vander(np.asarray(given, dtype=float), 3)
    x, y = (np.asarray(v, dtype=float) for v in (x, y))
    left = [v - known @ np.linalg.lstsq(known, v)[0] for v in (x, y)]
    return float(_coefficients(*left, False))


def _coefficients(x, y, ranks):
    """Correlate along the last axis; NaN where a resample does not vary."""
    if ranks:
        x, y = rankdata(x, axis=-1), rankdata(y, axis=-1)
    x = x - x.mean(axis=-1, keepdims=True)
    y = y - y.mean(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return (x * y).sum(axis=-1) / np.sqrt((x**2).sum(axis=-1) * (y**2).sum(axis=-1))
