"""Tables without bias: by enumeration, by simulation, and against a conic solver."""

from itertools import product

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dephdp import bayes_remap, exponential_mechanism
from dephdp.debias import expected_squared_error, inversion_weights, iterative_bayesian_update
from dephdp.errors import InvalidChannel, InvalidDistribution, SolverError


def instance(seed, n=3, m=4, t=2):
    rng = np.random.default_rng(seed)
    return rng, rng.dirichlet(np.ones(m), n), rng.normal(size=(m, t)), rng.normal(size=(n, t))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_the_squared_error_is_that_of_all_outcomes(seed):
    """Three users: every triple of reports, with its probability."""
    rng, matrix, weights, target = instance(seed)
    users = rng.integers(0, 3, 3)
    prior = np.bincount(users, minlength=3) / 3
    expected, mean = 0.0, 0.0
    for reports in product(range(4), repeat=3):
        chance = np.prod(matrix[users, reports])
        table = np.bincount(reports, minlength=4) / 3 @ weights
        expected += chance * ((table - prior @ target) ** 2).sum()
        mean = mean + chance * table
    bias, variance = expected_squared_error(prior, matrix, weights, target, 3)
    assert bias + variance == pytest.approx(expected)
    assert bias == pytest.approx(((mean - prior @ target) ** 2).sum(), abs=1e-12)


def test_the_inversion_is_unbiased_and_its_error_is_simulated():
    rng = np.random.default_rng(0)
    line = np.abs(np.subtract.outer(range(4), range(4))) / 3
    channel = exponential_mechanism(line, 6.0, calibrated=True)
    prior, users = np.array([0.4, 0.1, 0.3, 0.2]), np.repeat(range(4), [40, 10, 30, 20])
    weights = inversion_weights(channel.matrix)
    np.testing.assert_allclose(channel.matrix @ weights, np.eye(4), atol=1e-12)
    bias, variance = expected_squared_error(prior, channel.matrix, weights, np.eye(4), 100)
    assert bias == pytest.approx(0, abs=1e-25)
    errors = []
    for _ in range(4000):
        histogram = np.bincount(channel.sample(users, rng), minlength=4) / 100
        errors.append(((histogram @ weights - prior) ** 2).sum())
    assert abs(np.mean(errors) - variance) < 4 * np.std(errors) / np.sqrt(len(errors))


def test_what_a_remap_merges_stays_merged():
    """A remapped channel of two reports: the inversion finds the part of π that they tell."""
    line = np.abs(np.subtract.outer(range(4), range(4))) / 3
    loss = (line > 0).astype(float)
    prior = np.array([0.45, 0.05, 0.05, 0.45])
    channel = bayes_remap(exponential_mechanism(line, 2.0), prior, loss)
    assert np.linalg.matrix_rank(channel.matrix) == 2
    weights = inversion_weights(channel.matrix)
    projection = channel.matrix @ weights
    np.testing.assert_allclose(projection @ channel.matrix, channel.matrix, atol=1e-12)
    np.testing.assert_allclose(projection, projection.T, atol=1e-12)
    bias, _ = expected_squared_error(prior, channel.matrix, weights, np.eye(4), 10)
    assert bias == pytest.approx(((prior @ projection - prior) ** 2).sum()) and bias > 1e-4


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_the_most_likely_distribution_agrees_with_a_conic_solver(seed):
    rng = np.random.default_rng(seed)
    matrix, histogram = rng.dirichlet(np.ones(5), 4), rng.dirichlet(np.ones(5))
    found, missing = iterative_bayesian_update(histogram, matrix, gap=1e-6)
    p = cp.Variable(4, nonneg=True)
    likelihood = histogram @ cp.log(p @ matrix)
    best = cp.Problem(cp.Maximize(likelihood), [cp.sum(p) == 1]).solve(solver=cp.CLARABEL)
    reached = histogram @ np.log(found @ matrix)
    assert found.min() >= 0 and found.sum() == pytest.approx(1)
    assert 0 <= missing <= 1e-6
    assert best - 1e-6 - 1e-6 <= reached <= best + 1e-6


def test_exact_frequencies_are_recovered():
    rng = np.random.default_rng(2)
    prior, matrix = rng.dirichlet(np.ones(4)), 0.6 * np.eye(4) + 0.1
    found, _ = iterative_bayesian_update(prior @ matrix, matrix, gap=1e-12)
    np.testing.assert_allclose(found, prior, atol=1e-5)
    np.testing.assert_allclose(prior @ matrix @ inversion_weights(matrix), prior, atol=1e-12)


def test_bad_input_is_refused_by_name():
    matrix = np.array([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0]])
    with pytest.raises(InvalidDistribution, match="no state"):
        iterative_bayesian_update([0.5, 0.4, 0.1], matrix)
    with pytest.raises(InvalidDistribution):
        iterative_bayesian_update([0.5, 0.4, 0.2], matrix)
    with pytest.raises(InvalidChannel):
        inversion_weights([[0.5, 0.6]])
    with pytest.raises(SolverError, match="larger gap"):
        iterative_bayesian_update([0.9, 0.1, 0.0], matrix, gap=1e-14, limit=3)
