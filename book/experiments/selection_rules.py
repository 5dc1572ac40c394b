"""Which states did Table 7 keep? All-DPN of its cases under four rules, on samples of our own."""

import numpy as np

from book.cases.reduced import SAMPLES, best_angle, farthest_points, noise_curve, sampled_groups
from book.experiments.experiment import Experiment
from book.published import published

EPSILONS = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0)


def evenly_spaced(distances, count):
    """Take states at even steps of their order."""
    return np.round(np.linspace(0, len(distances) - 1, count)).astype(int)


def first_states(distances, count):
    """Take the first states."""
    return np.arange(count)


def selection_rules(task, seed):
    """Return All-DPN of the ten cases of a task, for states chosen in four ways.

    Parameters
    ----------
    task : str
        As in Table 7.
    seed : int
        Of the sample, and of the states chosen at random.

    Returns
    -------
    list of dict
        A row for each case and rule, a column for each budget.
    """
    rng = np.random.default_rng(seed)
    sample = SAMPLES[task].draw(rng)

    def at_random(distances, count):
        return np.sort(rng.choice(len(distances), count, replace=False))

    rules = {
        "farthest": farthest_points,
        "even": evenly_spaced,
        "first": first_states,
        "random": at_random,
    }
    cases = published("table7").query("task == @task")["case"].unique()
    rows = []
    for case in cases:
        for rule, choose in rules.items():
            curves = [noise_curve(group) for group in sampled_groups(sample, case, choose)]
            losses = best_angle(*curves, EPSILONS)
            columns = {f"{epsilon:g}": loss for epsilon, loss in zip(EPSILONS, losses, strict=True)}
            rows.append({"case": case, "rule": rule, **columns})
    return rows


EXPERIMENT = Experiment(
    "selection_rules",
    [{"task": task, "seed": seed} for task in SAMPLES for seed in range(1, 7)],
    selection_rules,
    scale=1e-12,
)
