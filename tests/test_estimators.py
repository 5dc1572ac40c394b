"""Estimators: the same likelihoods maximised by SciPy, recovery of the truth, and boundaries."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import minimize
from scipy.special import gammaln, polygamma, psi

import drha
from drha.estimators import _rise, _untruncated_mean

SAMPLE = np.array([1, 1, 1, 2, 1, 3, 5, 1, 2, 8, 1, 1, 4, 2, 13, 1, 6, 2, 1, 3])


def mixed_table(alpha, cells, mean, seed):
    """Dirichlet-multinomial counts of non-empty cells."""
    rng = np.random.default_rng(seed)
    sizes = rng.poisson(mean, cells) + 1
    return rng.multinomial(sizes, rng.dirichlet(alpha, cells))


def dirichlet_log_likelihood(table, alpha):
    """Textbook form, in gamma functions, of records in a fixed order."""
    n, total = table.sum(axis=1), np.sum(alpha)
    value = (gammaln(total) - gammaln(total + n)).sum()
    return value + (gammaln(table + alpha) - gammaln(alpha)).sum()


def nelder_mead(loss, start):
    """Minimise over positive parameters without derivatives."""
    found = minimize(
        lambda t: loss(np.exp(t)),
        np.log(start),
        method="Nelder-Mead",
        options={"xatol": 1e-10, "fatol": 1e-11, "maxiter": 4000, "maxfev": 4000},
    )
    return np.exp(found.x)


# Rising factorials.


@pytest.mark.parametrize("x", [1e-8, 0.3, 5.0, 15.99, 16.0, 40.0, 1e4, 1e9])
def test_rising_factorials_equal_their_sums(x):
    for n in (1, 2, 3, 17, 60):
        terms = [x + j for j in range(n)]
        exact = [
            math.fsum(map(math.log, terms)),
            math.fsum(1 / t for t in terms),
            -math.fsum(1 / t**2 for t in terms),
        ]
        for order, value in enumerate(exact):
            rise = float(_rise(x, np.array(n), order))
            assert rise == pytest.approx(value, rel=3e-14, abs=3e-15)


@pytest.mark.parametrize("x", [0.2, 3.0, 30.0])
@pytest.mark.parametrize("n", [10**3, 10**6, 10**12])
def test_long_rising_factorials_equal_gamma_functions(x, n):
    n = np.array(n)
    assert float(_rise(x, n, 0)) == pytest.approx(gammaln(x + n) - gammaln(x), rel=1e-12)
    assert float(_rise(x, n, 1)) == pytest.approx(psi(x + n) - psi(x), rel=1e-12)
    assert float(_rise(x, n, 2)) == pytest.approx(polygamma(1, x + n) - polygamma(1, x), rel=1e-12)


# Dirichlet.


@pytest.mark.parametrize("alpha", [(0.6, 1.2, 0.3), (4.0, 9.0), (0.05, 0.02, 0.1, 0.03)])
def test_dirichlet_maximum_is_that_of_scipy_on_the_same_likelihood(alpha):
    table = mixed_table(alpha, 150, 6.0, seed=31)
    newton, minka = (drha.fit_dirichlet(table, method) for method in ("newton", "minka"))
    reference = nelder_mead(lambda a: -dirichlet_log_likelihood(table, a), np.full(len(alpha), 1.0))
    np.testing.assert_allclose(newton.alpha, reference, rtol=2e-5)
    np.testing.assert_allclose(minka.alpha, newton.alpha, rtol=1e-6)
    assert newton.iterations < 20 < minka.iterations
    best = dirichlet_log_likelihood(table, newton.alpha)
    assert newton.log_likelihood == pytest.approx(best, rel=1e-12)
    assert best >= dirichlet_log_likelihood(table, reference) - 1e-9
    assert newton.boundary is None


def test_dirichlet_stationary_to_rounding_and_its_covariance():
    table = mixed_table((0.6, 1.2, 0.3), 400, 6.0, seed=32)
    fit = drha.fit_dirichlet(table)
    n, total = table.sum(axis=1), fit.concentration
    gradient = (psi(table + fit.alpha) - psi(fit.alpha)).sum(axis=0)
    gradient -= (psi(n + total) - psi(total)).sum()
    assert np.abs(gradient).max() < 1e-9 * len(table)

    def score(alpha):
        levels = (psi(table + alpha) - psi(alpha)).sum(axis=0)
        return levels - (psi(n + alpha.sum()) - psi(alpha.sum())).sum()

    h = 1e-5
    hessian = [(score(fit.alpha + h * e) - score(fit.alpha - h * e)) / (2 * h) for e in np.eye(3)]
    np.testing.assert_allclose(fit.covariance, np.linalg.inv(-np.array(hessian)), rtol=1e-6)


def test_dirichlet_recovers_the_truth_within_its_standard_errors():
    """Chi-square of the estimates over replicated tables, by their own covariance."""
    alpha, replicates = np.array([0.6, 1.2, 0.3]), 60
    distances, moments = [], []
    for seed in range(replicates):
        table = mixed_table(alpha, 1500, 5.0, seed=1000 + seed)
        fit = drha.fit_dirichlet(table)
        gap = fit.alpha - alpha
        distances.append(gap @ np.linalg.solve(fit.covariance, gap))
        moments.append(drha.fit_dirichlet(table, "moments").alpha)
    law = stats.chi2(3 * replicates)
    assert law.ppf(1e-4) < np.sum(distances) < law.isf(1e-4)
    error = np.std(moments, axis=0, ddof=1) / math.sqrt(replicates)
    assert (np.abs(np.mean(moments, axis=0) - alpha) < 4 * error + 0.01).all()


def test_pair_moments_by_counting_pairs():
    table = np.array([[3, 1, 0], [0, 2, 2], [1, 0, 0], [4, 0, 1]])
    weighted = Fraction(0)
    for cell in table:
        records = [k for k, count in enumerate(cell) for _ in range(count)]
        if len(records) > 1:
            pairs = list(itertools.permutations(records, 2))
            agree = Fraction(sum(a == b for a, b in pairs), len(pairs))
            weighted += (len(records) - 1) * agree
    h = weighted / sum(max(n - 1, 0) for n in table.sum(axis=1).tolist())
    pooled = [Fraction(int(c), int(table.sum())) for c in table.sum(axis=0)]
    concentration = (1 - h) / (h - sum(p * p for p in pooled))
    fit = drha.fit_dirichlet(table, "moments")
    assert fit.concentration == pytest.approx(float(concentration), rel=1e-13)
    np.testing.assert_allclose(fit.mean, [float(p) for p in pooled], rtol=1e-14)


@pytest.mark.parametrize("method", ["newton", "minka", "moments"])
def test_all_homogeneous_cells_are_the_limit_zero(method):
    table = np.array([[3, 0, 0], [0, 2, 0], [0, 1, 0], [5, 0, 0], [0, 4, 0]])
    fit = drha.fit_dirichlet(table, method)
    assert fit.boundary == "homogeneous" and fit.concentration == 0
    np.testing.assert_allclose(fit.mean, [0.4, 0.6, 0.0], rtol=1e-15)
    values = [dirichlet_log_likelihood(table[:, :2], c * fit.mean[:2]) for c in (1, 1e-2, 1e-4)]
    assert values[0] < values[1] < values[2] < fit.log_likelihood  # it climbs towards the limit
    assert values[2] == pytest.approx(fit.log_likelihood, abs=1e-2)
    with pytest.raises(drha.BoundaryEstimate, match="homogeneous"):
        _ = fit.alpha


@pytest.mark.parametrize("method", ["newton", "minka", "moments"])
def test_no_overdispersion_is_the_limit_infinity(method):
    table = np.array([[2, 1, 1]] * 30 + [[1, 2, 1]] * 10)
    fit = drha.fit_dirichlet(table, method)
    assert fit.boundary == "no over-dispersion" and fit.concentration == math.inf
    np.testing.assert_allclose(fit.mean, table.sum(axis=0) / table.sum(), rtol=1e-14)
    values = [dirichlet_log_likelihood(table, c * fit.mean) for c in (1, 1e2, 1e4)]
    assert values[0] < values[1] < values[2] < fit.log_likelihood
    with pytest.raises(drha.BoundaryEstimate, match="share"):
        _ = fit.alpha


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.lists(st.integers(0, 6), min_size=3, max_size=3).filter(any), min_size=2, max_size=8
    ).filter(lambda rows: max(map(sum, rows)) > 1)
)
def test_every_small_table_has_a_named_answer_that_no_other_beats(rows):
    table = np.array(rows)
    fit = drha.fit_dirichlet(table)
    assert fit.mean.sum() == pytest.approx(1.0, rel=1e-12)
    np.testing.assert_array_equal(fit.mean == 0, ~table.any(axis=0))
    seen = table[:, table.any(axis=0)]
    mean = fit.mean[table.any(axis=0)]
    for concentration in np.geomspace(1e-3, 1e5, 25):
        value = dirichlet_log_likelihood(seen, concentration * mean)
        assert value <= fit.log_likelihood + 1e-7
    again = drha.fit_dirichlet(np.repeat(table, 2, axis=0)[::-1])  # order and copies do not matter
    assert again.boundary == fit.boundary
    if fit.boundary is None and fit.concentration < 1e4:
        np.testing.assert_allclose(again.alpha, fit.alpha, rtol=1e-5, atol=1e-12)


def test_levels_that_never_occur_and_cells_without_records_change_nothing():
    table = mixed_table((0.6, 1.2), 100, 5.0, seed=33)
    fit = drha.fit_dirichlet(table)
    padded = np.insert(table, 1, 0, axis=1)
    padded = np.vstack([padded, np.zeros((3, 3), int)])
    wide = drha.fit_dirichlet(padded)
    np.testing.assert_allclose(wide.alpha, np.insert(fit.alpha, 1, 0.0), rtol=1e-12)
    assert wide.covariance[1].tolist() == [0.0, 0.0, 0.0]
    frame = drha.FrequencyTable.from_counts(table)
    np.testing.assert_array_equal(drha.fit_dirichlet(frame).alpha, fit.alpha)


def test_a_declared_level_that_never_occurs_still_has_its_zero_sanitised():
    """The fit gives it parameter 0, and the measures still let its zero survive."""
    table = np.insert(mixed_table((0.6, 1.2), 60, 5.0, seed=37), 1, 0, axis=1)
    alpha, noise = drha.fit_dirichlet(table).alpha, drha.laplace(1.0)
    sizes = table.sum(axis=1)
    risk = drha.shrinkage_risk(sizes, alpha, noise)
    narrow = drha.shrinkage_risk(sizes, alpha[[0, 2]], noise)
    np.testing.assert_allclose(risk, narrow * noise.vanishing(0), rtol=1e-9)
    posterior = drha.dirichlet_posterior(table, alpha)
    assert (posterior[:, 1] == 0).all()
    assert np.isfinite(drha.shrinkage_risk(sizes, posterior, noise)).all()


def test_huge_counts_are_no_burden():
    table = np.array([[10**9, 3], [5 * 10**8, 2 * 10**9], [7, 10**10], [10**6, 10**6]])
    fit = drha.fit_dirichlet(table)
    reference = nelder_mead(lambda a: -dirichlet_log_likelihood(table, a), [1.0, 1.0])
    np.testing.assert_allclose(fit.alpha, reference, rtol=1e-2)  # its gamma functions cancel


def test_posterior_of_each_cell():
    posterior = drha.dirichlet_posterior([[3, 0], [1, 1]], [0.5, 2.0])
    np.testing.assert_array_equal(posterior, [[3.5, 2.0], [1.5, 3.0]])
    # its mean is the Bayes estimate, here by quadrature over the proportion
    p = (np.arange(200_000) + 0.5) / 200_000
    weight = p ** (3 + 0.5 - 1) * (1 - p) ** (0 + 2.0 - 1)
    assert (p * weight).sum() / weight.sum() == pytest.approx(3.5 / 5.5, rel=1e-8)


# Sizes.


def poisson_loss(sizes, truncated):
    def loss(parameters):
        mean = parameters[0]
        value = stats.poisson.logpmf(sizes, mean).sum()
        return -(value - truncated * len(sizes) * math.log(-math.expm1(-mean)))

    return loss


def negative_binomial_loss(sizes, truncated):
    def loss(parameters):
        r, odds = parameters
        q = 1 / (1 + odds)
        value = stats.nbinom.logpmf(sizes, r, q).sum()
        return -(value - truncated * len(sizes) * np.log1p(-(q**r)))

    return loss


@pytest.mark.parametrize("truncated", [True, False])
def test_size_fits_are_those_of_scipy_on_the_same_likelihood(truncated):
    mean = drha.fit_poisson(SAMPLE, truncated=truncated)
    reference = nelder_mead(poisson_loss(SAMPLE, truncated), [2.0])[0]
    assert mean == pytest.approx(reference, rel=1e-7)
    fit = drha.fit_negative_binomial(SAMPLE, truncated=truncated)
    loss = negative_binomial_loss(SAMPLE, truncated)
    r, odds = nelder_mead(loss, [1.0, 1.0])
    assert fit.r == pytest.approx(r, rel=1e-5)
    assert fit.q == pytest.approx(1 / (1 + odds), rel=1e-5)
    assert fit.log_likelihood == pytest.approx(-loss([fit.r, 1 / fit.q - 1]), rel=1e-12)
    assert fit.mean == pytest.approx(fit.r * (1 - fit.q) / fit.q, rel=1e-12)

    def value(r, q):
        return -loss([r, 1 / q - 1])

    h, k = 1e-3 * fit.r, 1e-3 * fit.q
    corner = [value(fit.r + i * h, fit.q + j * k) for i in (1, -1) for j in (1, -1)]
    cross = (corner[0] - corner[1] - corner[2] + corner[3]) / (4 * h * k)
    top = value(fit.r, fit.q)
    rr = (value(fit.r + h, fit.q) - 2 * top + value(fit.r - h, fit.q)) / h**2
    qq = (value(fit.r, fit.q + k) - 2 * top + value(fit.r, fit.q - k)) / k**2
    information = -np.array([[rr, cross], [cross, qq]])
    np.testing.assert_allclose(fit.covariance, np.linalg.inv(information), rtol=1e-3)


def test_numbers_of_poisson_sizes():
    """Mean 1.7: what the non-empty cells alone would suggest, and what they say."""
    sizes = np.random.default_rng(34).poisson(1.7, 200_000)
    sizes = sizes[sizes > 0]
    exact = 1.7 / -math.expm1(-1.7)
    assert exact == pytest.approx(2.079, abs=2e-3)
    naive, truncated = drha.fit_poisson(sizes, truncated=False), drha.fit_poisson(sizes)
    assert abs(naive - exact) < 4 * sizes.std() / math.sqrt(len(sizes))
    slope = 1 / (-math.expm1(-1.7)) - 1.7 * math.exp(-1.7) / math.expm1(-1.7) ** 2
    assert abs(truncated - 1.7) < 4 * sizes.std() / math.sqrt(len(sizes)) / slope
    assert _untruncated_mean(exact, math.inf) == pytest.approx(1.7, rel=1e-14)


def test_numbers_of_negative_binomial_sizes():
    """Truth (1.5, 0.3): naive moments are biased by truncation, the truncated fits are not."""
    sizes = np.random.default_rng(35).negative_binomial(1.5, 0.3, 200_000)
    sizes = sizes[sizes > 0]
    fit = drha.fit_negative_binomial(sizes)
    z = (np.array([fit.r, fit.q]) - [1.5, 0.3]) / np.sqrt(np.diag(fit.covariance))
    assert np.abs(z).max() < 4
    brass = drha.fit_negative_binomial(sizes, "moments")
    np.testing.assert_allclose([brass.r, brass.q], [1.5, 0.3], rtol=0.06)
    naive = drha.fit_negative_binomial(sizes, "moments", truncated=False)
    np.testing.assert_allclose([naive.r, naive.q], [2.51, 0.376], rtol=0.03)


@pytest.mark.parametrize("truncated", [True, False])
def test_negative_binomial_recovers_the_truth_within_its_standard_errors(truncated):
    replicates, distances = 60, []
    for seed in range(replicates):
        sizes = np.random.default_rng(2000 + seed).negative_binomial(1.5, 0.3, 4000)
        fit = drha.fit_negative_binomial(
            sizes[sizes > 0] if truncated else sizes, truncated=truncated
        )
        gap = np.array([fit.r, fit.q]) - [1.5, 0.3]
        distances.append(gap @ np.linalg.solve(fit.covariance, gap))
    law = stats.chi2(2 * replicates)
    assert law.ppf(1e-4) < np.sum(distances) < law.isf(1e-4)


def test_brass_solves_the_three_moment_equations():
    """On exact moments of a truncated negative binomial it returns the truth."""
    r, q = 1.5, 0.3
    n = np.arange(1, 400)
    mass = stats.nbinom.pmf(n, r, q) / (1 - q**r)
    mean = mass @ n
    variance = mass @ n**2 - mean**2
    solved = mean / variance * (1 - mass[0])
    assert solved == pytest.approx(q, rel=1e-12)
    assert (solved * mean - mass[0]) / (1 - solved) == pytest.approx(r, rel=1e-12)


def test_sizes_without_overdispersion_are_poisson():
    sizes = [2, 3, 2, 3, 4, 3]
    for truncated, method in itertools.product((True, False), ("mle", "moments")):
        fit = drha.fit_negative_binomial(sizes, method, truncated=truncated)
        assert fit.boundary == "poisson"
        assert fit.mean == pytest.approx(drha.fit_poisson(sizes, truncated=truncated), rel=1e-14)
        assert fit.log_likelihood == pytest.approx(
            -poisson_loss(sizes, truncated)([fit.mean]), rel=1e-12
        )
        worse = [-negative_binomial_loss(sizes, truncated)([r, fit.mean / r]) for r in (5, 50, 500)]
        assert worse[0] < worse[1] < worse[2] < fit.log_likelihood


def test_heavy_truncated_sizes_are_logarithmic():
    sizes = np.array([1] * 60 + [2] * 8 + [3] * 3 + [40, 90])
    fit = drha.fit_negative_binomial(sizes)
    assert fit.boundary == "logarithmic" and fit.r == 0
    law = stats.logser(1 - fit.q)
    assert law.mean() == pytest.approx(sizes.mean(), rel=1e-9)
    assert fit.log_likelihood == pytest.approx(law.logpmf(sizes).sum(), rel=1e-10)
    for r in (1e-3, 0.05, 0.5):
        x = _untruncated_mean(sizes.mean(), r)
        assert -negative_binomial_loss(sizes, True)([r, x / r]) < fit.log_likelihood


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=2, max_size=15).filter(lambda x: max(x) > 1))
def test_every_small_sample_has_a_named_answer_that_no_other_beats(sizes):
    fit = drha.fit_negative_binomial(sizes)
    loss = negative_binomial_loss(sizes, True)
    for r in np.geomspace(1e-4, 1e4, 17):
        x = _untruncated_mean(float(np.mean(sizes)), r)
        assert -loss([r, x / r]) <= fit.log_likelihood + 1e-6
    assert fit.boundary in (None, "poisson", "logarithmic")
    assert drha.fit_negative_binomial(sizes * 3).boundary == fit.boundary


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-6, 500.0))
def test_truncated_poisson_mean_inverts_its_moment_equation(mean):
    above = mean / -math.expm1(-mean)
    assert _untruncated_mean(above, math.inf) == pytest.approx(mean, rel=1e-8)


def test_bayesian_poisson_sizes():
    sizes = np.array([1, 2, 0, 3, 0, 1])
    r, q = drha.poisson_posterior(sizes, shape=2.0, rate=0.5)
    assert (r, q) == (9.0, pytest.approx(6.5 / 7.5))
    x = (np.arange(400_000) + 0.5) / 20_000  # posterior predictive by quadrature
    weight = stats.gamma.pdf(x, 9.0, scale=1 / 6.5) / 20_000
    for n in (0, 1, 4):
        predictive = weight @ stats.poisson.pmf(n, x)
        assert predictive == pytest.approx(stats.nbinom.pmf(n, r, q), rel=1e-8)


@pytest.mark.parametrize("sizes", [SAMPLE, np.array([1, 1, 1]), np.array([4000, 5000])])
def test_truncated_posterior_grid_against_a_fine_sum(sizes):
    means, weights = drha.poisson_posterior_grid(sizes, shape=1.5, rate=0.2)
    assert weights.sum() == pytest.approx(1.0, rel=1e-13)
    assert max(weights[0], weights[-1]) < 1e-15
    t = np.linspace(math.log(means[0]), math.log(means[-1]), 100_001)
    x = np.exp(t)
    log_density = (1.5 + sizes.sum()) * t - (0.2 + len(sizes)) * x
    log_density -= len(sizes) * np.log(-np.expm1(-x))
    density = np.exp(log_density - log_density.max())
    for function in (lambda x: x, np.log1p, lambda x: np.exp(-x / 3)):
        fine = (density * function(x)).sum() / density.sum()
        assert weights @ function(means) == pytest.approx(fine, rel=1e-9)


# Bad input.


def test_bad_tables_and_samples_are_refused():
    with pytest.raises(drha.NotEstimable, match="two records"):
        drha.fit_dirichlet([[1, 0], [0, 1]])
    with pytest.raises(drha.InvalidCounts, match="-1"):
        drha.fit_dirichlet([[1, -1]])
    with pytest.raises(drha.InvalidCounts, match="cells, levels"):
        drha.fit_dirichlet([2, 1])
    with pytest.raises(drha.DrhaError, match="newton"):
        drha.fit_dirichlet([[2, 1]], "em")
    table = mixed_table((0.6, 1.2), 50, 5.0, seed=36)
    with pytest.raises(drha.NotEstimable, match="2 iterations"):
        drha.fit_dirichlet(table, "minka", max_iterations=2)
    for alpha in ([1.0, -0.1], [1.0], [0.0, 0.0], [math.nan, 1.0]):
        with pytest.raises(drha.InvalidModel, match="one per level"):
            drha.dirichlet_posterior(table, alpha)
    for fit in (drha.fit_poisson, drha.fit_negative_binomial):
        with pytest.raises(drha.InvalidCounts, match="cell 1 is empty"):
            fit([1, 0, 2])
        with pytest.raises(drha.InvalidCounts, match=r"2\.5"):
            fit([1, 2.5])
        with pytest.raises(drha.InvalidCounts, match="one size per cell"):
            fit([[1, 2]])
        with pytest.raises(drha.InvalidCounts, match="one size per cell"):
            fit([])
    with pytest.raises(drha.BoundaryEstimate, match="one record"):
        drha.fit_poisson([1, 1])
    with pytest.raises(drha.BoundaryEstimate, match="empty"):
        drha.fit_poisson([0, 0], truncated=False)
    with pytest.raises(drha.NotEstimable, match="1 records"):
        drha.fit_negative_binomial([1, 1])
    with pytest.raises(drha.NotEstimable, match="0 records"):
        drha.fit_negative_binomial([0, 0], truncated=False)
    with pytest.raises(drha.DrhaError, match="moments"):
        drha.fit_negative_binomial([1, 2], "brass")
    for call in (drha.poisson_posterior, drha.poisson_posterior_grid):
        with pytest.raises(drha.InvalidModel, match="rate"):
            call([1, 2], shape=1.0, rate=0.0)
        with pytest.raises(drha.InvalidModel, match="shape"):
            call([1, 2], shape=math.nan, rate=1.0)
    with pytest.raises(drha.DrhaError, match="points"):
        drha.poisson_posterior_grid([1, 2], shape=1.0, rate=1.0, points=3)
