"""LDP references: levels by enumeration, frequencies by Monte Carlo and by the peer's formulas."""

import math
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from multi_freq_ldpy.mdim_freq_est import RSpFD_solution
from multi_freq_ldpy.mdim_freq_est.Variance_RSpFD import VAR_RSpFD_GRR

from dephdp import Attribute, Domain, distance_matrix, privacy_level
from dephdp.errors import InvalidBudget, InvalidDistribution, InvalidDomain, InvalidFrame
from dephdp.ldp import FakeDataSampling, RandomSampling, amplified_budget

PS = [1, 1.5, 2, 4, np.inf]


def nominal(*sizes):
    return Domain(Attribute.nominal(f"a{j}", range(size)) for j, size in enumerate(sizes))


MIXED = Domain(
    [
        Attribute.nominal("sex", "FM"),
        Attribute.ordinal("size", "SML"),
        Attribute.numeric("age", values=[20, 25, 60], range=(0, 100)),
    ]
)
DOMAINS = {
    "two bits": nominal(2, 2),
    "unequal": nominal(2, 5, 3),
    "with a constant": nominal(3, 1, 2),
    "one attribute": nominal(4),
    "mixed kinds": MIXED,
}


def response(size, budget):
    """Generalised randomised response, in its usual form."""
    matrix = np.ones((size, size)) + (math.exp(budget) - 1) * np.eye(size)
    return matrix / matrix.sum(axis=1, keepdims=True)


def channel(sampling):
    """The whole channel by enumeration: every record against every report."""
    domain = sampling.domain
    records = list(product(*(range(size) for size in domain.sizes)))
    parts = [response(k, b) for k, b in zip(domain.sizes, sampling.budgets, strict=True)]
    count = len(domain)
    if isinstance(sampling, RandomSampling):
        reports = [(j, v) for j in range(count) for v in range(domain.sizes[j])]
        return np.array([[parts[j][x[j], v] / count for j, v in reports] for x in records])
    uniform = [1 / size for size in domain.sizes]
    return np.array(
        [
            [
                sum(
                    parts[j][x[j], y[j]] * math.prod(uniform[:j] + uniform[j + 1 :])
                    for j in range(count)
                )
                / count
                for y in records
            ]
            for x in records
        ]
    )


def references(domain, epsilon):
    budgets = np.linspace(0.5, 1.5, len(domain)) * epsilon
    yield RandomSampling(domain, epsilon)
    yield RandomSampling(domain, budgets)
    yield FakeDataSampling(domain, amplified_budget(epsilon, len(domain)))
    yield FakeDataSampling(domain, budgets)


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS.keys())
def test_level_is_that_of_the_enumerated_channel(domain):
    weights = np.linspace(0.3, 2, len(domain))
    for epsilon in (0.1, 1, 8):
        for sampling in references(domain, epsilon):
            matrix = channel(sampling)
            discrete = 1.0 - np.eye(len(matrix))
            expected = privacy_level(matrix, discrete)
            assert sampling.privacy_level() == pytest.approx(expected, rel=1e-10)
            for p in PS:
                for w in (None, weights):
                    expected = privacy_level(matrix, distance_matrix(domain, domain.names, p, w))
                    assert sampling.privacy_level(p, w) == pytest.approx(expected, rel=1e-10)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.floats(0.05, 5),
    st.sampled_from([None, *PS, 30]),
    st.integers(0, 2**32 - 1),
)
def test_calibrated_references_spend_exactly_their_budget(sizes, epsilon, p, seed):
    rng = np.random.default_rng(seed)
    domain = Domain(
        Attribute.ordinal(f"a{j}", range(size))
        if rng.random() < 0.5
        else Attribute.nominal(f"a{j}", range(size))
        for j, size in enumerate(sizes)
    )
    weights = rng.uniform(0.2, 3, len(domain))
    for kind in (RandomSampling, FakeDataSampling):
        sampling = kind.calibrated(domain, epsilon, p, weights)
        level = sampling.privacy_level(p, weights)
        assert level <= epsilon
        if max(sizes) == 1:
            assert level == 0
            continue
        if kind is FakeDataSampling and 1 in sizes and level < epsilon * (1 - 1e-9):
            assert sampling.budgets.max() > 600  # the truth is told, and hidden well enough
            continue
        assert level == pytest.approx(epsilon, rel=1e-9)
        matrix = channel(sampling)
        distances = (
            1.0 - np.eye(len(matrix))
            if p is None
            else distance_matrix(domain, domain.names, p, weights)
        )
        assert privacy_level(matrix, distances) == pytest.approx(epsilon, rel=1e-9)


def test_the_published_amplification_holds_for_one_changed_attribute_only():
    """Smallest counterexample to ε for whole records: two bits."""
    epsilon = 1.0
    sampling = FakeDataSampling(nominal(2, 2), amplified_budget(epsilon, 2))
    matrix = channel(sampling)
    ratios = np.log(matrix[:, None, :] / matrix[None]).max(axis=-1)
    assert ratios[0, 1] == pytest.approx(epsilon)  # 00 against 01
    assert ratios[0, 3] == pytest.approx(math.log(1 + 2 * math.expm1(epsilon)))  # 00 against 11
    assert sampling.privacy_level(1) == pytest.approx(epsilon)
    assert sampling.privacy_level() == pytest.approx(math.log(2 * math.e - 1))


def test_unequal_domains_exceed_the_published_level_even_for_one_attribute():
    sampling = FakeDataSampling(nominal(2, 50), amplified_budget(1.0, 2))
    assert sampling.privacy_level(1) > 1.2
    assert channel(sampling).shape == (100, 100)


def test_hiding_the_attribute_amplifies_nothing_for_whole_records():
    for domain in (nominal(2, 2), nominal(2, 5, 3), MIXED):
        assert FakeDataSampling(domain, 1.3).privacy_level() == pytest.approx(1.3)
        np.testing.assert_allclose(FakeDataSampling.calibrated(domain, 1.3).budgets, 1.3)


def test_many_attributes_with_all_different_distances():
    rng = np.random.default_rng(3)
    domain = nominal(*rng.integers(2, 9, 14))
    weights = rng.uniform(0.1, 3, 14)
    sampling = FakeDataSampling(domain, rng.uniform(0.2, 2, 14))
    gains = sampling._gains()
    subsets = (np.arange(1, 2**14)[:, None] >> np.arange(14)) & 1
    for p in (1, 2, 3.5):
        expected = (np.log1p(subsets @ gains) / (subsets @ weights) ** (1 / p)).max()
        assert sampling.privacy_level(p, weights) == pytest.approx(expected, rel=1e-12)
    alike = FakeDataSampling(nominal(*[3] * 60), 1.0)  # as many subsets as 2^60
    h = np.arange(1, 61)
    expected = (np.log1p(h * alike._gains()[0]) / np.sqrt(h)).max()
    assert alike.privacy_level(2) == pytest.approx(expected)


def test_reports_follow_the_enumerated_channel():
    rng = np.random.default_rng(4)
    domain, draws = nominal(2, 3), 200_000
    for sampling in references(domain, 1.0):
        matrix = channel(sampling)
        for state in (0, 5):
            codes = np.tile(domain.unravel(state), (draws, 1))
            reports = sampling.randomize(codes, rng)
            if isinstance(sampling, RandomSampling):
                cells = np.where(reports[:, 0] >= 0, reports[:, 0], 2 + reports[:, 1])
            else:
                cells = domain.ravel(reports)
            expected = matrix[state]
            seen = np.bincount(cells, minlength=len(expected)) / draws
            z = (seen - expected) / np.sqrt(expected * (1 - expected) / draws)
            assert np.abs(z).max() < 4


@pytest.mark.parametrize("kind", [RandomSampling, FakeDataSampling])
def test_estimates_are_unbiased_with_the_stated_variance(kind):
    rng = np.random.default_rng(5)
    domain, records, runs = nominal(2, 4, 3), 60, 4000
    codes = np.stack([rng.integers(k, size=records) ** 2 % k for k in domain.sizes], axis=1)
    truth = {
        name: np.bincount(column, minlength=k) / records
        for name, column, k in zip(domain.names, codes.T, domain.sizes, strict=True)
    }
    sampling = kind(domain, 1.5)
    estimates = [sampling.estimate(sampling.randomize(codes, rng)) for _ in range(runs)]
    variances = sampling.variances(truth, records)
    for j, name in enumerate(domain.names):
        found = np.array([estimate[j] for estimate in estimates])
        np.testing.assert_allclose(found.sum(axis=1), 1)
        z = (found.mean(axis=0) - truth[name]) / np.sqrt(variances[name] / runs)
        assert np.abs(z).max() < 4
        squares = (found - truth[name]) ** 2
        z = (squares.mean(axis=0) - variances[name]) / (squares.std(axis=0) / math.sqrt(runs))
        assert np.abs(z).max() < 4


def test_variance_of_random_sampling_by_enumeration():
    """Three records, two bits: every choice of attributes, every response."""
    domain, codes = nominal(2, 2), np.array([[0, 1], [1, 1], [1, 0]])
    sampling = RandomSampling(domain, 0.8)
    matrix = response(2, 0.8)
    moments, mass = np.zeros(2), 0.0
    for chosen in product(range(2), repeat=3):
        if 0 not in chosen:
            continue
        for shown in product(range(2), repeat=3):
            chance = math.prod(matrix[codes[i, c], shown[i]] for i, c in enumerate(chosen))
            values = [v for v, c in zip(shown, chosen, strict=True) if c == 0]
            share = np.mean(values)
            estimate = (share - matrix[0, 1]) / (matrix[0, 0] - matrix[0, 1])
            moments += chance * np.array([estimate, (estimate - 2 / 3) ** 2])
            mass += chance
    truth = {"a0": [1 / 3, 2 / 3], "a1": [1 / 3, 2 / 3]}
    mean, variance = moments / mass
    assert mean == pytest.approx(2 / 3)
    assert sampling.variances(truth, 3)["a0"][1] == pytest.approx(variance)


def test_variances_agree_with_the_peers_for_a_sampled_population():
    domain, records, epsilon = nominal(2, 6, 3), 1000, 1.2
    budget = amplified_budget(epsilon, 3)
    sampling = FakeDataSampling(domain, budget)
    rng = np.random.default_rng(6)
    truth = {name: rng.dirichlet(np.ones(domain[name].size)) for name in domain.names}
    variances = sampling.variances(truth, records)
    for name, f in truth.items():
        size = domain[name].size
        p = math.exp(budget) / (math.exp(budget) + size - 1)
        peer = VAR_RSpFD_GRR(p, (1 - p) / (size - 1), size, 3, records, f)
        np.testing.assert_allclose(variances[name] + f * (1 - f) / records, peer)


def test_estimates_agree_with_the_peers_once_clipped_and_normalised():
    domain, rng = nominal(2, 6, 3), np.random.default_rng(7)
    sampling = FakeDataSampling(domain, amplified_budget(1.2, 3))
    reports = sampling.randomize(np.zeros((500, 3), dtype=int), rng)
    peer = RSpFD_solution.RSpFD_GRR_Aggregator_MI(reports.tolist(), list(domain.sizes), 3, 1.2)
    for ours, theirs in zip(sampling.estimate(reports), peer, strict=True):
        clipped = np.clip(ours, 0, None)
        np.testing.assert_allclose(clipped / clipped.sum(), theirs.astype(float))


def test_frames_in_and_out():
    rng = np.random.default_rng(8)
    frame = MIXED.decode(np.stack([rng.integers(k, size=300) for k in MIXED.sizes], axis=1))
    smp = RandomSampling(MIXED, 1.0).privatize(frame, rng)
    assert list(smp.columns) == list(MIXED.names)
    assert (smp.notna().sum(axis=1) == 1).all()
    assert smp["size"].dtype.ordered
    frequencies = RandomSampling(MIXED, 1.0).frequencies(smp)
    assert {name: len(f) for name, f in frequencies.items()} == {"sex": 2, "size": 3, "age": 3}
    hidden = FakeDataSampling(MIXED, 1.0)
    reports = hidden.privatize(frame, rng)
    assert reports.notna().all().all()
    for name, f in hidden.frequencies(reports).items():
        np.testing.assert_allclose(
            f, dict(zip(MIXED.names, hidden.estimate(MIXED.encode(reports)), strict=True))[name]
        )
    assert "budgets=[1.0, 1.0, 1.0]" in repr(hidden)


def test_the_same_seed_draws_the_same_reports():
    codes = np.zeros((50, 3), dtype=int)
    for kind in (RandomSampling, FakeDataSampling):
        first, second = (
            kind(MIXED, 1.0).randomize(codes, np.random.default_rng(9)) for _ in range(2)
        )
        np.testing.assert_array_equal(first, second)


def test_amplified_budget_at_its_ends():
    assert amplified_budget(1.0, 1) == pytest.approx(1.0)
    assert amplified_budget(1.0, 3) == pytest.approx(math.log(3 * (math.e - 1) + 1))
    assert amplified_budget(1e-12, 5) == pytest.approx(5e-12)
    assert amplified_budget(600.0, 5) == pytest.approx(600 + math.log(5))


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (InvalidBudget, "positive", lambda: amplified_budget(0, 2)),
        (InvalidBudget, "integer", lambda: amplified_budget(1, 2.0)),
        (InvalidBudget, "must be positive", lambda: amplified_budget(1, 0)),
        (InvalidBudget, "too large", lambda: amplified_budget(1000, 2)),
        (InvalidDomain, "Domain", lambda: RandomSampling([2, 2], 1)),
        (InvalidBudget, "'size' is", lambda: RandomSampling(MIXED, [1, 0, 1])),
        (InvalidBudget, "underflows", lambda: FakeDataSampling(MIXED, 1e3)),
        (InvalidBudget, "shape", lambda: FakeDataSampling(MIXED, [1, 2])),
        (InvalidBudget, "numbers", lambda: FakeDataSampling(MIXED, "much")),
        (InvalidBudget, "epsilon", lambda: FakeDataSampling.calibrated(MIXED, -1)),
        (InvalidBudget, "p must", lambda: FakeDataSampling(MIXED, 1).privacy_level(p=0.5)),
        (TypeError, "Generator", lambda: RandomSampling(MIXED, 1).randomize([[0, 0, 0]], 3)),
        (
            InvalidDomain,
            "outside",
            lambda: RandomSampling(MIXED, 1).randomize([[0, 3, 0]], np.random.default_rng(0)),
        ),
        (
            InvalidDomain,
            "records, attributes",
            lambda: RandomSampling(MIXED, 1).randomize([0, 0, 0], np.random.default_rng(0)),
        ),
        (InvalidFrame, "no columns", lambda: RandomSampling(MIXED, 1).frequencies(pd.DataFrame())),
        (InvalidFrame, "2 attributes", lambda: RandomSampling(MIXED, 1).estimate([[0, 1, -1]])),
        (InvalidFrame, "'size'", lambda: RandomSampling(MIXED, 1).estimate([[0, -1, -1]])),
        (InvalidDomain, "outside", lambda: FakeDataSampling(MIXED, 1).estimate([[0, 1, -1]])),
        (InvalidFrame, "shape", lambda: FakeDataSampling(MIXED, 1).estimate([0, 1, 1])),
        (InvalidDistribution, "each of", lambda: RandomSampling(MIXED, 1).variances({}, 5)),
        (InvalidFrame, "records", lambda: RandomSampling(MIXED, 1).variances({}, 0)),
    ],
)
def test_bad_input_is_refused_by_name(error, message, call):
    with pytest.raises(error, match=message):
        call()
