"""Losses within a group: enumeration, closed forms and samples."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dephdp import Attribute, Domain
from dephdp.errors import InvalidDistribution, InvalidGroup, InvalidLoss, InvalidTask
from dephdp.group import Group
from dephdp.losses import profile_group, sample_pairs, sampled_loss, within_group_loss
from dephdp.tasks import EntropyEstimation, FrequencyEstimation, RecordTask, Task

DOMAIN = Domain(
    [
        Attribute.nominal("a", range(3)),
        Attribute.ordinal("b", range(4)),
        Attribute.nominal("c", range(2)),
        Attribute.nominal("constant", ["only"]),
    ]
)


def draw(rng, count):
    return np.stack([rng.integers(size, size=count) for size in DOMAIN.sizes], axis=-1)


def parity_of_a_times_b(reference):
    """The loss depends on the context: what b is worth is decided by a and c."""
    return RecordTask(
        DOMAIN,
        reference,
        lambda codes: (codes[:, 0] + 1.0) * codes[:, 1] + codes[:, 2],
        lambda u, v: np.abs(u - v),
    )


def loop_over_records(task, group):
    """Eq. 16-17 as they read; an unseen state has everybody's context."""
    total = np.zeros((group.size, group.size))
    for x, y in itertools.product(range(group.size), repeat=2):
        own = np.flatnonzero(group.find(task.reference) == x).tolist()
        for i in own or range(len(task.reference)):
            record, report = task.reference[i].copy(), task.reference[i].copy()
            record[group.columns] = group.codes[x]
            report[group.columns] = group.codes[y]
            total[x, y] += float(task.losses(i, record, report)) / len(own or task.reference)
    return total


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    records=st.integers(1, 12),
    names=st.sampled_from([["b"], ["c", "a"], ["a", "b", "constant"]]),
    full=st.booleans(),
)
def test_enumeration_equals_a_loop_over_records(seed, records, names, full):
    reference = draw(np.random.default_rng(seed), records)
    group = Group.full(DOMAIN, names) if full else Group.observed(DOMAIN, names, reference)
    for task in (parity_of_a_times_b(reference), EntropyEstimation(DOMAIN, reference)):
        loss = within_group_loss(task, group)
        np.testing.assert_allclose(loss, loop_over_records(task, group), rtol=1e-10, atol=1e-12)
        assert (loss >= 0).all() and (np.diag(loss) == 0).all()


def test_the_closed_form_equals_enumeration():
    reference = draw(np.random.default_rng(1), 20)
    task = FrequencyEstimation(DOMAIN, reference)
    for names in (["a"], ["a", "b"], ["c", "constant", "b"]):
        group = Group.observed(DOMAIN, names, reference)
        closed = within_group_loss(task, group)
        task.closed_form = lambda group: None
        np.testing.assert_allclose(closed, within_group_loss(task, group), rtol=1e-14)
        del task.closed_form
        assert set(np.unique(closed)) <= {2e5 / 400 * k for k in range(4)}


def test_a_block_of_its_own_does_not_depend_on_context():
    """With the group as a block, its loss is that of a table with the group's columns alone."""
    reference = draw(np.random.default_rng(2), 15)
    names = ["a", "b"]
    blocks = EntropyEstimation(DOMAIN, reference, blocks=[names, ["c", "constant"]])
    narrow = Domain(DOMAIN.group(names))
    alone = EntropyEstimation(narrow, reference[:, :2])
    np.testing.assert_allclose(
        within_group_loss(blocks, Group.observed(DOMAIN, names, reference)),
        within_group_loss(alone, Group.observed(narrow, names, reference[:, :2])),
        rtol=1e-12,
    )


def test_sampled_losses_are_unbiased_with_their_standard_errors():
    rng = np.random.default_rng(3)
    reference = draw(rng, 60)
    group = Group.full(DOMAIN, ["b", "c"])
    task = parity_of_a_times_b(reference[reference[:, 1] < 3])  # b = 3 is never seen
    exact = within_group_loss(task, group)
    before, after = (v.ravel() for v in np.indices(exact.shape))
    losses, errors = sampled_loss(task, group, before, after, contexts=400, rng=rng)
    known = errors == 0
    np.testing.assert_allclose(losses[known], exact[before, after][known], rtol=1e-12)
    z = (losses - exact[before, after])[~known] / errors[~known]
    assert len(z) > 30 and np.abs(z).max() < 4.5
    assert 0.6 < z.std() < 1.4


def test_unseen_states_take_evenly_spaced_contexts_of_a_large_table():
    rng = np.random.default_rng(9)
    reference = draw(rng, 700)
    reference = reference[reference[:, 1] < 3]  # b = 3 is never seen
    group = Group.full(DOMAIN, ["b"])
    task = parity_of_a_times_b(reference)
    every = within_group_loss(task, group, unseen_contexts=10**6)
    thinned = within_group_loss(task, group)
    np.testing.assert_array_equal(thinned[:3], every[:3])
    np.testing.assert_allclose(thinned[3], every[3], rtol=0.02)  # a tenth of the plain error
    assert not np.array_equal(thinned[3], every[3])
    shuffled = parity_of_a_times_b(rng.permutation(reference))
    np.testing.assert_allclose(within_group_loss(shuffled, group), thinned, rtol=1e-12)
    with pytest.raises(InvalidTask, match="unseen_contexts"):
        within_group_loss(task, group, unseen_contexts=0)


def test_sampled_pairs_are_uniform_over_different_states():
    group = Group.full(DOMAIN, ["a"])
    before, after = sample_pairs(group, 6000, np.random.default_rng(4))
    counts = np.bincount(3 * before + after, minlength=9).reshape(3, 3)
    assert (np.diag(counts) == 0).all()
    off = counts[~np.eye(3, dtype=bool)]
    assert (np.abs(off - 1000) < 4.5 * math.sqrt(1000)).all()
    with pytest.raises(InvalidGroup, match="no two different states"):
        sample_pairs(Group.full(DOMAIN, ["constant"]), 2, np.random.default_rng(5))


def test_profiles_hold_what_the_parts_compute():
    reference = draw(np.random.default_rng(6), 30)
    group, task = Group.full(DOMAIN, ["a", "b"]), FrequencyEstimation(DOMAIN, reference)
    profile = profile_group(task, group, 1, {"a": 2.0, "b": 1.0})
    np.testing.assert_array_equal(profile.prior, group.prior(reference))
    np.testing.assert_array_equal(profile.distances, group.distances(1, [2.0, 1.0]))
    np.testing.assert_array_equal(profile.loss, task.closed_form(group))
    assert profile_group(task, group, prior="uniform").prior.tolist() == [1 / 12] * 12
    own = np.eye(12)[0]
    assert profile_group(task, group, prior=own).prior.tolist() == own.tolist()
    with pytest.raises(InvalidTask, match="prior"):
        profile_group(task, group, prior="flat")
    with pytest.raises(InvalidDistribution):
        profile_group(task, group, prior=np.ones(12))


def test_one_state_one_record_and_more_groups_than_records():
    one = [[2, 3, 1, 0]]
    for task in (EntropyEstimation(DOMAIN, one), parity_of_a_times_b(np.array(one))):
        for name in DOMAIN.names:  # four groups, one record
            assert within_group_loss(task, Group.observed(DOMAIN, name, one)).tolist() == [[0.0]]
    constant = profile_group(EntropyEstimation(DOMAIN, one), Group.full(DOMAIN, "constant"))
    assert constant.loss.tolist() == [[0.0]] and constant.prior.tolist() == [1.0]


def test_bad_input_is_refused_by_name():
    rng = np.random.default_rng(7)
    reference = draw(rng, 5)
    task = parity_of_a_times_b(reference)
    with pytest.raises(InvalidGroup, match="not a state"):
        within_group_loss(task, Group(DOMAIN, ["a"], [[0]]))
    with pytest.raises(InvalidGroup, match="no reference record"):
        within_group_loss(task, Group.full(DOMAIN, DOMAIN.names), unseen="refuse")
    with pytest.raises(InvalidTask, match="unseen"):
        within_group_loss(task, Group.full(DOMAIN, ["a"]), unseen="skip")
    group = Group.full(DOMAIN, ["a"])
    with pytest.raises(InvalidTask, match="2 contexts"):
        sampled_loss(task, group, [0], [1], contexts=1, rng=rng)
    with pytest.raises(InvalidGroup, match="lie in 0"):
        sampled_loss(task, group, [0], [3], rng=rng)
    with pytest.raises(InvalidGroup, match="integers"):
        sampled_loss(task, group, [0.0], [1.0], rng=rng)
    with pytest.raises(TypeError, match="Generator"):
        sampled_loss(task, group, [0], [1], rng=None)
    negative = RecordTask(DOMAIN, reference, lambda x: x[:, 0], lambda u, v: v - u - 1.0)
    with pytest.raises(InvalidLoss, match="nonnegative"):
        within_group_loss(negative, group)


def test_a_task_of_ones_own_needs_one_method():
    class Changed(Task):
        def _losses(self, rows, before, after):
            return (before != after).any(axis=-1)

    reference = draw(np.random.default_rng(8), 5)
    group = Group.observed(DOMAIN, ["a", "c"], reference)
    loss = within_group_loss(Changed(DOMAIN, reference), group)
    np.testing.assert_array_equal(loss, 1 - np.eye(group.size))
