"""Table 6: optimised groups against anchors, on products of two groups of a case study."""

import time

import numpy as np

from book.cases.census import CensusSample
from book.cases.heart import HeartSample
from book.cases.wine import WineSample
from book.experiments.experiment import Experiment
from dephdp import (
    allocate_budget,
    anchor_mechanism,
    loss_curve,
    product_privacy_level,
    radial_fit,
)
from dephdp.metric import combine_distances
from dephdp.optimal.anchors import selection_cost

TASKS = {
    "FE": (CensusSample, (0, 2), 0.3),
    "EE": (HeartSample, (0, 2), 0.2),
    "CC": (WineSample, (0, 2), 0.1),
}
"""The sample, the positions of its two largest groups, and the threshold τ_dpn of each task."""

SIDES = (8, 12, 16, 20)
BUDGETS = (2.0, 4.0, 6.0, 10.0, 15.0)
GRID = np.concatenate([[0], np.geomspace(0.25, 15, 36)])
LARGEST_JOINT = 64  # states for which the program over all pairs is solved without a price


def small_domain(task, side, seed):
    """Return two groups of a sample, cut down to some of their states, drawn at random.

    Parameters
    ----------
    task : {"FE", "EE", "CC"}
    side : int
        States of each group.
    seed : int

    Returns
    -------
    list of (prior, loss, distances)
        One for each group; losses carry the group's coefficient.
    """
    draw, positions, _ = TASKS[task]
    rng = np.random.default_rng([seed, side])
    sample = draw.draw(rng)
    groups = []
    for k in positions:
        profile = sample.profile(sample.groups[k])
        chosen = np.sort(rng.choice(profile.group.size, side, replace=False))
        square = np.ix_(chosen, chosen)
        loss = sample.coefficients[k] * profile.loss[square]
        groups.append((np.full(side, 1 / side), loss, profile.distances[square]))
    return groups


def product(groups):
    """Return prior, loss and distances of the product of two groups."""
    (prior, loss, distances), (prior2, loss2, distances2) = groups
    n = len(prior) * len(prior2)
    joint = (loss[:, None, :, None] + loss2[None, :, None, :]).reshape(n, n)
    return np.kron(prior, prior2), joint, combine_distances([distances, distances2], 2)


def by_group(groups, families):
    """Return the best division of each budget among two groups, and the exact record levels."""
    curves = [
        loss_curve(*group, GRID, family, tol=1e-3)
        for group, family in zip(groups, families, strict=True)
    ]
    rows = []
    for epsilon in BUDGETS:
        best = allocate_budget(
            GRID,
            [curve.losses for curve in curves],
            epsilon,
            2,
            lower_bounds=[curve.lower_bounds for curve in curves],
        )
        channels = [c.mechanism(b) for c, b in zip(curves, best.budgets, strict=True)]
        rows.append((best.loss, best.lower_bound, product_privacy_level(channels, 2)))
    return np.array(rows)


def compare(task, side, seed):
    """Return one row a budget: groups, optimised or chosen by their scores, and anchors."""
    threshold = TASKS[task][2]
    groups = small_domain(task, side, seed)
    started = time.perf_counter()
    optimal = by_group(groups, ["optimal"] * 2)
    groups_time = time.perf_counter() - started
    scores = [radial_fit(loss, distances) for _, loss, distances in groups]
    families = ["optimal" if score <= threshold else "tight+remap" for score in scores]
    chosen = optimal if families == ["optimal"] * 2 else by_group(groups, families)
    prior, loss, distances = product(groups)
    states = len(prior)
    rows = []
    for epsilon, ours, rule in zip(BUDGETS, optimal, chosen, strict=True):
        started = time.perf_counter()
        anchors = anchor_mechanism(prior, loss, distances, epsilon, tol=1e-2)
        seconds = time.perf_counter() - started
        cost = selection_cost(anchors.probabilities)
        apart = ~np.eye(states, dtype=bool)
        row = {
            "states": states,
            "epsilon": epsilon,
            "optimised": families.count("optimal"),
            "rule_loss": rule[0],
            "rule_level": rule[2],
            "groups_loss": ours[0],
            "groups_bound": ours[1],
            "groups_level": ours[2],
            "anchors_loss": anchors.loss,
            "constant_loss": float((prior @ loss).min()),
            "selection_level": float((cost[apart] / distances[apart]).max()),
            "exhausted": float((cost >= epsilon * distances)[apart].mean()),
            "anchors_level": anchors.privacy_level(),
            "unpriced_loss": np.nan,
            "unpriced_level": np.nan,
            "unpriced_report_level": np.nan,
            "groups_time": groups_time,
            "anchors_time": seconds,
        }
        if states <= LARGEST_JOINT:
            free = anchor_mechanism(prior, loss, distances, epsilon, priced=False, tol=1e-2)
            row["unpriced_loss"] = free.loss
            row["unpriced_level"] = free.privacy_level()
            row["unpriced_report_level"] = free.report_channel().privacy_level()
        rows.append(row)
    return rows


EXPERIMENT = Experiment(
    name="anchors",
    units=[
        {"task": task, "side": side, "seed": seed}
        for side in SIDES
        for task in TASKS
        for seed in (1, 2, 3)
    ],
    compute=compare,
    tolerance=1e-2,
    scale=1e-6,
    volatile=("groups_time", "anchors_time"),
)
