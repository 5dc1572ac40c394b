"""Figures 7-10: what the thresholds of Stages 1 and 3 change, with certified mechanisms."""

import time
from itertools import product

import numpy as np

from book.cases.census import CensusSample
from book.cases.heart import HeartSample
from book.cases.wine import WineSample
from book.experiments.experiment import Experiment
from dephdp import (
    allocate_budget,
    loss_curve,
    mse_likeness,
    normalized_mutual_information,
    prefer_optimal,
    product_privacy_level,
    radial_fit,
)
from dephdp.group import Group
from dephdp.grouping import connected_groups, discretize

CASES = {"FE": CensusSample, "CC": WineSample, "EE": HeartSample}
BUDGETS = (2.0, 6.0, 10.0)
GRID = np.concatenate([[0], np.geomspace(0.2, 10, 20)])
TAUS_GROUP = np.round(np.geomspace(0.01, 1, 21), 4)
TAUS_DPN = np.round(np.linspace(0, 1, 11), 2)
NOISES = ("exponential+remap", "tight+remap")
SCORES = {"mse": mse_likeness, "radial": radial_fit}
DRAWS = 40  # reports of each record, for the loss of whole records


def dependence(sample, estimator):
    """Return the dependence of all attributes, cut into equal widths as many as √N, at most 20.

    Parameters
    ----------
    sample : Sample
    estimator : str
        As in `dephdp.normalized_mutual_information`.

    Returns
    -------
    ndarray, shape (attributes, attributes)
    """
    bins = min(20, round(len(sample.records) ** 0.5))
    columns = [discretize(c, bins, "equal-width") for c in sample.records.to_numpy().T]
    return normalized_mutual_information(np.stack(columns, axis=1), estimator)


def curve_of(sample, names, family):
    """Return a group's loss-budget curve, and the seconds it took."""
    profile = sample.profile(names)
    started = time.perf_counter()
    curve = loss_curve(profile.prior, profile.loss, profile.distances, GRID, family, tol=1e-2)
    return curve, time.perf_counter() - started


def record_loss(sample, groups, channels, rng):
    """Estimate the task's loss when one whole record is replaced by its report.

    Parameters
    ----------
    sample : Sample
    groups : sequence of tuple of str
    channels : sequence of Channel
        One a group.
    rng : numpy.random.Generator

    Returns
    -------
    mean, standard_error : float
        Over the reports of all records.
    """
    records = sample.codes
    rows = np.repeat(np.arange(len(records)), DRAWS)
    reports = records[rows]
    for names, channel in zip(groups, channels, strict=True):
        group = Group.observed(sample.domain, names, records)
        reports = group.plug(reports, channel.sample(group.states(reports), rng))
    losses = sample.task.losses(rows, records[rows], reports)
    return losses.mean(), losses.std(ddof=1) / np.sqrt(len(losses))


def divide(curves, epsilon, coefficients):
    """Return the best division of a budget, and the channels that it pays for."""
    scaled = list(zip(coefficients, curves, strict=True))
    losses = [b * curve.losses for b, curve in scaled]
    bounds = [b * curve.lower_bounds for b, curve in scaled]
    best = allocate_budget(GRID, losses, epsilon, 2, lower_bounds=bounds)
    return best, [c.mechanism(b) for c, b in zip(curves, best.budgets, strict=True)]


def sweep_groups(case, records, seed, estimator):
    """Return loss and number of groups for each threshold of Stage 1 and each budget."""
    rng = np.random.default_rng(seed)
    sample = CASES[case].draw(rng, size=records)
    table = dependence(sample, estimator)
    names = list(sample.records)
    curves, rows, done = {}, [], {}
    for tau in TAUS_GROUP:
        groups = tuple(tuple(names[i] for i in part) for part in connected_groups(table, tau))
        for group in groups:
            if group not in curves:
                curves[group], _ = curve_of(sample, group, "tight+remap")
        for epsilon in BUDGETS:
            if (groups, epsilon) not in done:
                best, channels = divide([curves[g] for g in groups], epsilon, [1] * len(groups))
                mean, error = record_loss(sample, groups, channels, rng)
                done[groups, epsilon] = {
                    "groups": len(groups),
                    "largest": max(len(group) for group in groups),
                    "loss": best.loss,
                    "record_loss": mean,
                    "record_error": error,
                    "level": product_privacy_level(channels, 2),
                }
            rows.append({"tau_group": tau, "epsilon": epsilon, **done[groups, epsilon]})
    return rows


def sweep_mechanisms(case, records, seed):
    """Return loss and time for both thresholds of Stage 3, both scores and each budget."""
    rng = np.random.default_rng(seed)
    sample = CASES[case].draw(rng, size=records)
    profiles = [sample.profile(names) for names in sample.groups]
    sizes = [profile.group.size for profile in profiles]
    curves = {
        (k, family): curve_of(sample, names, family)
        for k, names in enumerate(sample.groups)
        for family in (*NOISES, "optimal")
    }
    done = {}

    def design(families, epsilon):
        if (families, epsilon) not in done:
            chosen = [curves[key] for key in enumerate(families)]
            best, channels = divide([c for c, _ in chosen], epsilon, sample.coefficients)
            done[families, epsilon] = {
                "optimised": families.count("optimal"),
                "loss": best.loss,
                "bound": best.lower_bound,
                "level": product_privacy_level(channels, 2),
                "time": sum(seconds for _, seconds in chosen),
            }
        return done[families, epsilon]

    rows = []
    for noise, score, largest in product(NOISES, SCORES, (records // 3, records)):
        scores = [SCORES[score](profile.loss, profile.distances) for profile in profiles]
        for tau, epsilon in product(TAUS_DPN, BUDGETS):
            use = prefer_optimal(sizes, scores, largest=largest, threshold=tau)
            families = tuple("optimal" if yes else noise for yes in use)
            row = {"noise": noise, "score": score, "tau_dim": largest, "tau_dpn": tau}
            rows.append({**row, "epsilon": epsilon, **design(families, epsilon)})
    return rows


GROUPING = Experiment(
    name="thresholds_grouping",
    units=[
        {"case": case, "records": 60, "seed": seed, "estimator": estimator}
        for case in CASES
        for seed in (1, 2, 3)
        for estimator in ("plug-in", "permutation")
    ],
    compute=sweep_groups,
    tolerance=1e-6,
)
MECHANISMS = Experiment(
    name="thresholds_mechanisms",
    units=[
        {"case": case, "records": records, "seed": seed}
        for records, seeds in ((30, (1,)), (60, (1, 2, 3)))
        for case in CASES
        for seed in seeds
    ],
    compute=sweep_mechanisms,
    tolerance=1e-2,
    volatile=("time",),
)
