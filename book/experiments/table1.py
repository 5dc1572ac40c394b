"""Table 1: ten methods and some of ours, at ten budgets, on samples of the three case studies.

A unit is one kind of mechanisms on one sample; its rows are the ways to divide ten budgets. All
mechanisms are private: their exact levels stand beside the losses.
"""

from dataclasses import dataclass

import numpy as np

from book.experiments.case_samples import CASES, THRESHOLDS, draw_sample
from book.experiments.experiment import Experiment
from book.experiments.optimal_curves import SOLVED, solved_curve
from dephdp import (
    allocate_budget,
    compose_budget,
    envelope_allocation,
    loss_curve,
    mse_likeness,
    prefer_optimal,
    product_privacy_level,
    radial_fit,
    split_budget,
)

EPSILONS = np.arange(1.0, 11.0)
GRID = np.append(np.arange(20) / 10, np.arange(10, 51) / 5)  # budgets that curves are sampled at
SEEDS = range(10)
ELSEWHERE = 100  # added to a seed: the sample that a split variant is configured from

NOISE = {
    "exponential": "DPN",
    "exponential+remap": "RMP",
    "calibrated+remap": "calibrated",
    "tight+remap": "tight",
}
"""Families of noise, and what the rows call them."""

SCORES = {"m": mse_likeness, "r": radial_fit}
_REMAPPED = "exponential+remap"  # on the groups that a score does not choose


@dataclass(frozen=True, eq=False)
class GroupCurve:
    """The curve of one group on `GRID`: β_k times its losses and lower bounds, and its mechanisms.

    Attributes
    ----------
    losses, lower_bounds, levels : ndarray, shape (points,)
        Of the mechanism that each budget pays for.
    mechanism : callable or None
        Budget to channel; None if the channels are not kept.
    """

    losses: np.ndarray
    lower_bounds: np.ndarray
    levels: np.ndarray | None
    mechanism: object


def sampled(profile, coefficient, family):
    """Return a curve whose mechanisms are computed here."""
    arguments = profile.prior, profile.loss, profile.distances, GRID
    curve = loss_curve(*arguments, family, tol=1e-3)
    bounds = coefficient * curve.lower_bounds
    return GroupCurve(coefficient * curve.losses, bounds, None, curve.mechanism)


def best(case, seed, group, profile, coefficient):
    """Return the curve of a group's certified optimal mechanisms."""
    if (case, group) not in SOLVED:
        return sampled(profile, coefficient, "optimal")
    losses, bounds, levels = solved_curve(case, group, seed, GRID)
    return GroupCurve(coefficient * losses, coefficient * bounds, levels, None)


def through_envelopes(losses, epsilon):
    """Return the paper's division, on the finest uniform grid up to ε that `GRID` holds."""
    uniform = np.arange(21) if epsilon <= 2 else np.flatnonzero(np.isclose(GRID * 5 % 1, 0))
    return envelope_allocation(GRID[uniform], np.asarray(losses)[:, uniform], epsilon, 2)


def divided(method, epsilon, curves, division):
    """Return a row of the table for a division of the budget.

    Parameters
    ----------
    method : str
        Its name.
    epsilon : float
        Budget of the record.
    curves : list of GroupCurve
        One a group.
    division : Allocation
        Their budgets.

    Returns
    -------
    dict
        ``level`` is the exact level of the record or, if ``composed``, ‖·‖₂ of the exact levels of
        the groups, which it cannot exceed.
    """
    chosen = list(zip(curves, division.budgets, strict=True))
    composed = any(curve.mechanism is None for curve in curves)
    if composed:
        level = compose_budget(
            [
                curve.mechanism(budget).privacy_level()
                if curve.mechanism
                else min(curve.levels[np.searchsorted(GRID, budget + 1e-9) - 1], budget)
                for curve, budget in chosen
            ],
            2,
        )
    else:
        level = product_privacy_level([c.mechanism(budget) for c, budget in chosen], 2)
    return {
        "method": method,
        "epsilon": epsilon,
        "loss": division.loss,
        "lower_bound": division.lower_bound,
        "level": level,
        "composed": composed,
    }


def even_split(label, epsilon, sample, family):
    """Return the row of a family with an even split of the budget."""
    share = split_budget(epsilon, len(sample.groups), 2)[:1]
    curves = [loss_curve(p.prior, p.loss, p.distances, share, family) for p in sample.profiles]
    mechanisms = [curve.mechanism(share[0]) for curve in curves]
    return {
        "method": f"SPL+{label}",
        "epsilon": epsilon,
        "loss": sum(b * c.losses[0] for b, c in zip(sample.coefficients, curves, strict=True)),
        "lower_bound": np.nan,
        "level": product_privacy_level(mechanisms, 2),
        "composed": False,
    }


def noise(sample, family):
    """Return the rows of one family of noise."""
    label, rows = NOISE[family], []
    curves = [
        sampled(p, b, family) for p, b in zip(sample.profiles, sample.coefficients, strict=True)
    ]
    losses = [curve.losses for curve in curves]
    for epsilon in EPSILONS:
        rows.append(even_split(label, epsilon, sample, family))
        envelope, exact = through_envelopes(losses, epsilon), allocate_budget(GRID, losses, epsilon)
        rows.append(divided(f"ALC+{label}", epsilon, curves, envelope))
        rows.append(divided(f"exact+{label}", epsilon, curves, exact))
    return rows


def chosen_groups(case, seed, score):
    """Return which groups of a sample the rule (24) gives an optimal mechanism."""
    profiles = draw_sample(case, seed).profiles
    scores = [SCORES[score](p.loss, p.distances) for p in profiles]
    sizes = [p.group.size for p in profiles]
    return prefer_optimal(sizes, scores, largest=300, threshold=THRESHOLDS[case])


def selected(case, seed, sample, variant):
    """Return the rows of DepHDP with one score, or with optimal mechanisms everywhere."""
    if variant == "optimal":
        chosen = np.full(len(sample.groups), True)
    else:
        source = seed + ELSEWHERE if variant.endswith("-s") else seed
        chosen = chosen_groups(case, source, variant[0])
    curves = [
        best(case, seed, k, profile, coefficient)
        if chosen[k]
        else sampled(profile, coefficient, _REMAPPED)
        for k, (profile, coefficient) in enumerate(
            zip(sample.profiles, sample.coefficients, strict=True)
        )
    ]
    losses = np.array([curve.losses for curve in curves])
    bounds = np.array([curve.lower_bounds for curve in curves])
    rows = []
    for epsilon in EPSILONS:
        exact = allocate_budget(GRID, losses, epsilon, 2, lower_bounds=bounds)
        if variant == "optimal":
            rows.append(divided("exact+OPT", epsilon, curves, exact))
            continue
        envelope = through_envelopes(losses, epsilon)
        below = through_envelopes(bounds, epsilon).lower_bound
        row = divided(f"DepHDP-{variant}", epsilon, curves, envelope)
        rows.append({**row, "lower_bound": below})
        rows.append(divided(f"exact-{variant}", epsilon, curves, exact))
        if not variant.endswith("-s"):
            bound = {"method": f"Bound-{variant}", "loss": below, "lower_bound": below}
            rows.append({**rows[-1], **bound, "level": np.nan})
    return rows


def table1(case, seed, mechanisms):
    """Compute the rows of one sample and one kind of mechanisms.

    Parameters
    ----------
    case : str
        "I", "II" or "III".
    seed : int
        Of the sample.
    mechanisms : str
        A family of noise for all groups (`NOISE`); or "m", "r", "m-s", "r-s" for the optimal
        mechanism where that score asks for it and remapped noise elsewhere; or "optimal". With
        "-s" the scores are those of another sample.

    Returns
    -------
    list of dict
        Method, budget of the record, loss, a lower bound for its families (of "optimal": for any
        mechanisms of the groups and any budgets that compose to ε), and the level of a record.
    """
    sample = draw_sample(case, seed)
    if mechanisms in NOISE:
        return noise(sample, mechanisms)
    return selected(case, seed, sample, mechanisms)


def _units():
    with_optima = {"I": (0,), "II": range(2)}  # where `optimal_curves` has the large groups
    kinds = [(family, dict.fromkeys(CASES, SEEDS)) for family in NOISE]
    kinds += [(variant, with_optima) for variant in ("m", "r", "m-s", "r-s", "optimal")]
    return [
        {"case": case, "seed": seed, "mechanisms": mechanisms}
        for case in CASES
        for mechanisms, seeds in kinds
        for seed in seeds.get(case, ())
    ]


TABLE_ONE = Experiment("table1", _units(), table1, tolerance=1e-4, scale=1e-6)
