"""Tasks: every fast loss against the definition on whole tables."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dephdp import Attribute, Domain, datasets
from dephdp.errors import InvalidDomain, InvalidLoss, InvalidTask
from dephdp.tasks import (
    Crowdsourcing,
    EntropyEstimation,
    FrequencyEstimation,
    PopulationTask,
    RecordTask,
    wine_quality_scores,
)

DOMAIN = Domain(
    [
        Attribute.nominal("a", range(3)),
        Attribute.ordinal("b", range(4)),
        Attribute.nominal("c", range(2)),
    ]
)


def draw(rng, *shape):
    return np.stack([rng.integers(size, size=shape) for size in DOMAIN.sizes], axis=-1)


def case(seed, records=7):
    """A small table and every kind of pair: of its own records, and of records it lacks."""
    rng = np.random.default_rng(seed)
    reference = draw(rng, records)
    rows = rng.integers(records, size=12)
    before = np.where(rng.random((12, 1)) < 0.5, reference[rows], draw(rng, 12))
    return rng, reference, rows, before, draw(rng, 12)


def entropy(table, columns, base):
    counts = np.unique(table[:, columns], axis=0, return_counts=True)[1]
    return stats.entropy(counts, base=base)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), records=st.integers(1, 9))
def test_frequency_loss_is_a_scaled_hamming_distance(seed, records):
    _, reference, rows, before, after = case(seed, records)

    def frequencies(table):
        return np.concatenate(
            [np.bincount(v, minlength=m) for v, m in zip(table.T, DOMAIN.sizes, strict=True)]
        ) / len(table)

    literal = PopulationTask(
        DOMAIN, reference, frequencies, lambda p, q: 1e5 * np.sum((p - q) ** 2)
    )
    task = FrequencyEstimation(DOMAIN, reference)
    np.testing.assert_allclose(
        task.losses(rows, before, after), literal.losses(rows, before, after), rtol=1e-9
    )
    assert task.loss_of_one_attribute == 2e5 / records**2


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    records=st.integers(1, 9),
    weights=st.lists(st.floats(0, 2), min_size=3, max_size=3).filter(any),
    blocks=st.sampled_from([None, [["c", "a"]], [["b"], ["a", "c"]], [["a"], ["b"], ["c"]]]),
    base=st.sampled_from([2.0, math.e]),
)
def test_entropy_loss_equals_its_definition_on_whole_tables(seed, records, weights, blocks, base):
    _, reference, rows, before, after = case(seed, records)
    places = [DOMAIN.positions(block) for block in blocks or [DOMAIN.names]]

    def entropies(table):
        return [
            ([entropy(table, [i], base) for i in place], entropy(table, place, base))
            for place in places
        ]

    def change(old, new):
        total = 0.0
        for (m, joint), (m_new, joint_new) in zip(old, new, strict=True):
            marginal = np.mean([abs(h_new - h) for h, h_new in zip(m, m_new, strict=True)])
            correlation = (sum(m_new) - joint_new) - (sum(m) - joint)
            parts = (marginal, abs(joint_new - joint), abs(correlation))
            total += np.dot(weights, parts)
        return 1000 * total

    literal = PopulationTask(DOMAIN, reference, entropies, change)
    task = EntropyEstimation(DOMAIN, reference, weights, blocks=blocks, base=base)
    np.testing.assert_allclose(
        task.losses(rows, before, after),
        literal.losses(rows, before, after),
        rtol=1e-9,
        atol=1e-9,
    )


def labels(scores, levels):
    """True labels counted from one, as the recipe reads."""
    low, high = scores.min(axis=0), scores.max(axis=0)
    span = np.where(high > low, high - low, 1)
    return np.floor((levels - 1) * (scores - low) / span + 0.5).astype(int) + 1


def two_scores(codes):
    return np.stack([codes.sum(axis=1), codes[:, 0] - 2.0 * codes[:, 1]], axis=1)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), records=st.integers(1, 9), levels=st.integers(2, 5))
def test_crowdsourcing_equals_its_definition_on_whole_tables(seed, records, levels):
    rng, reference, rows, before, after = case(seed, records)
    task = Crowdsourcing(DOMAIN, reference, two_scores, levels=levels)
    literal = PopulationTask(
        DOMAIN,
        reference,
        lambda table: labels(two_scores(table), levels),
        lambda old, new: 1e4 * np.abs(new - old).sum() / new.sum(),
    )
    np.testing.assert_allclose(
        task.losses(rows, before, after), literal.losses(rows, before, after), rtol=1e-12
    )
    # erring workers: the same, through each item's own map from true to voted labels
    noisy = Crowdsourcing(DOMAIN, reference, two_scores, levels=levels, reliability=0.6, rng=rng)
    item, score = np.ogrid[:records, :2]

    def voted(table):
        return noisy._voted[item, score, labels(two_scores(table), levels) - 1] + 1

    literal = PopulationTask(
        DOMAIN, reference, voted, lambda old, new: 1e4 * np.abs(new - old).sum() / new.sum()
    )
    np.testing.assert_allclose(
        noisy.losses(rows, before, after), literal.losses(rows, before, after), rtol=1e-12
    )


def test_majorities_are_right_as_often_as_enumeration_says():
    levels, votes, reliability = 3, 3, 0.6
    chances = [reliability, 0.2, 0.2]
    expected = sum(
        math.prod(chances[v] for v in ballot)
        for ballot in itertools.product(range(levels), repeat=votes)
        if np.bincount(ballot, minlength=levels).argmax() == 0
    )  # true label 0: ties go to it
    count = 3000
    reference = draw(np.random.default_rng(1), count)
    task = Crowdsourcing(
        DOMAIN,
        reference,
        two_scores,
        levels=levels,
        votes=votes,
        reliability=reliability,
        rng=np.random.default_rng(2),
    )
    right = task._voted[:, :, 0] == 0
    error = math.sqrt(expected * (1 - expected) / right.size)
    assert abs(right.mean() - expected) < 4 * error


def test_wine_scores_are_those_of_the_frame():
    wine = datasets.load_wine_red()
    numeric = {name: (float(wine[name].min()), float(wine[name].max())) for name in wine}
    domain = Domain.from_frame(wine, numeric=numeric)
    scores = wine_quality_scores(domain)(domain.encode(wine))
    features = wine.drop(columns="quality")
    np.testing.assert_allclose(scores[:, 0], features.sum(axis=1))
    acidity = ["fixed_acidity", "volatile_acidity", "citric_acid"]
    np.testing.assert_allclose(scores[:, 1], wine[acidity].mean(axis=1))
    np.testing.assert_allclose(scores[:, 3], -wine["total_sulfur_dioxide"])
    task = Crowdsourcing(domain, domain.encode(wine)[:150], wine_quality_scores(domain))
    losses = task.losses(np.arange(150), task.reference, task.reference[::-1])
    assert losses.max() > 0
    with pytest.raises(InvalidTask, match="residual_sugar"):
        wine_quality_scores(Domain([domain["fixed_acidity"], domain["chlorides"]]))


def test_record_tasks_evaluate_two_functions():
    _, reference, rows, before, after = case(3)
    task = RecordTask(
        DOMAIN,
        reference,
        lambda codes: np.stack([codes[:, 0] + codes[:, 1], codes[:, 2]], axis=1),
        lambda u, v: np.abs(u - v).max(axis=1),
    )
    found = task.losses(rows[:, None], before[:, None], after)
    assert found.shape == (12, 12)
    for i, j in itertools.product(range(12), repeat=2):
        x, y = before[i], after[j]
        assert found[i, j] == max(abs((x - y)[:2].sum()), abs(x[2] - y[2]))


@pytest.mark.parametrize(("loss", "shown"), [(-1.0, "-1.0"), (math.nan, "nan"), (math.inf, "inf")])
def test_losses_that_are_no_losses_are_refused(loss, shown):
    task = RecordTask(
        DOMAIN,
        [[0, 0, 0]],
        lambda codes: codes[:, 1],
        lambda u, v: np.where(v == 3, loss, 0.0),
    )
    assert task.losses(0, [0, 0, 0], [[0, 2, 0]]).tolist() == [0]
    with pytest.raises(InvalidLoss, match=rf"codes \[1, 3, 0\] for \[0, 0, 0\] is .*{shown}"):
        task.losses(0, [0, 0, 0], [[1, 2, 0], [1, 3, 0]])
    population = PopulationTask(DOMAIN, [[0, 0, 0]], np.sum, lambda u, v: loss)
    with pytest.raises(InvalidLoss, match="finite and nonnegative"):
        population.losses(0, [0, 0, 0], [1, 1, 1])


def test_bad_tasks_are_refused_by_name():
    reference = [[0, 0, 0], [1, 1, 1]]
    task = FrequencyEstimation(DOMAIN, reference)
    with pytest.raises(InvalidTask, match="nonempty reference"):
        FrequencyEstimation(DOMAIN, np.empty((0, 3), dtype=int))
    with pytest.raises(InvalidDomain, match="'b'"):
        FrequencyEstimation(DOMAIN, [[0, 9, 0]])
    with pytest.raises(InvalidTask, match="scale"):
        FrequencyEstimation(DOMAIN, reference, scale=0)
    with pytest.raises(InvalidTask, match="rows must lie in 0"):
        task.losses(2, [0, 0, 0], [1, 1, 1])
    with pytest.raises(InvalidTask, match="integers"):
        task.losses(0.5, [0, 0, 0], [1, 1, 1])
    with pytest.raises(InvalidDomain, match="'a'"):
        task.losses(0, [0, 0, 0], [7, 1, 1])
    with pytest.raises(InvalidTask, match="one loss a pair"):
        RecordTask(DOMAIN, reference, lambda x: x, lambda u, v: 0.0).losses(0, [0] * 3, [1] * 3)
    with pytest.raises(InvalidTask, match="first axis"):
        RecordTask(DOMAIN, reference, np.sum, lambda u, v: u).losses(0, [0] * 3, [1] * 3)
    for weights in ((1, 1), (1, -1, 1), (0, 0, 0), (math.inf, 0, 0)):
        with pytest.raises(InvalidTask, match="weights"):
            EntropyEstimation(DOMAIN, reference, weights)
    with pytest.raises(InvalidTask, match="base"):
        EntropyEstimation(DOMAIN, reference, base=1)
    with pytest.raises(InvalidTask, match="disjoint"):
        EntropyEstimation(DOMAIN, reference, blocks=[["a", "b"], ["b"]])
    with pytest.raises(InvalidTask, match="disjoint"):
        EntropyEstimation(DOMAIN, reference, blocks=[])
    with pytest.raises(InvalidTask, match="votes"):
        Crowdsourcing(DOMAIN, reference, two_scores, votes=16)
    with pytest.raises(InvalidTask, match="probability"):
        Crowdsourcing(DOMAIN, reference, two_scores, reliability=1.5)
    with pytest.raises(TypeError, match="Generator"):
        Crowdsourcing(DOMAIN, reference, two_scores, reliability=0.9)
    with pytest.raises(InvalidTask, match="finite"):
        Crowdsourcing(DOMAIN, reference, lambda x: x * math.nan)
    with pytest.raises(InvalidTask, match=r"\(records, scores\)"):
        Crowdsourcing(DOMAIN, reference, lambda x: x[:, 0])


def test_equal_scores_are_all_labelled_one():
    task = Crowdsourcing(DOMAIN, [[0, 0, 0]] * 3, lambda x: np.ones((len(x), 1)))
    assert task.losses(0, [0, 0, 0], [1, 1, 1]) == 0
