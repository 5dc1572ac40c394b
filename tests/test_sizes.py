"""Distributions of cell sizes against scipy, sums of their definitions, and simulation."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

import drha

SIZES = {
    "poisson": drha.poisson(3.7),
    "poisson tiny": drha.poisson(1e-7),
    "poisson large": drha.poisson(900.0),
    "negative binomial": drha.negative_binomial(1.5, 0.3),
    "negative binomial long": drha.negative_binomial(0.2, 0.02),
    "negative binomial tiny": drha.negative_binomial(1e-6, 0.5),
}
EVERY = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())


def log_pmf(sizes, n):
    """The definitions as they are printed."""
    if isinstance(sizes, drha.sizes.Poisson):
        return n * math.log(sizes.rate) - sizes.rate - gammaln(n + 1)
    binomial = gammaln(n + sizes.r) - gammaln(sizes.r) - gammaln(n + 1)
    return binomial + n * math.log1p(-sizes.q) + sizes.r * math.log(sizes.q)


@EVERY
def test_probabilities_are_the_definitions_and_add_up(sizes):
    n = np.arange(sizes.largest() + 1)
    np.testing.assert_allclose(sizes.pmf(n), np.exp(log_pmf(sizes, n)), rtol=1e-10, atol=1e-300)
    assert sizes.pmf(n).sum() == pytest.approx(1.0, abs=1e-12)
    assert (n * sizes.pmf(n)).sum() == pytest.approx(sizes.mean, rel=1e-10)
    assert sizes.truncated_pmf(n).sum() == pytest.approx(1.0, abs=1e-12)
    assert sizes.truncated_pmf(0) == 0.0
    assert sizes.probability_empty == pytest.approx(sizes.pmf(0), rel=1e-12)
    assert sizes.probability_filled == pytest.approx(sizes.pmf(n[1:]).sum(), rel=1e-9)
    assert sizes.law.sf(sizes.largest()) <= 1e-18 * sizes.probability_filled


@EVERY
@pytest.mark.parametrize("s", [0.0, 1e-9, 0.3, 0.99, 1.0])
def test_generating_functions_are_their_series(sizes, s):
    n = np.arange(sizes.largest() + 1)
    powers = s ** n.astype(float)
    assert sizes.pgf(s) == pytest.approx((sizes.pmf(n) * powers).sum(), rel=1e-10, abs=1e-300)
    series = (sizes.truncated_pmf(n) * powers).sum()
    assert sizes.truncated_pgf(s) == pytest.approx(series, rel=1e-9, abs=1e-300)


@EVERY
def test_samples_are_sizes_of_cells_with_records(sizes):
    draws = 200_000
    n = sizes.sample((draws // 2, 2), np.random.default_rng(7))
    assert n.shape == (draws // 2, 2)
    assert n.dtype == np.int64
    assert n.min() >= 1
    for size in (1, 2, 3):
        p = float(sizes.truncated_pmf(size))
        assert (
            abs(np.count_nonzero(n == size) - draws * p)
            <= 4.2 * math.sqrt(draws * p * (1 - p)) + 1e-9
        )
    error = n.std() / math.sqrt(draws)
    assert abs(n.mean() - sizes.mean / sizes.probability_filled) <= 4 * error + 1e-6


def test_negative_binomial_is_the_gamma_mixture_of_poissons():
    r, q = 1.5, 0.3
    nodes = stats.gamma(r, scale=(1 - q) / q)
    for n in (0, 1, 4):
        mixed = nodes.expect(lambda mean, n=n: stats.poisson.pmf(n, mean))
        assert drha.negative_binomial(r, q).pmf(n) == pytest.approx(mixed, rel=1e-7)


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "three", None])
def test_parameters_out_of_range_are_refused(value):
    for make in (
        lambda: drha.poisson(value),
        lambda: drha.negative_binomial(value, 0.5),
        lambda: drha.negative_binomial(1.0, value),
    ):
        with pytest.raises(drha.InvalidModel):
            make()
    with pytest.raises(drha.InvalidModel, match="q must lie"):
        drha.negative_binomial(1.0, 1.0)
    with pytest.raises(drha.InvalidCounts, match="-1"):
        drha.poisson(1.0).pmf([1, -1])
