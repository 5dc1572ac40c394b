"""Bayesian remapping against the enumeration of all maps, and the post-processing theorem."""

import itertools
import math

import numpy as np
import pytest
from channels import euclidean, random_channel
from hypothesis import given, settings
from hypothesis import strategies as st

from dephdp import (
    Channel,
    bayes_actions,
    bayes_remap,
    exponential_mechanism,
    tight_constraints_mechanism,
)
from dephdp.errors import InvalidDistribution, InvalidLoss


def remap_by(channel, actions, outputs):
    """Apply a given map of reports to final outputs."""
    indicator = np.zeros((channel.outputs, outputs))
    indicator[np.arange(channel.outputs), list(actions)] = 1
    return Channel(channel.matrix @ indicator, channel.distances)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_no_map_is_better(states, reports, outputs, seed):
    rng = np.random.default_rng(seed)
    channel = random_channel(rng, states, reports)
    prior, loss = rng.dirichlet(np.ones(states)), rng.normal(size=(states, outputs))
    best = min(
        remap_by(channel, actions, outputs).expected_loss(prior, loss)
        for actions in itertools.product(range(outputs), repeat=reports)
    )
    remapped = bayes_remap(channel, prior, loss)
    assert remapped.matrix.shape == (states, outputs)
    assert remapped.expected_loss(prior, loss) == pytest.approx(best, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 20),
    st.floats(1e-3, 30),
    st.sampled_from(["nominal", "calibrated", "tight"]),
    st.integers(0, 2**32 - 1),
)
def test_the_level_never_rises_and_the_loss_never_does(states, epsilon, kind, seed):
    rng = np.random.default_rng(seed)
    distances = euclidean(rng.random(states))
    if kind == "tight":
        channel = tight_constraints_mechanism(distances, epsilon)
    else:
        channel = exponential_mechanism(distances, epsilon, kind == "calibrated")
    prior = rng.dirichlet(np.full(states, 0.3))
    loss = rng.choice([distances, distances**2, rng.random((states, states))])
    remapped = bayes_remap(channel, prior, loss)
    assert remapped.privacy_level() <= channel.privacy_level()
    assert remapped.certify(epsilon).holds
    assert remapped.expected_loss(prior, loss) <= channel.expected_loss(prior, loss) + 1e-12


def test_a_second_remap_changes_nothing():
    rng = np.random.default_rng(0)
    channel = exponential_mechanism(euclidean(rng.random((12, 2))), 3.0)
    prior, loss = rng.dirichlet(np.ones(12)), rng.random((12, 12))
    once = bayes_remap(channel, prior, loss)
    twice = bayes_remap(once, prior, loss)
    assert twice.expected_loss(prior, loss) == pytest.approx(once.expected_loss(prior, loss))


def test_ties_go_to_the_smallest_index_however_sums_are_rounded():
    channel = Channel([[0.1, 0.2, 0.7], [0.7, 0.2, 0.1]], [[0, 1], [1, 0]])
    constant = np.full((2, 3), 0.3)
    assert bayes_actions(channel, [0.5, 0.5], constant).tolist() == [0, 0, 0]
    # In exact arithmetic the two actions tie for the middle report; their doubles may not.
    loss = np.array([[0.3, 0.1], [0.1, 0.3]])
    for scale in (1.0, 1 / 3, 7e-5, 1e12):
        assert bayes_actions(channel, [0.5, 0.5], scale * loss)[1] == 0
    # A report that the prior rules out.
    blind = Channel([[1.0, 0.0], [0.0, 1.0]], [[0, math.inf], [math.inf, 0]])
    assert bayes_actions(blind, [1.0, 0.0], [[1.0, 0.0], [0.0, 1.0]]).tolist() == [1, 0]


def test_a_strong_prior_overrules_every_report():
    """One state of probability 0.93 among eight: the best answer ignores the report."""
    prior = np.r_[0.93, np.full(7, 0.01)]
    distances = 1 - np.eye(8)
    for epsilon in (1.0, 2.0, 4.0):
        channel = exponential_mechanism(distances, epsilon)
        missed = 7 / (7 + math.exp(epsilon / 2))
        assert channel.expected_loss(prior, distances) == pytest.approx(missed)
        remapped = bayes_remap(channel, prior, distances)
        assert remapped.expected_loss(prior, distances) == pytest.approx(0.07)
        assert remapped.privacy_level() < 1e-15


def test_the_loss_is_not_monotone_in_the_budget():
    """On K_{3,3} a larger ε of the exponential mechanism is not more informative."""
    sides = np.arange(6) // 3
    distances = np.where(sides[:, None] == sides, 2.0, 1.0)
    np.fill_diagonal(distances, 0.0)
    prior = np.full(6, 1 / 6)

    small, large = (exponential_mechanism(distances, epsilon) for epsilon in (1.2, 2.0))
    assert small.privacy_level() < large.privacy_level()
    # The loss that separates the two channels best, from a linear program over all losses: report
    # the other side, or, at a price in between, the state itself.
    loss = np.where(sides[:, None] == sides, 1.0, 0.0)
    np.fill_diagonal(loss, 2 / math.e)
    before, after = (
        bayes_remap(channel, prior, loss).expected_loss(prior, loss) for channel in (small, large)
    )
    assert before == pytest.approx(0.4119, abs=5e-5)
    assert after == pytest.approx(0.4239, abs=5e-5)


def test_the_remapped_loss_by_simulation():
    rng = np.random.default_rng(11)
    distances = euclidean(rng.random((9, 2)))
    prior, loss = rng.dirichlet(np.ones(9)), rng.random((9, 4))
    channel = exponential_mechanism(distances, 4.0)
    actions = bayes_actions(channel, prior, loss)
    states = rng.choice(9, size=200_000, p=prior)
    drawn = loss[states, actions[channel.sample(states, rng)]]
    expected = bayes_remap(channel, prior, loss).expected_loss(prior, loss)
    assert abs(drawn.mean() - expected) < 4 * drawn.std() / math.sqrt(len(drawn))


def test_an_infinite_level_stays_allowed():
    identity = Channel(np.eye(3), 1 - np.eye(3))
    assert bayes_remap(identity, np.full(3, 1 / 3), 1 - np.eye(3)).privacy_level() == math.inf


def test_bad_input():
    channel = exponential_mechanism(1 - np.eye(3), 1.0)
    with pytest.raises(InvalidDistribution, match="sums"):
        bayes_remap(channel, [0.5, 0.5, 0.5], 1 - np.eye(3))
    with pytest.raises(InvalidLoss, match=r"shape \(2, 3\)"):
        bayes_remap(channel, np.full(3, 1 / 3), np.ones((2, 3)))
    with pytest.raises(InvalidLoss, match="shape"):
        bayes_remap(channel, np.full(3, 1 / 3), np.ones(3))
    with pytest.raises(InvalidLoss, match=r"loss\[0, 1\]"):
        bayes_remap(channel, np.full(3, 1 / 3), [[0, np.nan], [0, 0], [0, 0]])
