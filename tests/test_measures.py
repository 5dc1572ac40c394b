"""The four averaged measures against enumeration, closed forms, limits and simulation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln

import drha
from drha.measures import KINDS, MAX_SIZE, _multinomial_rule

NOISES = {
    "laplace": drha.laplace(0.7),
    "gaussian": drha.gaussian(0.9, delta=1e-5),
    "geometric": drha.geometric(0.4),
    "discrete gaussian": drha.discrete_gaussian(sigma=1.1),
    "geometric, threshold": drha.geometric(0.4).with_convention(drha.conventions.Threshold(2.0)),
    "laplace, signed": drha.laplace(0.7).with_convention("signed"),
}
MECHANISMS = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())
P = np.array([0.55, 0.3, 0.15])
ALPHA = np.array([0.8, 2.5, 0.3])
SIZES = {"poisson": drha.poisson(2.3), "negative binomial": drha.negative_binomial(1.4, 0.4)}

noises = st.one_of(
    st.floats(0.01, 5.0).map(drha.laplace),
    st.floats(0.01, 5.0).map(drha.geometric),
    st.floats(0.2, 30.0).map(lambda sigma: drha.gaussian(sigma=sigma)),
    st.floats(0.2, 30.0).map(lambda sigma: drha.discrete_gaussian(sigma=sigma)),
)
shares = st.lists(st.integers(0, 20), min_size=1, max_size=4).filter(any)
alphas = st.lists(st.floats(0.05, 8.0), min_size=1, max_size=4)


def compositions(n, levels):
    """All counts of n records in the levels."""
    for bars in itertools.combinations(range(n + levels - 1), levels - 1):
        edges = (-1, *bars, n + levels - 1)
        yield np.diff(edges) - 1


def multinomial(counts, p):
    with np.errstate(divide="ignore"):
        powers = np.where(counts > 0, np.power(p, counts), 1.0)
    return math.factorial(counts.sum()) * np.prod(powers / [math.factorial(c) for c in counts])


def dirichlet_multinomial(counts, alpha):
    alpha = np.asarray(alpha)
    log = gammaln(alpha.sum()) - gammaln(alpha.sum() + counts.sum()) + gammaln(counts.sum() + 1)
    log += (gammaln(alpha + counts) - gammaln(alpha) - gammaln(counts + 1)).sum()
    return math.exp(log)


def enumerated_local(counts, noise, kind):
    """Definition over the 2^K zero patterns; the printed expression as printed."""
    n, levels = counts.sum(), len(counts)
    if kind == "paper_bound":
        return drha.local_risk(counts, noise, kind)
    u, risk = noise.vanishing(counts), 0.0
    for pattern in itertools.product([False, True], repeat=levels):
        survives = np.array(pattern)
        if survives.sum() == 1 and counts[survives][0] > 0:
            share = counts[survives][0] / n if kind == "refined" else 1.0
            risk += share * math.prod(np.where(survives, 1.0 - u, u))
    return risk


def enumerated(n, parameters, law, noise, kind):
    levels = len(parameters)
    return sum(
        law(counts, parameters) * enumerated_local(counts, noise, kind)
        for counts in compositions(n, levels)
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), shares, noises, st.sampled_from(KINDS))
def test_expected_risk_equals_enumeration_of_compositions(n, weights, noise, kind):
    p = np.array(weights) / sum(weights)
    value = enumerated(n, p, multinomial, noise, kind)
    assert drha.expected_risk(n, p, noise, kind) == pytest.approx(value, rel=1e-12, abs=1e-15)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), alphas, noises, st.sampled_from(KINDS))
def test_shrinkage_risk_equals_enumeration_of_compositions(n, alpha, noise, kind):
    value = enumerated(n, alpha, dirichlet_multinomial, noise, kind)
    assert drha.shrinkage_risk(n, alpha, noise, kind) == pytest.approx(value, rel=1e-12, abs=1e-15)


@MECHANISMS
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
@pytest.mark.parametrize("kind", KINDS)
def test_marginals_are_sums_over_the_sizes_of_non_empty_cells(sizes, noise, kind):
    n = np.arange(1, 200)
    probability = sizes.pmf(n) / (1.0 - sizes.pmf(0))
    expected = probability @ drha.expected_risk(n, P, noise, kind)
    assert drha.marginal_risk(sizes, P, noise, kind) == pytest.approx(expected, rel=1e-12)
    shrunk = probability @ drha.shrinkage_risk(n, ALPHA, noise, kind)
    assert drha.marginal_shrinkage_risk(sizes, ALPHA, noise, kind) == pytest.approx(
        shrunk, rel=1e-12
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300), shares, noises)
def test_laws_of_the_expected_risk(n, weights, noise):
    p = np.array(weights) / sum(weights)
    exact, refined, bound = (
        drha.expected_risk(n, p, noise, kind) for kind in ("exact", "refined", "paper_bound")
    )
    assert 0 <= refined <= exact * (1 + 1e-12) <= 1 + 1e-12
    assert refined <= bound * (1 + 1e-12)
    assert drha.expected_risk(n, p[::-1], noise) == pytest.approx(exact, rel=1e-11)
    assert drha.expected_risk(n, [1.0, 0.0], noise) == pytest.approx(
        drha.homogeneous_risk(n, 2, noise), rel=1e-12
    )


@MECHANISMS
@pytest.mark.parametrize("kind", KINDS)
def test_all_sizes_at_once_equal_one_at_a_time(noise, kind):
    n = np.array([[40, 1, 0], [7, 40, 2]])
    together = drha.expected_risk(n, P, noise, kind)
    dirichlet = drha.shrinkage_risk(n, ALPHA, noise, kind)
    for i, j in np.ndindex(n.shape):
        one = drha.expected_risk(int(n[i, j]), P, noise, kind)
        assert together[i, j] == pytest.approx(one, rel=1e-14)
        one = drha.shrinkage_risk(int(n[i, j]), ALPHA, noise, kind)
        assert dirichlet[i, j] == pytest.approx(one, rel=1e-14)
    assert together[0, 2] == dirichlet[0, 2] == 0.0


@MECHANISMS
@pytest.mark.parametrize("kind", KINDS)
def test_one_parameter_vector_for_each_cell(noise, kind):
    rng = np.random.default_rng(3)
    p = rng.dirichlet(ALPHA, 12)
    p[4] = p[7, ::-1]
    n = rng.integers(1, 30, 12)
    risk = drha.expected_risk(n, p, noise, kind)
    shrunk = drha.shrinkage_risk(n, p + 0.1, noise, kind)
    sizes = SIZES["poisson"]
    marginal = drha.marginal_risk(sizes, p, noise, kind)
    both = drha.marginal_shrinkage_risk(sizes, p + 0.1, noise, kind)
    for i in range(12):
        assert risk[i] == pytest.approx(drha.expected_risk(n[i], p[i], noise, kind), rel=1e-12)
        assert shrunk[i] == pytest.approx(
            drha.shrinkage_risk(n[i], p[i] + 0.1, noise, kind), rel=1e-12
        )
        assert marginal[i] == pytest.approx(drha.marginal_risk(sizes, p[i], noise, kind), rel=1e-12)
        assert both[i] == pytest.approx(
            drha.marginal_shrinkage_risk(sizes, p[i] + 0.1, noise, kind), rel=1e-12
        )
    same = drha.expected_risk(9, p, noise, kind)
    assert same[5] == pytest.approx(drha.expected_risk(9, p[5], noise, kind), rel=1e-12)


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.4, 2.0, 100.0, 1000.0])
@pytest.mark.parametrize("kind", ["exact", "refined"])
def test_geometric_closed_form_equals_the_dynamic_programme(epsilon, kind):
    noise, n = drha.geometric(epsilon), np.arange(1, 300)
    for p in ([0.6, 0.3, 0.1], [0.9, 0.1, 0.0], [1 - 1e-9, 1e-9], np.full(12, 1 / 12)):
        closed = drha.expected_risk(n, p, noise, kind)
        programme = _multinomial_rule(n, np.array(p), noise, kind)
        np.testing.assert_allclose(closed, programme, rtol=1e-12, atol=1e-300)
        for sizes in (*SIZES.values(), drha.poisson(1e-5)):
            every = np.arange(1, sizes.largest() + 1)
            summed = sizes.truncated_pmf(every) @ _multinomial_rule(every, np.array(p), noise, kind)
            assert drha.marginal_risk(sizes, p, noise, kind) == pytest.approx(summed, rel=1e-10)


def test_expected_risk_is_what_the_local_risk_estimates_without_bias():
    """The exact local risk is unbiased for the exact expected risk: enumerate its expectation."""
    noise = NOISES["gaussian"]
    for n in (1, 3, 6):
        mean = sum(
            multinomial(counts, P) * drha.local_risk(counts, noise) for counts in compositions(n, 3)
        )
        assert drha.expected_risk(n, P, noise) == pytest.approx(mean, rel=1e-12)


def test_literal_reading_of_the_marginal_sum_is_no_probability():
    noise, sizes = drha.laplace(1.0), drha.poisson(0.5)
    call = drha.marginal_risk
    right = call(sizes, [0.7, 0.3], noise, "paper_bound")
    assert right == pytest.approx(0.4943, abs=1e-4)
    assert call(sizes, [0.7, 0.3], noise, "paper_bound", zeros="literal") == pytest.approx(
        -0.3758, abs=1e-4
    )
    for kind in KINDS:
        kept = call(sizes, [0.7, 0.3], noise, kind)
        omitted = call(sizes, [0.7, 0.3], noise, kind, zeros="omit")
        assert omitted == pytest.approx(kept * -math.expm1(-0.5), rel=1e-13)
    alone = drha.marginal_shrinkage_risk(sizes, [2.0], noise, "paper_bound", zeros="literal")
    n = np.arange(60)
    literal = sizes.pmf(n) @ (1.0 - 0.5 * np.exp(0.5 - n))
    assert alone == pytest.approx(literal, rel=1e-12)
    for bad in (drha.gaussian(sigma=2.0), drha.geometric(1.0)):
        with pytest.raises(drha.DrhaError, match="literal"):
            call(sizes, [0.7, 0.3], bad, "paper_bound", zeros="literal")
    with pytest.raises(drha.DrhaError, match="literal"):
        call(sizes, [0.7, 0.3], noise, zeros="literal")
    with pytest.raises(drha.DrhaError, match="'truncate'"):
        call(sizes, [0.7, 0.3], noise, zeros="drop")


@pytest.mark.parametrize("make", [drha.laplace, drha.geometric])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1.0, 30.0, 1e3])
def test_extreme_budgets_and_parameters_stay_probabilities(make, epsilon, kind):
    noise, n = make(epsilon), np.array([1, 2, 50, 1500])
    for p in ([1e-300, 1.0], [1e-12, 1 - 1e-12], [0.5, 0.5], [1.0]):
        risk = drha.expected_risk(n, p, noise, kind)
        assert np.isfinite(risk).all()
        assert ((risk >= 0) & (risk <= 1 + 1e-14)).all()
    for alpha in ([1e-12, 1e-12], [1e12, 1e12], [1e-12, 1e12, 1.0], [0.3, 70.0]):
        risk = drha.shrinkage_risk(n, alpha, noise, kind)
        assert np.isfinite(risk).all()
        assert ((risk >= 0) & (risk <= 1 + 1e-14)).all()
    for sizes in (drha.poisson(1e-9), drha.negative_binomial(1e-9, 0.3), drha.poisson(300.0)):
        assert 0 <= drha.marginal_risk(sizes, P, noise, kind) <= 1
        assert 0 <= drha.marginal_shrinkage_risk(sizes, ALPHA, noise, kind) <= 1


@pytest.mark.parametrize("kind", ["exact", "refined"])
def test_limits_of_the_prior_and_of_the_budget(kind):
    n, noise = np.arange(1, 40), drha.laplace(0.8)
    pooled = drha.shrinkage_risk(n, 1e11 * P, noise, kind)
    np.testing.assert_allclose(pooled, drha.expected_risk(n, P, noise, kind), rtol=1e-7)
    apart = drha.shrinkage_risk(n, 1e-11 * P, noise, kind)
    np.testing.assert_allclose(apart, drha.homogeneous_risk(n, 3, noise), rtol=1e-9)
    share = (P ** n[:, None]).sum(axis=1)
    np.testing.assert_allclose(
        drha.expected_risk(n, P, drha.laplace(200.0), kind), share, rtol=1e-9
    )
    present = (1 - (1 - P) ** n[:, None]).sum(axis=1)
    floor = present / 8 if kind == "exact" else np.full(len(n), 1 / 8)
    np.testing.assert_allclose(drha.expected_risk(n, P, drha.laplace(1e-8), kind), floor, rtol=1e-6)


@MECHANISMS
@pytest.mark.parametrize("measure", ["expected", "shrinkage", "marginal", "marginal shrinkage"])
def test_simulated_sanitiser(noise, measure):
    """Draw the cell as the measure says, sanitise it, attack it: 200,000 times."""
    draws, rng = 200_000, np.random.default_rng([len(measure), 5])
    sizes = SIZES["negative binomial"]
    n = sizes.sample(draws, rng) if "marginal" in measure else np.full(draws, 4)
    p = rng.dirichlet(ALPHA, draws) if "shrinkage" in measure else P
    true = rng.multinomial(n, p)
    released = noise.release(true, rng)
    survivor = np.argmax(released != 0, axis=1)
    kept = true[np.arange(draws), survivor]
    disclosed = (np.count_nonzero(released, axis=1) == 1) & (kept > 0)
    exact = {
        "expected": lambda kind: drha.expected_risk(4, P, noise, kind),
        "shrinkage": lambda kind: drha.shrinkage_risk(4, ALPHA, noise, kind),
        "marginal": lambda kind: drha.marginal_risk(sizes, P, noise, kind),
        "marginal shrinkage": lambda kind: drha.marginal_shrinkage_risk(sizes, ALPHA, noise, kind),
    }[measure]
    for kind, value in (("exact", disclosed), ("refined", disclosed * kept / n)):
        error = value.std(ddof=1) / math.sqrt(draws)
        assert abs(value.mean() - exact(kind)) < 4 * error


@MECHANISMS
@pytest.mark.parametrize("kind", KINDS)
def test_a_level_that_never_occurs_is_the_limit_of_a_rare_one(noise, kind):
    n, zero, rare = np.arange(1, 30), np.array([1.81, 0.0, 3.48]), np.array([1.81, 1e-12, 3.48])
    np.testing.assert_allclose(
        drha.shrinkage_risk(n, zero, noise, kind),
        drha.shrinkage_risk(n, rare, noise, kind),
        rtol=1e-9,
    )
    for sizes in (*SIZES.values(), drha.negative_binomial(0.2, 0.01)):
        assert drha.marginal_shrinkage_risk(sizes, zero, noise, kind) == pytest.approx(
            drha.marginal_shrinkage_risk(sizes, rare, noise, kind), rel=1e-9
        )
    alone = drha.shrinkage_risk(n, [0.0, 2.0], noise, "exact")
    np.testing.assert_allclose(alone, drha.homogeneous_risk(n, 2, noise), rtol=1e-12)


@pytest.mark.parametrize(
    ("p", "message"),
    [
        ([0.5, 0.6], "add up to 1"),
        ([-0.1, 1.1], "non-negative"),
        ([math.nan, 1.0], "not finite"),
        ([], "shape"),
        (0.5, "shape"),
        (["a", "b"], "numbers"),
        (np.full((2, 2, 2), 0.5), "shape"),
    ],
)
def test_bad_probabilities_are_refused(p, message):
    for call in (
        lambda: drha.expected_risk(3, p, NOISES["laplace"]),
        lambda: drha.marginal_risk(SIZES["poisson"], p, NOISES["laplace"]),
    ):
        with pytest.raises(drha.InvalidModel, match=message):
            call()


def test_other_bad_input_is_refused():
    noise = NOISES["laplace"]
    for alpha in ([0.0, 0.0], [1.0, -1.0], [math.inf, 1.0], [1e-13, 1.0], []):
        with pytest.raises(drha.InvalidModel, match="alpha"):
            drha.shrinkage_risk(3, alpha, noise)
    with pytest.raises(drha.InvalidModel, match="do not match"):
        drha.expected_risk([3, 4, 5], [P, P], noise)
    with pytest.raises(drha.InvalidCounts, match=r"-2"):
        drha.expected_risk([3, -2], P, noise)
    with pytest.raises(drha.InvalidCounts, match="quadratic"):
        drha.expected_risk(MAX_SIZE + 1, P, noise)
    with pytest.raises(drha.InvalidCounts, match="quadratic"):
        drha.marginal_shrinkage_risk(drha.poisson(1e6), ALPHA, noise, "refined")
    with pytest.raises(drha.InvalidModel, match=r"drha\.poisson"):
        drha.marginal_risk(3.0, P, noise)
    with pytest.raises(drha.InvalidNoise):
        drha.marginal_shrinkage_risk(SIZES["poisson"], ALPHA, 0.5)
    for call in (drha.expected_risk, drha.shrinkage_risk):
        with pytest.raises(drha.DrhaError, match="kind"):
            call(3, P, noise, "upper")
    # geometric noise and the printed expressions have closed forms at any size
    assert drha.expected_risk(10**9, P, drha.geometric(1.0)) == pytest.approx(0.0, abs=1e-300)
    assert drha.expected_risk(10**9, P, noise, "paper_bound") > 0
    assert drha.marginal_risk(drha.poisson(1e6), [1.0, 0.0], noise) > 0.6
