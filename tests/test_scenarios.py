"""The eight scenarios: they exhaust what can happen, and enumeration and simulation agree."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import drha
from drha import Scenario

cells = st.integers(1, 6).flatmap(
    lambda k: st.lists(st.integers(0, 12), min_size=k, max_size=k).filter(any)
)
noises = st.one_of(
    st.floats(0.01, 8.0).map(drha.laplace),
    st.floats(0.01, 8.0).map(drha.geometric),
    st.floats(0.2, 30.0).map(lambda sigma: drha.gaussian(sigma=sigma)),
    st.floats(0.2, 30.0).map(lambda sigma: drha.discrete_gaussian(sigma=sigma)),
)


def scenario(true, survives):
    """Classify one outcome, read off the definitions: true counts, and which levels survive."""
    homogeneous = sum(count > 0 for count in true) == 1
    survivors = [level for level, alive in enumerate(survives) if alive]
    if not survivors:
        return 4 if homogeneous else 6
    if len(survivors) > 1:
        return 3 if homogeneous else 5
    if true[survivors[0]] > 0:
        return 1 if homogeneous else 8
    return 2 if homogeneous else 7


def enumerated(counts, noise):
    u, s = noise.vanishing(np.array(counts)), noise.survival(np.array(counts))
    probabilities = np.zeros(8)
    for survives in itertools.product([False, True], repeat=len(counts)):
        probabilities[scenario(counts, survives) - 1] += math.prod(np.where(survives, s, u))
    return probabilities


@settings(max_examples=100, deadline=None)
@given(cells, noises)
def test_scenarios_equal_enumeration_and_sum_to_one(counts, noise):
    probabilities = drha.scenario_probabilities(counts, noise)
    np.testing.assert_allclose(probabilities, enumerated(counts, noise), rtol=1e-12, atol=0)
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-14)
    risk = probabilities[Scenario.HOMOGENEOUS_SAME_LEVEL - 1]
    risk = risk + probabilities[Scenario.HETEROGENEOUS_TRUE_LEVEL - 1]
    assert risk == pytest.approx(drha.local_risk(counts, noise), rel=1e-13)


@pytest.mark.parametrize("counts", [(3, 0, 0), (4, 1, 0, 0), (1, 1, 1), (2,)])
@pytest.mark.parametrize(
    "noise",
    [
        drha.laplace(0.6),
        drha.gaussian(1.0, delta=1e-3),
        drha.geometric(0.6),
        drha.discrete_gaussian(1.0, delta=1e-3),
    ],
    ids=["laplace", "gaussian", "geometric", "discrete gaussian"],
)
def test_simulated_sanitiser_meets_every_scenario_as_often_as_computed(counts, noise):
    draws = 1_000_000
    rng = np.random.default_rng([8, *counts])
    survives = noise.release(np.broadcast_to(counts, (draws, len(counts))), rng) > 0
    code = survives @ (1 << np.arange(len(counts)))
    observed = np.zeros(8)
    for pattern, number in enumerate(np.bincount(code)):
        alive = [bool(pattern >> level & 1) for level in range(len(counts))]
        observed[scenario(counts, alive) - 1] += number
    expected = draws * drha.scenario_probabilities(counts, noise)
    error = np.sqrt(expected * (1 - expected / draws))
    assert (np.abs(observed - expected) <= 4 * error + 1e-6).all()


def test_tiny_scenarios_keep_their_precision():
    """At epsilon = 80 a count of 3 vanishes with probability 1e-87, and both of two with 1e-174."""
    epsilon = 80.0
    u = 0.5 * math.exp(-2.5 * epsilon)
    probabilities = drha.scenario_probabilities([3, 3], drha.laplace(epsilon))
    assert probabilities[Scenario.HETEROGENEOUS_BECOMES_EMPTY - 1] == pytest.approx(
        u * u, rel=1e-12
    )
    assert probabilities[Scenario.HETEROGENEOUS_TRUE_LEVEL - 1] == pytest.approx(2 * u, rel=1e-12)
    assert probabilities[Scenario.HETEROGENEOUS_WRONG_LEVEL - 1] == 0.0
    certain = drha.scenario_probabilities([3, 0], drha.laplace(1e3))
    assert certain[0] == 1.0
    assert certain[2] == pytest.approx(0.5 * math.exp(-500), rel=1e-11)


def test_shapes_and_empty_cells():
    noise = drha.laplace(1.0)
    counts = np.array([[3, 0], [2, 1], [0, 0]])
    probabilities = drha.scenario_probabilities(counts, noise)
    assert probabilities.shape == (3, 8)
    np.testing.assert_allclose(probabilities.sum(axis=1), [1, 1, 0], atol=1e-15)
    assert (probabilities[0, 4:] == 0).all()
    assert (probabilities[1, :4] == 0).all()
    np.testing.assert_array_equal(drha.scenario_probabilities(counts[1], noise), probabilities[1])
    assert drha.scenario_probabilities(counts[:0], noise).shape == (0, 8)
    table = drha.FrequencyTable.from_counts(counts[:2])
    np.testing.assert_array_equal(drha.scenario_probabilities(table, noise), probabilities[:2])
    assert [s.value for s in Scenario] == list(range(1, 9))


def test_bad_noise_is_refused():
    with pytest.raises(drha.InvalidNoise):
        drha.scenario_probabilities([1, 2], "laplace")
