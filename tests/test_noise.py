"""Count mechanisms: vanishing functions, calibrations and samplers, each by a second route."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import log_ndtr

import drha

NOISES = {
    "laplace": drha.laplace(0.7),
    "laplace substitution": drha.laplace(0.7, sensitivity=2),
    "gaussian": drha.gaussian(0.9, delta=1e-5),
    "gaussian narrow": drha.gaussian(sigma=0.4),
    "geometric": drha.geometric(0.4),
    "discrete gaussian": drha.discrete_gaussian(sigma=1.1),
    "discrete gaussian narrow": drha.discrete_gaussian(sigma=0.3),
    "discrete gaussian wide": drha.discrete_gaussian(rho=0.0005),
}
MECHANISMS = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())
INTEGER = pytest.mark.parametrize(
    "noise",
    [drha.geometric(0.4), drha.geometric(3.0, sensitivity=2)]
    + [drha.discrete_gaussian(sigma=sigma) for sigma in (0.3, 1.0, 4.2, 31.6)],
    ids=repr,
)


def discrete_gaussian_log_tail(c, sigma):
    """Log Pr(N >= c) with fifty digits, by summing the weights."""
    with localcontext() as context:
        context.prec = 50
        two_variance = 2 * Decimal(sigma) ** 2

        def weight(k):
            return (-(Decimal(k) ** 2) / two_variance).exp()

        width = math.ceil(16 * sigma) + 2
        total = 1 + 2 * sum(weight(k) for k in range(1, width))
        return float((sum(weight(k) for k in range(c, c + width)) / total).ln())


# The vanishing function.


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 5.0])
def test_laplace_is_its_closed_form(epsilon):
    c = np.arange(1, 50)
    noise = drha.laplace(epsilon)
    assert noise.vanishing(0) == pytest.approx(1 - 0.5 * math.exp(-epsilon / 2), rel=1e-15)
    np.testing.assert_allclose(noise.vanishing(c), 0.5 * np.exp((0.5 - c) * epsilon), rtol=1e-13)
    np.testing.assert_allclose(
        noise.vanishing(c), stats.laplace(scale=1 / epsilon).cdf(0.5 - c), rtol=1e-13
    )


@pytest.mark.parametrize("sigma", [0.2, 1.0, 40.0])
def test_gaussian_is_the_normal_distribution_function(sigma):
    c = np.arange(0, 6)
    noise = drha.gaussian(sigma=sigma)
    np.testing.assert_allclose(noise.vanishing(c), stats.norm.cdf((0.5 - c) / sigma), rtol=1e-13)
    np.testing.assert_allclose(noise.log_vanishing(c), log_ndtr((0.5 - c) / sigma), rtol=1e-15)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 5.0])
def test_geometric_is_its_closed_form_and_its_mass_function(epsilon):
    c = np.arange(0, 50)
    a = math.exp(-epsilon)
    noise = drha.geometric(epsilon)
    np.testing.assert_allclose(noise.vanishing(c), a**c / (1 + a), rtol=1e-13)
    np.testing.assert_allclose(noise.vanishing(c), stats.dlaplace(epsilon).cdf(-c), rtol=1e-9)


@pytest.mark.parametrize("sigma", [0.05, 0.3, 0.999, 1.0, 1.1, 7.0, 19.9, 20.1, 23.0, 64.0])
def test_discrete_gaussian_against_fifty_digits(sigma):
    """Both tail formulas, on both sides of where they meet."""
    seam = round(sigma**2 / 4)
    counts = sorted({0, 1, 2, 3, 17, max(seam - 1, 0), seam, seam + 1, round(9 * sigma)})
    expected = [discrete_gaussian_log_tail(c, sigma) for c in counts]
    noise = drha.discrete_gaussian(sigma=sigma)
    np.testing.assert_allclose(noise.log_vanishing(counts), expected, rtol=1e-14, atol=2e-15)
    np.testing.assert_allclose(noise.survival(counts), -np.expm1(expected), rtol=1e-14, atol=1e-16)


def test_wide_discrete_gaussian_approaches_the_continuous_one():
    c = np.array([0, 1, 1000, 123_456, 5_000_000])
    wide, continuous = drha.discrete_gaussian(sigma=1e6), drha.gaussian(sigma=1e6)
    np.testing.assert_allclose(wide.log_vanishing(c), continuous.log_vanishing(c), rtol=1e-11)


@MECHANISMS
def test_vanishing_and_survival_are_complementary_in_linear_and_log_space(noise):
    c = np.arange(0, 80)
    u, s = noise.vanishing(c), noise.survival(c)
    np.testing.assert_allclose(u + s, 1.0, rtol=1e-15)
    np.testing.assert_allclose(np.exp(noise.log_vanishing(c)), u, rtol=1e-12)
    np.testing.assert_allclose(np.exp(noise.log_survival(c)), s, rtol=1e-14)
    assert (np.diff(u) <= 0).all()
    assert (np.diff(noise.log_vanishing(c)) < 0).all()
    assert u[0] >= 0.5 >= u[1]
    shape = noise.vanishing(c.reshape(4, 20)).shape
    assert shape == (4, 20)
    assert np.isscalar(noise.vanishing(3))


positive = st.floats(1e-6, 1e3)


@settings(max_examples=40, deadline=None)
@given(positive, st.floats(1e-12, 0.5), st.integers(0, 10**9))
def test_no_budget_and_no_count_overflows(epsilon, delta, count):
    mechanisms = [drha.laplace(epsilon), drha.geometric(epsilon)]
    mechanisms += [drha.discrete_gaussian(epsilon, delta=delta)]
    mechanisms += [
        drha.gaussian(epsilon, delta=delta, calibration=calibration)
        for calibration in ("analytic", "classical", "pdp")
    ]
    counts = np.array([0, 1, 2, count])
    for noise in mechanisms:
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            u, s = noise.vanishing(counts), noise.survival(counts)
            log_u, log_s = noise.log_vanishing(counts), noise.log_survival(counts)
        assert ((u >= 0) & (u <= 1) & (s >= 0) & (s <= 1)).all()
        assert np.isfinite(log_u).all() and (log_u <= 0).all()
        assert np.isfinite(log_s).all() and (log_s <= 0).all()


# Calibration.


def normal_profile(sigma, epsilon, shift=1.0):
    """Integral of the positive part of density minus exp(epsilon) times the shifted density."""
    start = epsilon * sigma**2 / shift - shift / 2  # where the privacy loss reaches epsilon

    def excess(x):
        loss = shift * (2 * x + shift) / (2 * sigma**2)
        return stats.norm.pdf(x, scale=sigma) * -math.expm1(epsilon - loss)

    value, _ = integrate.quad(excess, start, max(start, 0) + 12 * sigma, epsabs=0, epsrel=1e-11)
    return value


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-5, 1e-10])
@pytest.mark.parametrize("sensitivity", [1.0, math.sqrt(2)])
def test_analytic_gaussian_has_exactly_the_privacy_asked_for(epsilon, delta, sensitivity):
    noise = drha.gaussian(epsilon, delta=delta, sensitivity=sensitivity)
    assert normal_profile(noise.sigma, epsilon, sensitivity) == pytest.approx(delta, rel=1e-8)
    assert noise.privacy_profile(epsilon) == pytest.approx(delta, rel=1e-12)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1.0, 50.0, 1e3])
@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-9, 0.5, 1 - 1e-9])
def test_analytic_calibration_survives_extreme_budgets(epsilon, delta):
    sigma = drha.gaussian(epsilon, delta=delta).sigma
    assert drha.gaussian(sigma=sigma).privacy_profile(epsilon) <= delta * (1 + 1e-12)
    assert drha.gaussian(sigma=sigma * (1 - 1e-6)).privacy_profile(epsilon) > delta
    sigma = drha.discrete_gaussian(epsilon, delta=delta).sigma
    assert drha.discrete_gaussian(sigma=sigma).privacy_profile(epsilon) <= delta * (1 + 1e-8)
    assert drha.discrete_gaussian(sigma=sigma * (1 - 1e-6)).privacy_profile(epsilon) > delta


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 60.0), st.floats(0.0, 20.0))
def test_gaussian_profile_equals_the_textbook_difference(sigma, epsilon):
    """Where the difference of normal tails is not small, it may be taken literally."""
    gain = stats.norm.cdf(0.5 / sigma - epsilon * sigma)
    lost = math.exp(epsilon) * stats.norm.cdf(-0.5 / sigma - epsilon * sigma)
    profile = drha.gaussian(sigma=sigma).privacy_profile(epsilon)
    assert profile == pytest.approx(gain - lost, abs=1e-14 + 1e-12 * gain)


@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_classical_calibration_is_valid_for_small_epsilon_and_fails_for_large(delta):
    def sigma(epsilon):
        return drha.gaussian(epsilon, delta=delta, calibration="classical").sigma

    assert sigma(0.5) == pytest.approx(math.sqrt(2 * math.log(1.25 / delta)) / 0.5, rel=1e-14)
    assert normal_profile(sigma(0.999), 0.999) < delta
    assert normal_profile(sigma(10.0), 10.0) > delta
    assert drha.gaussian(sigma=sigma(10.0)).privacy_profile(10.0) > delta


@pytest.mark.parametrize("epsilon", [1e-3, 0.3, 1.0, 8.0])
@pytest.mark.parametrize("delta", [0.2, 1e-3, 1e-8])
@pytest.mark.parametrize("sensitivity", [1.0, math.sqrt(2)])
def test_pdp_calibration_solves_its_quadratic_and_bounds_the_loss(epsilon, delta, sensitivity):
    noise = drha.gaussian(epsilon, delta=delta, calibration="pdp", sensitivity=sensitivity)
    sigma, q = noise.sigma, stats.norm.ppf(delta / 2)
    residual = epsilon * sigma**2 + q * sensitivity * sigma - sensitivity**2 / 2
    assert abs(residual) < 1e-12 * epsilon * sigma**2
    # the loss of x is sensitivity (2x + sensitivity) / (2 sigma^2), x normal
    mean = sensitivity**2 / (2 * sigma**2)
    loss = stats.norm(mean, math.sqrt(2 * mean))
    outside = loss.sf(epsilon) + loss.cdf(-epsilon)
    assert delta / 2 * (1 - 1e-9) <= outside <= delta * (1 + 1e-9)
    assert drha.gaussian(epsilon, delta=delta, sensitivity=sensitivity).sigma < sigma


def integer_profile(sigma, epsilon, shift):
    """Sum of the positive part of mass minus exp(epsilon) times the shifted mass."""
    k = np.arange(-60 * math.ceil(sigma) - 60, 60 * math.ceil(sigma) + 61, dtype=float)
    log_mass = -0.5 * (k / sigma) ** 2
    log_mass -= np.log(np.exp(log_mass).sum())
    loss = shift * (2 * k + shift) / (2 * sigma**2)
    return float((np.exp(log_mass) * -np.expm1(np.minimum(epsilon - loss, 0.0))).sum())


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-10])
@pytest.mark.parametrize("sensitivity", [1, 3])
def test_discrete_gaussian_has_exactly_the_privacy_asked_for(epsilon, delta, sensitivity):
    noise = drha.discrete_gaussian(epsilon, delta=delta, sensitivity=sensitivity)
    assert integer_profile(noise.sigma, epsilon, sensitivity) == pytest.approx(delta, rel=1e-9)
    assert noise.privacy_profile(epsilon) == pytest.approx(delta, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.1, 40.0), st.floats(0.0, 10.0), st.integers(1, 4))
def test_discrete_gaussian_profile_equals_its_sum(sigma, epsilon, sensitivity):
    profile = drha.discrete_gaussian(sigma=sigma, sensitivity=sensitivity).privacy_profile(epsilon)
    assert profile == pytest.approx(integer_profile(sigma, epsilon, sensitivity), rel=1e-10)


def test_discrete_gaussian_by_concentrated_privacy():
    noise = drha.discrete_gaussian(rho=0.125, sensitivity=math.sqrt(2))
    assert noise.sigma == pytest.approx(math.sqrt(2) / 0.5, rel=1e-15)
    assert noise.rho == pytest.approx(0.125, rel=1e-15)
    # Renyi divergence of order 2 between neighbours is at most 2 rho
    unit = drha.discrete_gaussian(rho=0.125)
    k = np.arange(-30, 31, dtype=float)  # fifteen sigma
    mass = np.exp(-0.5 * (k / unit.sigma) ** 2)
    mass /= mass.sum()
    shifted = np.exp(-0.5 * ((k - 1) / unit.sigma) ** 2) / np.exp(unit.log_normaliser)
    assert math.log((mass**2 / shifted).sum()) == pytest.approx(2 * 0.125, rel=1e-12)


# Samplers.


@MECHANISMS
def test_released_zeros_follow_the_vanishing_function(noise):
    draws = 1_000_000
    rng = np.random.default_rng(20)
    for count in (0, 1, 3):
        zeros = np.count_nonzero(noise.release(np.full(draws, count), rng) == 0)
        u = float(noise.vanishing(count))
        assert abs(zeros - draws * u) <= 4 * math.sqrt(draws * u * (1 - u)) + 1e-9


@INTEGER
def test_integer_samplers_follow_their_mass_functions(noise):
    draws = 400_000
    values = noise.sample(draws, np.random.default_rng(3))
    assert values.dtype.kind == "i"
    reach = int(np.abs(values).max())
    k = np.arange(-reach, reach + 1)
    expected = draws * (noise.cdf(k) - noise.cdf(k - 1.0))
    observed = np.bincount(values + reach, minlength=k.size)
    common = expected >= 25
    z = (observed - expected)[common] / np.sqrt(expected * (1 - expected / draws))[common]
    assert np.abs(z).max() < 4.5  # the largest of at most some two hundred
    pooled = np.append(observed[common], observed[~common].sum())
    fitted = np.append(expected[common], draws - expected[common].sum())
    keep = fitted > 5
    statistic = ((pooled - fitted)[keep] ** 2 / fitted[keep]).sum()
    assert stats.chi2.sf(statistic, keep.sum() - 1) > 1e-4


@pytest.mark.parametrize(
    ("noise", "law"),
    [
        (drha.laplace(0.5, sensitivity=2), stats.laplace(scale=4)),
        (drha.gaussian(sigma=2.5), stats.norm(scale=2.5)),
    ],
    ids=["laplace", "gaussian"],
)
def test_continuous_samplers_follow_their_distributions(noise, law):
    values = noise.sample((500, 400), np.random.default_rng(4))
    assert values.shape == (500, 400)
    assert stats.kstest(values.ravel(), law.cdf).pvalue > 1e-4


@MECHANISMS
def test_releases_are_counts_near_the_truth_and_reproducible(noise):
    counts = np.array([[0, 5], [100, 10**9]])
    released = noise.release(counts, np.random.default_rng(8))
    assert released.dtype == np.int64
    assert released.shape == counts.shape
    assert (released >= 0).all()
    assert np.abs(released - counts).max() < 400
    np.testing.assert_array_equal(released, noise.release(counts, np.random.default_rng(8)))
    assert noise.release(3, np.random.default_rng(8)).shape == ()
    assert noise.sample((), np.random.default_rng(8)) == noise.sample((), np.random.default_rng(8))


# Bad input.


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "one", None])
def test_every_parameter_must_be_positive_and_finite(value):
    for call in (
        lambda: drha.laplace(value),
        lambda: drha.laplace(1.0, sensitivity=value),
        lambda: drha.geometric(value),
        lambda: drha.gaussian(value, delta=1e-5),
        lambda: drha.gaussian(sigma=value),
        lambda: drha.gaussian(1.0, delta=1e-5, sensitivity=value),
        lambda: drha.discrete_gaussian(sigma=value),
        lambda: drha.discrete_gaussian(rho=value),
        lambda: drha.discrete_gaussian(value, delta=1e-5),
    ):
        with pytest.raises(drha.InvalidNoise):
            call()


@pytest.mark.parametrize("delta", [0, 1, -0.1, 2, math.nan])
def test_delta_must_lie_inside_the_unit_interval(delta):
    for make in (drha.gaussian, drha.discrete_gaussian):
        with pytest.raises(drha.InvalidNoise, match="delta must lie strictly between 0 and 1"):
            make(1.0, delta=delta)


def test_other_bad_parameters_are_refused():
    with pytest.raises(drha.InvalidNoise, match="choose one of"):
        drha.gaussian(1.0, delta=1e-5, calibration="exact")
    with pytest.raises(drha.InvalidNoise, match="delta is missing"):
        drha.gaussian(1.0)
    with pytest.raises(drha.InvalidNoise, match="epsilon is missing"):
        drha.discrete_gaussian(delta=1e-5)
    with pytest.raises(drha.InvalidNoise, match="exactly one of"):
        drha.gaussian()
    with pytest.raises(drha.InvalidNoise, match="exactly one of"):
        drha.discrete_gaussian(sigma=1.0, rho=0.5)
    with pytest.raises(drha.InvalidNoise, match="whole sensitivity"):
        drha.discrete_gaussian(1.0, delta=1e-5, sensitivity=math.sqrt(2))
    with pytest.raises(drha.InvalidNoise, match="outside"):
        drha.laplace(1e-13)
    with pytest.raises(drha.InvalidNoise, match="Generator"):
        drha.laplace(1.0).sample(3, 42)
    with pytest.raises(drha.InvalidNoise, match="epsilon"):
        drha.gaussian(sigma=1.0).privacy_profile(-1.0)


@MECHANISMS
def test_bad_counts_are_refused(noise):
    for call in (noise.vanishing, noise.log_vanishing, noise.survival, noise.log_survival):
        with pytest.raises(drha.InvalidCounts, match="-1"):
            call([3, -1])
    with pytest.raises(drha.InvalidCounts, match=r"2\.5"):
        noise.release(2.5, np.random.default_rng(1))
