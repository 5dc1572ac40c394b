"""Table 5: adequacy scores and decisions on pairs and on states that a fit has not seen.

The paper holds out pairs of states of one loss matrix. Two pairs that share a state are alike, so
whole states are held out as well.
"""

import numpy as np
from scipy.optimize import isotonic_regression

from book.experiments.case_samples import CASES, THRESHOLDS, draw_sample
from book.experiments.experiment import Experiment
from dephdp import mse_likeness, radial_fit

SPLITS = 20
HELD_OUT = 0.3  # share of the pairs, or of the states
STRATUM = 10  # pairs of about the same distance
SAMPLES = 10  # of each case study

SCORES = {"mse": mse_likeness, "radial": radial_fit}

_FEWEST_STATES = 9  # of which three are held out
_SAME = 1e-12  # losses and distances this close, relatively, differ by rounding


def split_pairs(distances, rng):
    """Hold out unordered pairs of different states, at all distances alike.

    Parameters
    ----------
    distances : ndarray, shape (n, n)
        Symmetric.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    training, held_out : ndarray of bool, shape (n, n)
        Disjoint and symmetric; together they are all pairs off the diagonal.

    Notes
    -----
    The pairs are ordered by distance, equal distances at random, and cut into strata of ten. Three
    of each are held out, or the nearest number to 0.3 m of a last stratum of m.
    """
    first, second = np.triu_indices(len(distances), 1)
    order = np.lexsort([rng.random(len(first)), distances[first, second]])
    place = np.arange(len(order))
    stratum = place // STRATUM
    order = order[np.lexsort([rng.random(len(order)), stratum])]  # strata keep their places
    chosen = order[place % STRATUM < np.rint(HELD_OUT * np.bincount(stratum))[stratum]]
    held_out = np.zeros(distances.shape, dtype=bool)
    held_out[first[chosen], second[chosen]] = held_out[second[chosen], first[chosen]] = True
    return ~held_out & ~np.eye(len(distances), dtype=bool), held_out


def split_states(distances, rng):
    """Hold out states: pairs among them are held out, pairs among the others are for training.

    Parameters
    ----------
    distances : ndarray, shape (n, n)
        Symmetric.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    training, held_out : ndarray of bool, shape (n, n)
        Disjoint and symmetric; mixed pairs are in neither.
    """
    away = np.zeros(len(distances), dtype=bool)
    away[rng.choice(len(away), round(HELD_OUT * len(away)), replace=False)] = True
    off = ~np.eye(len(away), dtype=bool)
    return off & ~away & ~away[:, None], off & away & away[:, None]


def held_out_score(kind, loss, distances, training, held_out):
    """Return the score on some pairs of the function of the distance that fits others best.

    Parameters
    ----------
    kind : {"mse", "radial"}
        The functions: a d² + b with a ≥ 0, or all that are non-decreasing.
    loss, distances : ndarray, shape (n, n)
    training, held_out : ndarray of bool, shape (n, n)
        Which pairs are fitted, and which the fit is scored on.

    Returns
    -------
    float
        1 - rms(c - f(d)) / sd(c) on the held-out pairs: below zero where their mean fits better
        than f. If their losses are equal: 1 where f meets them, otherwise -inf.

    Notes
    -----
    A non-decreasing fit is known at the distances of its training pairs only. Between two of them
    it is interpolated, beyond them it is constant.
    """
    predict = {"mse": _parabola, "radial": _step}[kind](loss[training], distances[training])
    c = loss[held_out]
    error = np.sqrt(np.mean((c - predict(distances[held_out])) ** 2))
    spread, rounding = c.std(), _SAME * np.abs(c).max()
    if spread <= rounding:
        return 1.0 if error <= 1e3 * rounding else -np.inf
    return float(1 - error / spread)


def _parabola(c, d):
    square, middle = d**2, c.mean()
    centred = square - square.mean()
    variance = np.mean(centred**2)
    slope = 0.0
    if variance > _SAME * square.max() ** 2:
        slope = max(np.mean(centred * c) / variance, 0.0)
    return lambda t: middle + slope * (t**2 - square.mean())


def _step(c, d):
    levels, tie = np.unique(np.round(d / d.max(), 12), return_inverse=True)
    count = np.bincount(tie)
    heights = isotonic_regression(np.bincount(tie, c) / count, weights=count).x
    return lambda t: np.interp(t / d.max(), levels, heights)


def stability(case, sample):
    """Return the scores of the groups of one sample, and those on held-out pairs and states.

    Parameters
    ----------
    case : str
        "I", "II" or "III".
    sample : int
        Seed.

    Returns
    -------
    list of dict
        For each group of three states or more, score and kind of split: the score of all pairs, the
        mean score of 20 splits, their mean absolute difference, and the share of splits that are on
        the same side of τ_dpn.
    """
    rows = []
    for k, profile in enumerate(draw_sample(case, sample).profiles, start=1):
        n, loss, distances = profile.group.size, profile.loss, profile.distances
        original = {name: score(loss, distances) for name, score in SCORES.items()}
        for held, split, fewest in (
            ("pairs", split_pairs, 3),
            ("states", split_states, _FEWEST_STATES),
        ):
            if n < fewest:
                continue
            rng = np.random.default_rng([sample, k])
            parts = [split(distances, rng) for _ in range(SPLITS)]
            for kind, score in original.items():
                again = np.array([held_out_score(kind, loss, distances, *p) for p in parts])
                same = (again <= THRESHOLDS[case]) == (score <= THRESHOLDS[case])
                rows.append(
                    {
                        "group": k,
                        "states": n,
                        "held": held,
                        "score": kind,
                        "original": score,
                        "held_out": again.mean(),
                        "mae": np.abs(again - score).mean(),
                        "agreement": same.mean(),
                    }
                )
    return rows


SCORE_STABILITY = Experiment(
    "score_stability",
    [{"case": case, "sample": sample} for case in CASES for sample in range(SAMPLES)],
    stability,
)
