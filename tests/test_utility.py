"""Mean absolute error against the literal sum, the definition and simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import drha

NOISES = {
    "laplace": drha.laplace(0.3),
    "laplace strong": drha.laplace(4.0),
    "geometric": drha.geometric(0.3),
    "gaussian": drha.gaussian(sigma=2.5),
    "gaussian wide": drha.gaussian(sigma=21.0),
    "discrete gaussian": drha.discrete_gaussian(sigma=2.5),
    "discrete gaussian wide": drha.discrete_gaussian(sigma=21.0),
}
MECHANISMS = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())


def summed(c, noise):
    """The two sums of u, term by term and in full."""
    u = noise.vanishing(np.arange(1, 3000))
    return math.fsum(u) + math.fsum(u[:c])


@MECHANISMS
def test_error_equals_the_literal_sums(noise):
    counts = np.array([0, 1, 2, 3, 10, 50, 400, 10**9])
    error = drha.mean_absolute_error(counts, noise)
    np.testing.assert_allclose(error, [summed(c, noise) for c in counts], rtol=2e-12)


@MECHANISMS
def test_error_equals_its_definition(noise):
    """Expectation over the released values, whose probabilities are differences of F."""
    for c in (0, 1, 4, 30):
        released = np.arange(1, c + 2500)
        mass = noise.cdf(released - c + 0.5) - noise.cdf(released - c - 0.5)
        expected = c * noise.vanishing(c) + (np.abs(released - c) * mass).sum()
        assert drha.mean_absolute_error(c, noise) == pytest.approx(expected, rel=1e-9)


@MECHANISMS
def test_error_of_real_releases(noise):
    rng = np.random.default_rng(31)
    counts = np.array([0, 1, 5, 20])
    draws = np.abs(noise.release(np.broadcast_to(counts, (200_000, 4)), rng) - counts)
    z = (draws.mean(axis=0) - drha.mean_absolute_error(counts, noise)) / (
        draws.std(axis=0) / math.sqrt(len(draws))
    )
    assert np.abs(z).max() < 4


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0.05, 1e5),
    st.lists(st.integers(0, 10**7), min_size=1, max_size=6),
    st.sampled_from([drha.gaussian, drha.discrete_gaussian]),
)
def test_laws_of_the_error(sigma, counts, family):
    """It grows with the count up to twice that of a zero, and with the noise."""
    counts = np.sort(counts)
    error = drha.mean_absolute_error(counts, family(sigma=sigma))
    wider = drha.mean_absolute_error(counts, family(sigma=1.1 * sigma))
    zero = drha.mean_absolute_error(0, family(sigma=sigma))
    assert (np.diff(error) >= -1e-12 * error[1:]).all()
    assert (error <= 2 * zero * (1 + 1e-12)).all()
    assert (wider >= error).all()


@pytest.mark.parametrize("family", [drha.gaussian, drha.discrete_gaussian])
def test_the_two_routes_meet(family):
    counts = np.array([0, 1, 7, 19, 60, 10**6])
    below = drha.mean_absolute_error(counts, family(sigma=20.0 * (1 - 1e-13)))
    above = drha.mean_absolute_error(counts, family(sigma=20.0))
    np.testing.assert_allclose(below, above, rtol=1e-11)


def test_wide_gaussian_against_a_long_sum():
    sigma = 300.0
    for noise in (drha.gaussian(sigma=sigma), drha.discrete_gaussian(sigma=sigma)):
        u = noise.vanishing(np.arange(1, 12_001))
        for c in (1, 30, 301, 5000):
            expected = math.fsum(u) + math.fsum(u[:c])
            assert drha.mean_absolute_error(c, noise) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("epsilon", [1e-6, 1e3])
def test_extreme_epsilon(epsilon):
    counts = [0, 1, 10**15]
    for noise in (
        drha.laplace(epsilon),
        drha.geometric(epsilon),
        drha.gaussian(epsilon, delta=1e-9),
        drha.discrete_gaussian(epsilon, delta=1e-9),
    ):
        error = drha.mean_absolute_error(counts, noise)
        assert np.isfinite(error).all() and (error >= 0).all()
    assert drha.mean_absolute_error(10**15, drha.laplace(1e-6)) == pytest.approx(1e6, rel=1e-9)


def test_other_conventions_are_refused():
    with pytest.raises(drha.InvalidNoise, match="rounding and clipping"):
        drha.mean_absolute_error(1, drha.laplace(1.0).with_convention("clip"))
    with pytest.raises(drha.InvalidCounts):
        drha.mean_absolute_error(-1, drha.laplace(1.0))
    with pytest.raises(drha.InvalidNoise, match="count mechanism"):
        drha.mean_absolute_error(1, 0.3)
