"""The parts that the tables of anchors and thresholds are made of."""

import numpy as np
import pytest

from book.experiments.anchors import BUDGETS, by_group, product, small_domain
from book.experiments.thresholds import CASES, dependence, record_loss
from dephdp import Channel, optimal_mechanism
from dephdp.group import Group


@pytest.fixture(scope="module")
def groups():
    return small_domain("FE", 4, 1)


def test_a_product_adds_losses_and_squares_of_distances(groups):
    prior, loss, distances = product(groups)
    (p, c, d), (p2, c2, d2) = groups
    for x, y in [(0, 5), (7, 14), (3, 12)]:
        (i, k), (j, h) = divmod(x, 4), divmod(y, 4)
        assert prior[x] == pytest.approx(p[i] * p2[k])
        assert loss[x, y] == pytest.approx(c[i, j] + c2[k, h])
        assert distances[x, y] == pytest.approx(np.hypot(d[i, j], d2[k, h]))


def test_two_groups_are_private_and_no_better_than_their_product(groups):
    rows = by_group(groups, ["optimal"] * 2)
    assert (rows[:, 2] <= BUDGETS).all()
    assert (rows[:, 1] <= rows[:, 0]).all() and (np.diff(rows[:, 0]) <= 0).all()
    whole = optimal_mechanism(*product(groups), BUDGETS[0], tol=1e-4)
    assert whole.lower_bound <= rows[0, 0]


def test_the_loss_of_whole_records():
    rng = np.random.default_rng(0)
    sample = CASES["FE"].draw(rng, size=20)
    names = [("age", "sex"), tuple(n for n in sample.records if n not in ("age", "sex"))]
    sizes = [Group.observed(sample.domain, part, sample.codes).size for part in names]
    truthful = [Channel(np.eye(n), np.zeros((n, n))) for n in sizes]
    assert record_loss(sample, names, truthful, rng) == (0, 0)
    # the first group always reports its first state: the loss counts wrong ages and sexes
    constant = np.zeros((sizes[0], sizes[0]))
    constant[:, 0] = 1
    mean, _ = record_loss(
        sample, names, [Channel(constant, np.zeros(constant.shape)), truthful[1]], rng
    )
    columns = sample.codes[:, sample.domain.positions(("age", "sex"))]
    first = Group.observed(sample.domain, names[0], sample.codes).codes[0]
    wrong = (columns != first).sum(axis=1).mean()
    assert mean == pytest.approx(wrong * sample.task.loss_of_one_attribute)


def test_dependence_is_between_all_attributes():
    sample = CASES["EE"].draw(np.random.default_rng(1), size=40)
    plain, adjusted = dependence(sample, "plug-in"), dependence(sample, "permutation")
    off = ~np.eye(13, dtype=bool)
    assert plain.shape == (13, 13) and plain.min() >= 0
    assert plain[off].mean() > adjusted[off].mean()  # the bias of the plug-in estimate
