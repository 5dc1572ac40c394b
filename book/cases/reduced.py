"""The reduced domains of Table 7: two groups of a case study, each thinned out to a few states.

The paper does not say which states are kept. The reading here is farthest-point selection: start
from the first state, and keep adding the one that is farthest from all that were kept.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import least_squares

from book.cases.census import CensusSample
from book.cases.heart import EarlyHeartSample
from book.cases.noise import noise_losses
from book.cases.wine import WineSample
from book.published import published

ANGLES = np.linspace(0, np.pi / 2, 61)
"""Where the paper looks for the best division (ε cos θ, ε sin θ) of the budget."""

LINES = {
    "G2": (1, 1, 1, 1, 1),
    "G5": (1, 1, 1, 1, 1, 1),
    "G4x8": (2, 1, 2, 2, 3, 2, 2),
    "G6x8": (1, 2, 1, 2, 1, 2, 3),
}
"""Case I's groups of one attribute, as Table 7 has them: gaps between neighbours, in ranks."""

CENSUS_UNIT = 2e5 / 300**2
"""Loss of one wrong attribute in Case I."""


class ReducedHeartSample(EarlyHeartSample):
    """Case III as Table 7 has it: the losses are those of the case study divided by 9.3.

    The factor is the median quotient over all cases and budgets. It hardly depends on either; the
    paper does not mention it.
    """

    coefficients = (1 / 9.3,) * 4


SAMPLES = {"FE": CensusSample, "EE": ReducedHeartSample, "CC": WineSample}
"""The case study behind each task of Table 7."""


@dataclass(frozen=True, eq=False)
class ReducedGroup:
    """A few states of a group, or of a record of two groups.

    Parameters
    ----------
    prior : ndarray, shape (n,)
        Distribution of the state.
    loss : ndarray, shape (n, n)
        Loss of reporting y in state x.
    distances : ndarray, shape (n, n)
        Distances between the states.
    """

    prior: np.ndarray
    loss: np.ndarray
    distances: np.ndarray


def farthest_points(distances, count):
    """Return states that are far apart: each is the farthest from those before it.

    Parameters
    ----------
    distances : ndarray, shape (n, n)
        Distances between the states.
    count : int
        How many to take, the first state to begin with.

    Returns
    -------
    ndarray of int, shape (count,)
        Increasing. Ties go to the first state.
    """
    if not 1 <= count <= len(distances):
        raise ValueError(f"cannot take {count} of {len(distances)} states")
    kept = [0]
    nearest = distances[0].copy()
    while len(kept) < count:
        kept.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, distances[kept[-1]])
    return np.sort(kept)


def parse(case):
    """Return the groups that a case of Table 7 names, and how many states of each are left.

    Parameters
    ----------
    case : str
        For instance ``"high G2 G6x8"``: all states of group 2, eight of group 6.

    Returns
    -------
    tuple of (str, int, int or None)
        Name, number of the group from 1, states.
    """
    found = re.findall(r"G(\d)(?:x(\d+))?", case)
    return tuple(
        (f"G{k}" + (f"x{n}" if n else ""), int(k), int(n) if n else None) for k, n in found
    )


def thinned(profile, count=None, coefficient=1.0, choose=farthest_points):
    """Return a group with some of its states, all equally likely.

    Parameters
    ----------
    profile : GroupProfile
        The group.
    count : int, optional
        How many states to keep; all by default.
    coefficient : float, optional
        Factor on the loss.
    choose : callable, optional
        ``choose(distances, count)`` returns the states to keep.

    Returns
    -------
    ReducedGroup
    """
    n = len(profile.distances)
    kept = np.arange(n) if count is None else choose(profile.distances, count)
    square = np.ix_(kept, kept)
    prior = np.full(len(kept), 1 / len(kept))
    return ReducedGroup(prior, coefficient * profile.loss[square], profile.distances[square])


def sampled_groups(sample, case, choose=farthest_points):
    """Return the two groups of a case of Table 7, made from one sample of its case study.

    Parameters
    ----------
    sample : Sample
        Of the class in `SAMPLES`.
    case : str
        As `parse`.
    choose : callable, optional
        As `thinned`.

    Returns
    -------
    list of ReducedGroup
    """
    return [
        thinned(sample.profiles[k - 1], count, sample.coefficients[k - 1], choose)
        for _, k, count in parse(case)
    ]


def line_group(gaps, spacing):
    """Return equally likely states on a line, at unit loss of Case I for every wrong report.

    Parameters
    ----------
    gaps : sequence of int
        Ranks between neighbours.
    spacing : float
        Distance of one rank.

    Returns
    -------
    ReducedGroup
    """
    places = spacing * np.append(0.0, np.cumsum(gaps))
    distances = np.abs(places[:, None] - places)
    n = len(places)
    return ReducedGroup(np.full(n, 1 / n), CENSUS_UNIT * (1 - np.eye(n)), distances)


def line_loss(gaps, spacing, budgets):
    """Return the least loss of a private mechanism on such a line, by a formula.

    Parameters
    ----------
    gaps, spacing
        As `line_group`.
    budgets : array_like
        Nonnegative.

    Returns
    -------
    ndarray, in the shape of ``budgets``
        2/n Σ 1 / (1 + e^(ε g)) over the gaps g, times the unit loss.
    """
    lengths = spacing * np.asarray(gaps)
    with np.errstate(over="ignore"):
        wrong = 1 / (1 + np.exp(np.multiply.outer(np.asarray(budgets), lengths)))
    return 2 * CENSUS_UNIT * wrong.sum(axis=-1) / (len(lengths) + 1)


def noise_curve(group):
    """Return the loss of remapped exponential noise as a function of budgets.

    Parameters
    ----------
    group : ReducedGroup
        The group.

    Returns
    -------
    callable
        From an array of budgets to an array of losses.
    """

    def loss(budgets):
        _, remapped = noise_losses(group, np.ravel(budgets))
        return remapped.reshape(np.shape(budgets))

    return loss


def best_angle(first, second, epsilons):
    """Return the least sum of two curves over the paper's divisions of each budget.

    Parameters
    ----------
    first, second : callable
        Loss of each group at an array of budgets.
    epsilons : array_like, shape (m,)
        Budgets of the record.

    Returns
    -------
    ndarray, shape (m,)
    """
    split = np.multiply.outer([np.cos(ANGLES), np.sin(ANGLES)], epsilons)
    return (first(split[0]) + second(split[1])).min(axis=0)


def line_cases():
    """Return the cases of Table 7 in which both groups are among `LINES`."""
    cases = published("table7").query("task == 'FE'")["case"].unique()
    return [case for case in cases if all(name in LINES for name, _, _ in parse(case))]


@lru_cache(maxsize=1)
def line_spacings():
    """Return the distance of one rank in each of `LINES`, fitted to Group OPT of Table 7.

    Returns
    -------
    dict of str to float
        Four numbers from thirty. One over each is the standard deviation of an attribute in the
        sample behind the table, which the paper does not print.
    """
    table = published("table7").query("task == 'FE'").pivot(index="case", columns="epsilon")
    cases, epsilons = line_cases(), table["group_opt"].columns.to_numpy()

    def misfit(logs):
        spacing = dict(zip(LINES, np.exp(logs), strict=True))
        errors = []
        for case in cases:
            curves = [
                lambda budgets, name=name: line_loss(LINES[name], spacing[name], budgets)
                for name, _, _ in parse(case)
            ]
            printed = table["group_opt"].loc[case].to_numpy()
            errors.append(np.log(best_angle(*curves, epsilons) / printed))
        return np.concatenate(errors)

    start = np.log([1.0, 0.65, 0.4, 0.25])
    fit = least_squares(misfit, start, xtol=1e-15, ftol=1e-15, gtol=1e-15)
    return dict(zip(LINES, np.exp(fit.x).tolist(), strict=True))


def line_groups(case):
    """Return the two groups of a case of `line_cases`, as Table 7 must have had them.

    Parameters
    ----------
    case : str
        As `parse`.

    Returns
    -------
    list of ReducedGroup
    """
    return [line_group(LINES[name], line_spacings()[name]) for name, _, _ in parse(case)]


def joined(first, second):
    """Return the record of two groups: all pairs of states, Euclidean distances, sums of losses.

    Parameters
    ----------
    first, second : ReducedGroup
        With n and m states.

    Returns
    -------
    ReducedGroup
        With n m states, in row-major order.
    """
    n, m = len(first.prior), len(second.prior)

    def pairs(a, b, operation):
        return operation(a[:, None, :, None], b[None, :, None, :]).reshape(n * m, n * m)

    return ReducedGroup(
        np.multiply.outer(first.prior, second.prior).ravel(),
        pairs(first.loss, second.loss, np.add),
        pairs(first.distances, second.distances, np.hypot),
    )
