"""Table 2: coefficients of the quadratic surrogate, and what its terms of second order explain.

A coefficient of second order is measured in one over the unit of the loss. So beside the paper's
magnitudes there are numbers without a unit: shares of the variance, and sizes relative to the loss.
"""

from functools import singledispatch

import numpy as np

from book.experiments.case_samples import CASES, draw_sample
from book.experiments.experiment import Experiment
from dephdp import (
    Crowdsourcing,
    EntropyEstimation,
    FrequencyEstimation,
    PopulationTask,
    fit_surrogate,
)
from dephdp.surrogate import calibration_pairs, pilot_channels, quadratic_diagnostic

PAIRS = 1000
SAMPLES = 6  # of each case study
CANDIDATES = {"states": None, "uniform": 0.0, "pilot 1": 1.0, "pilot 4": 4.0, "pilot 10": 10.0}
"""Where candidate pairs come from, and the budget of the pilot mechanism if that is where.

``states``: each group draws two states, and every record in the first moves to the second. Then the
groups change different records. A public repository under the paper's title draws its pairs in this
way (``multi-attribute-metric-differential-privacy`` of paopao128 on GitHub, commit ``76594878``,
``sample_points.m`` of the frequency estimation). The others change one record in all its groups, as
a report does and as the paper's Eq. (18) says: to uniform states, or by the exponential mechanism
with an even split.
"""


@singledispatch
def literal_task(task):
    """Return a task again as a statistic of a whole table and a discrepancy.

    Parameters
    ----------
    task : FrequencyEstimation, EntropyEstimation or Crowdsourcing
        An entropy task has one block, and the workers of the last never err.

    Returns
    -------
    PopulationTask
        The same losses, for tables in which any number of records has changed.
    """
    raise TypeError(f"no literal form of {task!r} is known")


@literal_task.register
def _(task: FrequencyEstimation):
    def frequencies(table):
        columns = zip(table.T, task.domain.sizes, strict=True)
        return np.concatenate([np.bincount(c, minlength=m) for c, m in columns]) / len(table)

    return PopulationTask(
        task.domain,
        task.reference,
        frequencies,
        lambda p, q: task.scale * np.sum((q - p) ** 2),
    )


@literal_task.register
def _(task: EntropyEstimation):
    def entropies(table):
        parts = [*table.T[:, :, None], table]
        shares = [np.unique(v, axis=0, return_counts=True)[1] / len(table) for v in parts]
        return np.array([-(p @ np.log(p)) / np.log(task.base) for p in shares])

    def discrepancy(old, new):
        *marginal, joint = new - old
        terms = np.abs(marginal).mean(), abs(joint), abs(sum(marginal) - joint)
        return task.scale * np.dot(task.weights, terms)

    return PopulationTask(task.domain, task.reference, entropies, discrepancy)


@literal_task.register
def _(task: Crowdsourcing):
    def labels(table):
        scores = task.scores(table)
        low, high = scores.min(axis=0), scores.max(axis=0)
        return 1 + np.floor((task.levels - 1) * (scores - low) / (high - low) + 0.5)

    return PopulationTask(
        task.domain,
        task.reference,
        labels,
        lambda old, new: task.scale * np.abs(new - old).sum() / new.sum(),
    )


def moved_states(task, groups, count, rng):
    """Draw candidates of the kind ``states``.

    Parameters
    ----------
    task : Task
        As for `literal_task`.
    groups : sequence of Group
        A partition of the attributes, K groups.
    count : int
        How many candidates.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    record_losses, group_losses : ndarray, shape (count,) and (count, K)
        The loss with all groups changed, and with one.
    """
    literal, reference = literal_task(task), np.array(task.reference)
    clean = literal.statistic(reference)
    owners = [group.states(reference) for group in groups]

    def loss(table):
        return literal.discrepancy(clean, literal.statistic(table))

    whole, isolated = np.empty(count), np.empty((count, len(groups)))
    for t in range(count):
        together = reference.copy()
        for k, (group, owner) in enumerate(zip(groups, owners, strict=True)):
            before, after = rng.integers(group.size, size=2)
            alone = reference.copy()
            for table in (together, alone):
                table[np.ix_(owner == before, group.columns)] = group.codes[after]
            isolated[t, k] = loss(alone)
        whole[t] = loss(together)
    return whole, isolated


def surrogate_fit(case, sample, candidates):
    """Return the coefficients of Eq. (84), fitted to 1000 candidates of one sample.

    Parameters
    ----------
    case : str
        "I", "II" or "III".
    sample : int
        Seed.
    candidates : str
        A key of `CANDIDATES`.

    Returns
    -------
    list of dict
        One row. Magnitudes of the coefficients; shares of the variance that the quadratic model,
        its linear part, and the first-order surrogate on candidates not fitted explain; the least
        coefficient of the surrogate; the root mean square of the terms of second order, and the
        mean sum of the groups' losses, both relative to the record's loss.
    """
    drawn = draw_sample(case, sample)
    rng = np.random.default_rng([sample, list(CANDIDATES).index(candidates)])
    groups = [profile.group for profile in drawn.profiles]
    if candidates == "states":
        c, x = moved_states(drawn.task, groups, PAIRS, rng)
    else:
        budget = CANDIDATES[candidates]
        channels = pilot_channels(groups, budget, weights=drawn.weights) if budget else "uniform"
        pairs = calibration_pairs(drawn.task, groups, channels, PAIRS, rng)
        c, x = pairs.record_losses, pairs.group_losses
    fit, surrogate = quadratic_diagnostic(c, x), fit_surrogate(c, x, rng)
    interactions = np.abs(fit.interactions[np.triu_indices(len(groups), 1)])
    second = np.einsum("ti,ij,tj->t", x, fit.interactions, x) + x**2 @ fit.squares
    return [
        {
            "intercept": fit.intercept,
            "min_linear": fit.linear.min(),
            "max_linear": fit.linear.max(),
            "median_interaction": np.median(interactions),
            "max_interaction": interactions.max(),
            "median_square": np.median(np.abs(fit.squares)),
            "max_square": np.abs(fit.squares).max(),
            "r_squared": fit.r_squared,
            "linear_r_squared": fit.linear_r_squared,
            "unseen_r_squared": surrogate.held_out_r_squared,
            "least_coefficient": surrogate.coefficients.min(),
            "second_order": np.sqrt(np.mean(second**2) / np.mean(c**2)),
            "sum_of_groups": x.sum(axis=1).mean() / c.mean(),
        }
    ]


SURROGATE_FIT = Experiment(
    "surrogate_fit",
    [
        {"case": case, "sample": sample, "candidates": candidates}
        for case in CASES
        for sample in range(SAMPLES)
        for candidates in CANDIDATES
    ],
    surrogate_fit,
    scale=1e-6,  # the coefficients of second order of Case I are rounding
)
