"""Stage 3: whether distance-driven noise is adequate for a group, or optimising it pays.

The scores ask whether the loss is a function of the distance alone. They see neither the prior nor
the budget; `relative_gain` compares what is actually at stake.
"""

import numpy as np
from scipy.optimize import isotonic_regression

from dephdp.errors import InvalidLoss, InvalidMetric
from dephdp.validation import check_loss, check_prior

_SAME = 1e-12  # distances and losses this close, relatively, differ by rounding


def mse_likeness(loss, distances, *, prior=None, diagonal=False, delta=0.0):
    """Return how well a multiple of the squared distance explains the loss, S^mse.

    Parameters
    ----------
    loss : array_like, shape (n, m)
        Loss c of reporting y in state x.
    distances : array_like, shape (n, m)
        Distances d from the states to the outputs, all finite.
    prior : array_like, shape (n,), optional
        Weights of the states; all pairs weigh the same by default, as in the paper.
    diagonal : bool, optional
        Keep the pairs x = y where outputs are the states. The paper's printed scores leave them
        out.
    delta : float, optional
        Added to the standard deviation, to avoid a division by zero.

    Returns
    -------
    float
        1 - rms(c - a d² - b) / (sd(c) + δ) over all pairs, for the least-squares a ≥ 0 and b;
        in [0, 1]. A loss that is constant, or has no pairs to vary over, scores 1.

    Raises
    ------
    InvalidLoss, InvalidMetric, InvalidDistribution
        If an argument does not fit.

    Notes
    -----
    Equations (25) and (26) of Liu, Oluwole and Qiu (2026). With one free slope the constrained
    least squares is the unconstrained one with a negative slope replaced by zero.

    A group of two states has one off-diagonal distance, at which a function of the distance is a
    constant: it scores 1 if its two errors cost the same, and 0 otherwise.
    """
    c, d, w = _pairs(loss, distances, prior, diagonal)
    return _score(c, w, lambda c, w: _quadratic(c, d, w), delta)


def radial_fit(loss, distances, *, prior=None, diagonal=False, delta=0.0):
    """Return how well a non-decreasing function of the distance explains the loss, S^rad.

    Parameters
    ----------
    loss, distances, prior, diagonal, delta
        As in `mse_likeness`.

    Returns
    -------
    float
        1 - rms(c - g(d)) / (sd(c) + δ) for the least-squares non-decreasing g; in [0, 1], and
        never below `mse_likeness`, whose functions are among those of g.

    Raises
    ------
    InvalidLoss, InvalidMetric, InvalidDistribution
        If an argument does not fit.

    Notes
    -----
    Equations (28) and (29) of Liu, Oluwole and Qiu (2026), by isotonic regression. Pairs at equal
    distances are pooled first: g takes one value there.
    """
    c, d, w = _pairs(loss, distances, prior, diagonal)
    return _score(c, w, lambda c, w: _isotonic(c, d, w), delta)


def prefer_optimal(states, scores, *, largest=300, threshold=0.3):
    """Return which groups get an optimised mechanism by the score, the others getting noise.

    Parameters
    ----------
    states : array_like of int, shape (groups,)
        Number of states of each group.
    scores : array_like, shape (groups,)
        Adequacy of noise for each group, by `mse_likeness` or `radial_fit`.
    largest : int, optional
        τ_dim: groups with more states get noise whatever their score.
    threshold : float, optional
        τ_dpn: groups with a higher score get noise.

    Returns
    -------
    ndarray of bool, shape (groups,)
        The rule (24) of Liu, Oluwole and Qiu (2026).
    """
    return (np.asarray(states) <= largest) & (np.asarray(scores) <= threshold)


def relative_gain(noise_loss, other_loss):
    """Return the share of the noise's loss that another mechanism, or a bound, takes off.

    Parameters
    ----------
    noise_loss : array_like
        Expected losses of noise, at one or several budgets; nonnegative.
    other_loss : array_like
        Losses of an optimised mechanism at the same budgets: the gain it is certain to bring. Or
        lower bounds on the losses of all mechanisms: no mechanism gains more.

    Returns
    -------
    ndarray
        1 - other / noise, elementwise; 0 where noise loses nothing.

    Raises
    ------
    InvalidLoss
        If a loss of the noise is negative or NaN.

    Notes
    -----
    With a threshold τ on the gain: noise is adequate, within τ of the best there is, where the
    gain of the lower bound is at most τ; it is certainly not where the gain of some mechanism
    exceeds τ. Unlike the scores this sees the prior, the budget and the noise in question.
    """
    noise, other = np.asarray(noise_loss, dtype=float), np.asarray(other_loss, dtype=float)
    if not (noise >= 0).all():
        raise InvalidLoss("a relative gain needs nonnegative losses of the noise")
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(noise > 0, 1 - other / noise, 0.0)


def _pairs(loss, distances, prior, diagonal):
    """Return losses, distances and weights of the pairs that count, as vectors."""
    shape = np.shape(distances)
    if len(shape) != 2:
        raise InvalidMetric(f"distances must be a (states, outputs) matrix, got shape {shape}")
    loss, distances = check_loss(loss, shape), np.asarray(distances, dtype=float)
    if not ((distances >= 0) & np.isfinite(distances)).all():
        raise InvalidMetric("a score needs finite, nonnegative distances")
    states, outputs = shape
    weights = np.full(states, 1.0) if prior is None else check_prior(prior, states)
    counted = np.broadcast_to(weights[:, None] > 0, shape).copy()
    if states == outputs and not diagonal:
        np.fill_diagonal(counted, False)
    return loss[counted], distances[counted], np.broadcast_to(weights[:, None], shape)[counted]


def _score(c, w, fit, delta):
    if not c.size:
        return 1.0
    spread = _rms(c - np.average(c, weights=w), w)
    if spread <= _SAME * np.abs(c).max():
        return 1.0
    return float(np.clip(1 - _rms(c - fit(c, w), w) / (spread + delta), 0.0, 1.0))


def _rms(residuals, w):
    return np.sqrt(np.average(residuals**2, weights=w))


def _quadratic(c, d, w):
    """Fit a d² + b with a ≥ 0."""
    square = d**2
    centred = square - np.average(square, weights=w)
    mean, variance = np.average(c, weights=w), np.average(centred**2, weights=w)
    if variance <= _SAME * square.max() ** 2:
        return np.full(c.shape, mean)
    return mean + max(np.average(centred * c, weights=w) / variance, 0.0) * centred


def _isotonic(c, d, w):
    """Fit a non-decreasing function of the distance."""
    _, tie = np.unique(np.round(d / (d.max() or 1.0), 12), return_inverse=True)
    weight = np.bincount(tie, w)
    means = np.bincount(tie, w * c) / weight
    return isotonic_regression(means, weights=weight).x[tie]
