"""Case II, crowdsourcing on red wine: many samples with noise, few with certified optima."""

from functools import lru_cache

import numpy as np

from book.cases.noise import noise_losses
from book.cases.truncation import truncated_optimum
from book.cases.wine import WINE_GROUPS, WINE_THRESHOLDS, WineSample
from book.experiments.experiment import Experiment
from book.experiments.surrogate_fit import moved_states
from dephdp import (
    allocate_budget,
    fit_surrogate,
    loss_curve,
    mse_likeness,
    optimal_mechanism,
    radial_fit,
    split_budget,
)
from dephdp.curves import partition_bound
from dephdp.surrogate import calibration_pairs, pilot_channels

EPSILONS = range(1, 11)
NOISE_GRID = np.linspace(0, 10, 101)  # budgets among which the exponential mechanism's are chosen
OPTIMA_GRID = np.linspace(0, 10, 41)  # solved up to 6
WIDE_GRID = np.array([0.25, 0.5, 1, 1.5, 2, 3, 4, 6])
WIDE = 0, 2  # groups of several features, whose optima take seconds each
TOL = 0.02


@lru_cache(maxsize=4)
def wine_sample(seed) -> WineSample:
    """Return the sample with this seed, the same in all tables."""
    return WineSample.draw(np.random.default_rng(seed))


def noise_rows(seed):
    """Losses of the even and of the best division of the budget, with noise in all groups."""
    sample = wine_sample(seed)
    beta = np.array(sample.coefficients)[:, None, None]
    shares = np.array([split_budget(epsilon, len(beta), 2)[0] for epsilon in EPSILONS])
    even = sum(beta * [noise_losses(p, shares) for p in sample.profiles])
    curves = beta * [noise_losses(p, NOISE_GRID) for p in sample.profiles]
    curves = np.minimum.accumulate(curves, axis=2)  # a smaller budget is allowed
    rows = []
    for at, epsilon in enumerate(EPSILONS):
        row = {"epsilon": epsilon}
        for k, noise in enumerate(("DPN", "RMP")):
            best = allocate_budget(NOISE_GRID, curves[:, k], float(epsilon), 2)
            row |= {
                f"SPL+{noise}": even[k, at],
                f"ALC+{noise}": best.loss,
                f"ALC+{noise} bound": best.lower_bound,
            }
        rows.append(row)
    return rows


def group_rows(seed):
    """Size and scores of each group, and its coefficient refitted to three kinds of pairs."""
    sample = wine_sample(seed)
    groups, rng = [p.group for p in sample.profiles], np.random.default_rng([seed, 1])
    pilots = pilot_channels(groups, 4.0, 2, sample.weights)
    uniform = calibration_pairs(sample.task, groups, "uniform", 1000, rng)
    pilot = calibration_pairs(sample.task, groups, pilots, 1000, rng)
    losses = {
        "equal": moved_states(sample.task, groups, 1000, rng),
        "uniform": (uniform.record_losses, uniform.group_losses),
        "pilot": (pilot.record_losses, pilot.group_losses),
    }
    fits = {name: fit_surrogate(*pairs, rng).coefficients for name, pairs in losses.items()}
    return [
        {
            "group": k,
            "states": profile.group.size,
            "mse": mse_likeness(profile.loss, profile.distances),
            "radial": radial_fit(profile.loss, profile.distances),
            **{name: coefficients[k] for name, coefficients in fits.items()},
        }
        for k, profile in enumerate(sample.profiles)
    ]


def optimum_rows(seed, group, budget):
    """Losses of one group at one budget: noise, the certified optimum, a truncated program."""
    profile = wine_sample(seed).profiles[group]
    arguments = profile.prior, profile.loss, profile.distances
    families = "exponential+remap", "calibrated+remap", "tight+remap"
    row = {f: loss_curve(*arguments, [budget], f).losses[0] for f in families}
    best = optimal_mechanism(*arguments, budget, tol=TOL)
    row |= {"optimal": best.loss, "bound": best.lower_bound}
    if best.gap > TOL:
        row["bound"] = max(best.lower_bound, partition_bound(*arguments, budget))
    truncated = truncated_optimum(profile, WINE_THRESHOLDS[group], budget)
    return [{**row, "level": best.channel.privacy_level(), "truncated": truncated.loss}]


WINE_NOISE = Experiment("wine_noise", [{"seed": s} for s in range(100)], noise_rows)

WINE_GROUPS_TABLE = Experiment("wine_groups", [{"seed": s} for s in range(16)], group_rows)

WINE_OPTIMA = Experiment(
    "wine_optima",
    [
        {"seed": seed, "group": group, "budget": float(budget)}
        for seed in range(2)
        for group in range(len(WINE_GROUPS))
        for budget in (WIDE_GRID if group in WIDE else OPTIMA_GRID[1:25])
    ],
    optimum_rows,
    tolerance=2 * TOL,  # two certified answers may differ by so much
    scale=1e-2,
)
