"""Speed of the within-group losses, against a plain loop over records, and of Stage 1."""

import math
from collections import Counter

import numpy as np

from dephdp import Attribute, Domain
from dephdp.group import Group
from dephdp.grouping import group_attributes
from dephdp.losses import within_group_loss
from dephdp.tasks import EntropyEstimation

RECORDS, ATTRIBUTES = 300, 10


def table():
    rng = np.random.default_rng(1)
    domain = Domain([Attribute.nominal(f"a{i}", range(20)) for i in range(ATTRIBUTES)])
    return domain, np.minimum(rng.geometric(0.25, (RECORDS, ATTRIBUTES)) - 1, 19)


def entropies(records):
    """Marginal entropies, joint entropy and total correlation of a list of tuples, in bits."""
    n = len(records)

    def entropy(values):
        return math.log2(n) - sum(k * math.log2(k) for k in Counter(values).values()) / n

    marginals = [entropy(column) for column in zip(*records, strict=True)]
    joint = entropy(records)
    return marginals, joint, sum(marginals) - joint


def plain_loop(reference, group, rows):
    """Eq. 16-17 as a double loop over records and replacements: one table at a time."""
    reference = [tuple(record) for record in reference.tolist()]
    marginals, joint, correlation = entropies(reference)
    losses = []
    for i in rows:
        for state in group.codes.tolist():
            replaced = list(reference[i])
            for column, level in zip(group.columns, state, strict=True):
                replaced[column] = level
            changed = [*reference[:i], tuple(replaced), *reference[i + 1 :]]
            new_marginals, new_joint, new_correlation = entropies(changed)
            moved = [abs(a - b) for a, b in zip(marginals, new_marginals, strict=True)]
            parts = (
                sum(moved) / len(moved),
                abs(new_joint - joint),
                abs(new_correlation - correlation),
            )
            losses.append(1000 * (0.3 * parts[0] + 0.4 * parts[1] + 0.3 * parts[2]))
    return np.array(losses).reshape(len(rows), group.size)


def test_entropy_losses_of_300_states_against_a_plain_loop(race):
    domain, reference = table()
    group = Group.observed(domain, ["a0", "a1", "a2", "a3"], reference)
    assert 270 < group.size <= 300
    task = EntropyEstimation(domain, reference)
    loss = within_group_loss(task, group)
    states = group.states(reference)
    alone = np.flatnonzero(np.bincount(states)[states] == 1)[:2]  # one context: loop = mean
    np.testing.assert_allclose(
        loss[states[alone]], plain_loop(reference, group, alone), rtol=1e-9, atol=1e-9
    )
    ratios = race(
        "entropy losses of a group, per record and replacement",
        lambda: within_group_loss(task, group),
        {"plain loop over records": (lambda: plain_loop(reference, group, alone[:1]), group.size)},
        work=RECORDS * group.size,
        rounds=3,
    )
    assert ratios["plain loop over records"] > 50


def test_stage_1_on_adult_like_records(race):
    """All contingency tables at once, against scipy's entropy of one table after another."""
    from scipy.stats import entropy

    rng = np.random.default_rng(2)
    domain = Domain([Attribute.nominal(f"a{i}", range(16)) for i in range(15)])
    records = np.minimum(rng.geometric(0.2, (30_000, 15)) - 1, 15)

    def one_by_one():
        for i in range(4):
            for j in range(i):
                joint = np.unique(records[:, [i, j]], axis=0, return_counts=True)[1]
                entropy(joint)

    ratios = race(
        "pairs of attributes in the dependence graph, 30,000 records",
        lambda: group_attributes(domain, records),
        {"numpy.unique and scipy.stats.entropy": (one_by_one, 6)},
        work=105,
        rounds=3,
    )
    assert ratios["numpy.unique and scipy.stats.entropy"] > 3
