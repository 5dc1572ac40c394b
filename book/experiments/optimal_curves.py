"""Certified optimal mechanisms of large groups in Cases I and II: one budget of a group a unit.

Where the solver does not reach its gap in time, the loss is that of the remapped tight-constraints
mechanism if that is less, and the bound that of parts of the states if that is more.
"""

import numpy as np

from book.experiments.case_samples import draw_sample
from book.experiments.experiment import Experiment
from dephdp import loss_curve

BUDGETS = {
    "I": (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0),
    "II": (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0),
}
"""Budgets of a group at which its optimum is sought, by case."""

SOLVED = {
    ("II", 0): (0, 1),
    ("II", 2): (0, 1),
    ("I", 0): (0,),
    ("I", 2): (0,),
}
"""Seeds of the samples in which a group is solved, by case and group: only those that are large."""

SECONDS = {"I": 5.0, "II": 20.0}  # for one optimum; those of case I need minutes
TOLERANCE = 0.02  # relative gap at which one may stop


def optimum(case, group, seed, budget):
    """Compute the optimal mechanism of one group at one budget.

    Parameters
    ----------
    case : str
        "I", "II" or "III".
    group : int
        Its place among the groups of the case, from 0.
    seed : int
        Of the sample.
    budget : float
        Of the group.

    Returns
    -------
    list of dict
        One row: number of states, loss, certified lower bound on any mechanism's loss, and the
        exact privacy level of the group's channel.
    """
    sample = draw_sample(case, seed)
    profile = sample.profile(sample.groups[group])
    options = {"tol": TOLERANCE, "time_limit": SECONDS[case]}
    arguments = profile.prior, profile.loss, profile.distances, [budget]
    curve = loss_curve(*arguments, "optimal", **options)
    return [
        {
            "states": profile.group.size,
            "loss": curve.losses[0],
            "lower_bound": curve.lower_bounds[0],
            "level": curve.mechanism(budget).privacy_level(),
        }
    ]


def solved_curve(case, group, seed, grid):
    """Return the kept losses and bounds of a group on a grid of budgets.

    Parameters
    ----------
    case, group, seed
        As in `optimum`.
    grid : ndarray, shape (points,)
        Budgets from 0 to the largest of `BUDGETS`.

    Returns
    -------
    losses, lower_bounds, levels : ndarray, shape (points,)
        At each budget the loss, and the level, of the best mechanism that it can pay for, and the
        bound at the next budget: both are steps. At 0 there is the best constant report.
    """
    table = OPTIMAL_CURVES.table()
    kept = (table["case"] == case) & (table["group"] == group) & (table["seed"] == seed)
    kept = table[kept].sort_values("budget")
    if kept["budget"].tolist() != list(BUDGETS[case]):
        raise ValueError(
            f"{OPTIMAL_CURVES.path.name} lacks budgets of case {case}, {group}, {seed}"
        )
    sample = draw_sample(case, seed)
    profile = sample.profile(sample.groups[group])
    constant = (profile.prior @ profile.loss).min()
    budgets = np.append(0.0, kept["budget"])
    measured = np.append(constant, kept["loss"])
    losses = np.minimum.accumulate(measured)
    new = np.append(True, losses[1:] < losses[:-1])
    source = np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))
    bounds = np.append(constant, kept["lower_bound"])
    bounds = np.maximum.accumulate(bounds[::-1])[::-1]
    below = np.searchsorted(budgets, grid * (1 + 1e-9), side="right") - 1
    above = np.searchsorted(budgets, grid * (1 - 1e-9))
    return losses[below], bounds[above], np.append(0.0, kept["level"])[source[below]]


OPTIMAL_CURVES = Experiment(
    "optimal_curves",
    [
        {"case": case, "group": group, "seed": seed, "budget": budget}
        for (case, group), seeds in SOLVED.items()
        for seed in seeds
        for budget in BUDGETS[case]
    ],
    optimum,
    tolerance=2 * TOLERANCE,  # another machine may stop elsewhere within the gap
)
