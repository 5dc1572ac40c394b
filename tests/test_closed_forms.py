"""Closed forms against the dynamic programme, which knows none of them."""

import math

import numpy as np
import pytest

import drha
from drha import closed_forms
from drha.measures import _multinomial_rule

P = np.array([0.55, 0.3, 0.15])
ALPHA = np.array([0.8, 2.5, 0.3])
EPSILONS = pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.4, 2.0, 12.0, 1000.0])
SIZES = {
    "poisson": drha.poisson(2.3),
    "poisson tiny": drha.poisson(1e-7),
    "poisson large": drha.poisson(800.0),
    "negative binomial": drha.negative_binomial(1.4, 0.4),
    "negative binomial long": drha.negative_binomial(0.2, 0.02),
    "negative binomial short": drha.negative_binomial(300.0, 0.97),
}


def summed(sizes, p, noise, kind="exact"):
    """The marginal sum over the dynamic programme."""
    n = np.arange(1, sizes.largest() + 1)
    return sizes.truncated_pmf(n) @ _multinomial_rule(n, np.asarray(p), noise, kind)


@EPSILONS
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_laplace_and_geometric_marginals(epsilon, sizes):
    for p in (P, np.array([1.0, 0.0]), np.full(6, 1 / 6)):
        for noise in (drha.laplace(epsilon), drha.geometric(epsilon)):
            value = drha.marginal_risk(sizes, p, noise)
            assert value == pytest.approx(summed(sizes, p, noise), rel=2e-12, abs=1e-14)


@pytest.mark.parametrize("kind", ["exact", "refined"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
@pytest.mark.parametrize(
    "noise",
    [
        drha.laplace(0.3),
        drha.gaussian(sigma=5.0),
        drha.discrete_gaussian(sigma=1.1),
        drha.geometric(0.4),
        drha.laplace(0.5).with_convention(drha.conventions.Threshold(4.0)),
    ],
    ids=["laplace", "gaussian", "discrete gaussian", "geometric", "laplace, threshold"],
)
def test_integrals_over_poisson_means_equal_sums_over_sizes(sizes, noise, kind):
    if kind == "refined" and sizes == SIZES["negative binomial short"]:
        pytest.skip("almost Poisson: refused, see below, and summed by drha.marginal_risk")
    for p in (P, np.array([1.0, 0.0])):
        if kind == "exact":
            value = sizes.average(lambda x, p=p: closed_forms.poisson_risk(x * p, noise))
        else:
            value = sizes.average_per_record(
                lambda x, p=p: closed_forms.poisson_record_risk(x * p, p, noise)
            )
        expected = summed(sizes, p, noise, kind)
        assert value == pytest.approx(expected, rel=1e-11, abs=1e-14)


def test_almost_poisson_sizes_are_refused_by_the_integral_over_records():
    with pytest.raises(drha.DrhaError, match="almost Poisson"):
        SIZES["negative binomial short"].average_per_record(np.array)


def test_sizes_with_long_tails_like_those_of_real_tables():
    """Adult cells: 60,000 records and more have a say; the sum is taken over a shorter tail."""
    sizes = drha.negative_binomial(0.2166, 3.2856e-4)
    assert sizes.largest() > 100_000
    n = np.arange(1, 3001)
    for noise in (drha.laplace(0.5), drha.gaussian(sigma=4.0)):
        risk = drha.expected_risk(n, P, noise)
        assert risk[-1] < 1e-13 * risk[0]  # larger cells add nothing to this sum
        value = drha.marginal_risk(sizes, P, noise)
        assert value == pytest.approx(sizes.truncated_pmf(n) @ risk, rel=1e-11)
    assert drha.marginal_risk(sizes, [1.0, 0.0], drha.laplace(0.5), "refined") == pytest.approx(
        sizes.truncated_pmf(np.arange(200_000))
        @ np.append(0.0, drha.homogeneous_risk(np.arange(1, 200_000), 2, drha.laplace(0.5))),
        rel=1e-10,
    )


@pytest.mark.parametrize("epsilon", [0.01, 0.4, 1.0, 3.0])
def test_inclusion_exclusion(epsilon):
    noise = drha.laplace(epsilon)
    for n in (1, 3, 12):
        value = closed_forms.laplace_inclusion_exclusion(lambda x, n=n: x**n, P, noise)
        assert value == pytest.approx(drha.expected_risk(n, P, noise), rel=1e-11)
    sizes = drha.poisson(3.0)
    value = closed_forms.laplace_inclusion_exclusion(sizes.truncated_pgf, P, noise)
    assert value == pytest.approx(drha.marginal_risk(sizes, P, noise), rel=1e-11)


def test_inclusion_exclusion_loses_its_digits_where_documented():
    def error(levels, epsilon):
        p = np.arange(1, levels + 1) / (levels * (levels + 1) / 2)
        noise = drha.laplace(epsilon)
        value = closed_forms.laplace_inclusion_exclusion(lambda x: x**10, p, noise)
        return abs(value / drha.expected_risk(10, p, noise) - 1)

    assert error(8, 1.0) < 1e-12 < error(8, 5.0) < 1e-6 < error(8, 10.0)


@pytest.mark.parametrize("kind", ["exact", "refined"])
@pytest.mark.parametrize("epsilon", [0.05, 0.7, 3.0])
def test_geometric_shrinkage_by_hypergeometric_functions(epsilon, kind):
    noise, n = drha.geometric(epsilon), np.arange(1, 16)
    for alpha in (ALPHA, np.array([1.0, 1.0]), np.full(5, 0.2)):
        closed = closed_forms.geometric_shrinkage(n, alpha, noise, kind)
        np.testing.assert_allclose(
            closed, drha.shrinkage_risk(n, alpha, noise, kind), rtol=1e-11, atol=1e-14
        )


@pytest.mark.parametrize(
    "noise",
    [
        drha.laplace(0.7),
        drha.gaussian(0.9, delta=1e-5),
        drha.geometric(0.4),
        drha.discrete_gaussian(sigma=1.1),
    ],
    ids=["laplace", "gaussian", "geometric", "discrete gaussian"],
)
@pytest.mark.parametrize("q", [0.05, 0.4, 0.9])
def test_negative_binomial_sizes_with_a_matching_dirichlet_prior(noise, q):
    sizes = drha.negative_binomial(ALPHA.sum(), q)
    closed = closed_forms.negative_binomial_dirichlet(sizes, ALPHA, noise)
    assert drha.marginal_shrinkage_risk(sizes, ALPHA, noise) == pytest.approx(closed, rel=1e-12)
    with pytest.raises(drha.InvalidModel, match="adds up to r"):
        closed_forms.negative_binomial_dirichlet(drha.negative_binomial(2.0, q), ALPHA, noise)


@pytest.mark.parametrize(
    ("epsilon", "r", "q"), [(0.01, 1.4, 0.4), (0.7, 0.2, 0.05), (12.0, 1e-9, 0.1), (0.7, 2.9, 0.3)]
)
def test_marginal_shrinkage_as_an_integral(epsilon, r, q):
    sizes = drha.negative_binomial(r, q)
    n = np.arange(1, sizes.largest() + 1)
    for noise in (
        drha.laplace(epsilon),
        drha.geometric(epsilon),
        drha.gaussian(epsilon, delta=1e-5),
    ):
        summed = sizes.truncated_pmf(n) @ drha.shrinkage_risk(n, ALPHA, noise)
        value = closed_forms.dirichlet_marginal(sizes, ALPHA, noise)
        assert value == pytest.approx(summed, rel=1e-11)
    assert closed_forms.dirichlet_marginal(drha.negative_binomial(3.6, q), ALPHA, noise) is None
    assert closed_forms.dirichlet_marginal(drha.poisson(3.0), ALPHA, noise) is None


def test_marginal_shrinkage_of_sizes_with_long_tails():
    """As fitted to a coarse table: sizes beyond 100,000, where the sum would take minutes."""
    sizes, alpha = drha.negative_binomial(0.2166, 3.2856e-4), np.array([4.6, 0.9])
    n = np.arange(1, 2001)
    for noise in (drha.laplace(0.5), drha.gaussian(sigma=4.0)):
        risk = drha.marginal_shrinkage_risk(sizes, alpha, noise)
        head = sizes.truncated_pmf(n)
        below = head @ drha.shrinkage_risk(n, alpha, noise)
        rest = 1.0 - head.sum()
        last = drha.shrinkage_risk(2000, alpha, noise)
        assert below < risk < below + rest * last * 1.01


def test_paper_expression_for_poisson_sizes():
    """Equation 16 summed over Poisson sizes by hand, from exponentials only."""
    for epsilon, mean in ((0.3, 2.0), (1.0, 0.5), (2.0, 7.0)):
        a, levels = math.exp(-epsilon), len(P)
        v = 0.5 * math.sqrt(a)
        b = 0.5 / math.sqrt(a)

        def e(s, mean=mean):
            return np.exp(-mean * (1 - s))

        alone = (e(P) - e(0) - b * (e(a * P) - e(0))).sum()
        mixed = 1 - e(0) - (e(P) - e(0)).sum()
        mixed += a**-2 * (1 - 2 * v) * (e(a) - e(0) - (e(a * P) - e(0)).sum())
        total = (1 - v) ** (levels - 1) * alone + (1 - v) ** (levels - 2) * v * mixed
        printed = drha.marginal_risk(drha.poisson(mean), P, drha.laplace(epsilon), "paper_bound")
        assert printed == pytest.approx(total / (1 - e(0)), rel=1e-12)
