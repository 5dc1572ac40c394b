import math
from functools import reduce

import numpy as np
import pytest
from channels import euclidean, random_channel, reference_level
from hypothesis import given, settings
from hypothesis import strategies as st

from dephdp import (
    Channel,
    compose_budget,
    exponential_mechanism,
    privacy_level,
    product_privacy_level,
    product_worst_case,
    split_budget,
)
from dephdp.errors import InvalidBudget, InvalidMetric
from dephdp.metric import combine_distances

EXPONENTS = [1, 1.5, 2, 3, 40, 5000, math.inf]


def product_matrix(channels):
    return reduce(np.kron, [channel.matrix for channel in channels])


def product_distances(channels, p, weights=None):
    return combine_distances([channel.distances for channel in channels], p, weights)


@pytest.mark.parametrize("p", EXPONENTS)
@pytest.mark.parametrize("seed", range(5))
def test_exact_product_level_equals_brute_force_over_all_records(p, seed):
    rng = np.random.default_rng(seed)
    channels = [random_channel(rng, rng.integers(2, 5), rng.integers(2, 4)) for _ in range(3)]
    expected = reference_level(product_matrix(channels), product_distances(channels, p))
    assert product_privacy_level(channels, p) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("p", EXPONENTS)
def test_weights_scale_the_groups_of_the_product(p):
    rng = np.random.default_rng(11)
    channels = [random_channel(rng, 4, 3) for _ in range(3)]
    weights = [0.2, 1.0, 7.5]
    expected = reference_level(product_matrix(channels), product_distances(channels, p, weights))
    assert product_privacy_level(channels, p, weights) == pytest.approx(expected, rel=1e-12)


def test_a_non_convex_profile_is_maximised_at_combined_distances():
    """Two binary groups: neither group alone, but the diagonal, attains the level for p = 2."""
    pair = [[0.0, 1.0], [1.0, 0.0]]
    coins = [exponential_mechanism(pair, budget, calibrated=True) for budget in (1.0, 0.8)]
    assert product_privacy_level(coins, 2) == pytest.approx(1.8 / math.sqrt(2), rel=1e-12)
    # The region of admissible budgets is larger than the ball: (1, sqrt 2 - 1) composes to 1.
    coins = [
        exponential_mechanism(pair, budget, calibrated=True) for budget in (1, math.sqrt(2) - 1)
    ]
    assert product_privacy_level(coins, 2) == pytest.approx(1.0, rel=1e-12)
    assert compose_budget([1, math.sqrt(2) - 1], 2) > 1.08


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    groups=st.integers(1, 4),
    p=st.one_of(st.just(1.0), st.just(math.inf), st.floats(1.0, 60.0)),
)
def test_theorem_1_bounds_the_level_of_the_product(seed, groups, p):
    rng = np.random.default_rng(seed)
    channels = [random_channel(rng, rng.integers(2, 6), rng.integers(2, 5)) for _ in range(groups)]
    levels = [channel.privacy_level() for channel in channels]
    exact = product_privacy_level(channels, p)
    assert max(levels) * (1 - 1e-12) <= exact <= compose_budget(levels, p) * (1 + 1e-12)


@pytest.mark.parametrize("p", [1, 2, 3, math.inf])
def test_theorem_1_is_tight_where_distances_allow_equality(p):
    """On two lines whose distances realise d_k^p ∝ ε_k^q the bound is attained."""
    budgets = np.array([1.0, 2.0])
    steps = np.ones(2) if p in (1, math.inf) else budgets ** (1 / (p - 1))
    coins = [
        exponential_mechanism([[0, step], [step, 0]], budget, calibrated=True)
        for budget, step in zip(budgets, steps, strict=True)
    ]
    bound = compose_budget(budgets, p)
    assert product_privacy_level(coins, p) == pytest.approx(bound, rel=1e-12)


def test_the_pairwise_product_agrees():
    rng = np.random.default_rng(3)
    first, second = random_channel(rng, 5, 4), random_channel(rng, 4, 6)
    for p in EXPONENTS:
        built = first.product(second, p)
        assert built.privacy_level() == pytest.approx(
            product_privacy_level([first, second], p), rel=1e-12
        )


def test_a_zero_facing_a_positive_makes_the_product_unprivate():
    leaky = Channel([[1.0, 0.0], [0.5, 0.5]], [[0, 1], [1, 0]])
    sound = Channel([[0.5, 0.5], [0.5, 0.5]], [[0, 1], [1, 0]])
    assert product_privacy_level([sound, leaky], 2) == math.inf


@pytest.mark.parametrize("weights", [None, [0.2, 1.0, 7.5]])
@pytest.mark.parametrize("p", EXPONENTS)
def test_the_worst_case_attains_the_level(p, weights):
    rng = np.random.default_rng(8)
    channels = [random_channel(rng, 5, 4) for _ in range(3)]
    record, other, report = product_worst_case(channels, p, weights)
    ratio, parts = 0.0, []
    for channel, x, z, y in zip(channels, record, other, report, strict=True):
        ratio += np.log(channel.matrix[x, y] / channel.matrix[z, y])
        parts.append([[0.0, channel.distances[x, z]], [channel.distances[x, z], 0.0]])
    distance = combine_distances(parts, p, weights)[0, -1]
    level = product_privacy_level(channels, p, weights)
    assert ratio / distance == pytest.approx(level, rel=1e-12)


def test_distances_that_differ_by_rounding_only():
    """Their logarithms coincide, and a frontier may hold both."""
    near, far = 3.0, math.nextafter(3.0, 4.0)
    assert math.log(near) == math.log(far)
    group = Channel(
        [[0.5, 0.5], [0.3, 0.7], [0.2, 0.8]], [[0, near, far], [near, 0, 1], [far, 1, 0]]
    )
    channels = [group, random_channel(np.random.default_rng(3), 4, 3)]
    for p in EXPONENTS:
        expected = reference_level(product_matrix(channels), product_distances(channels, p))
        assert product_privacy_level(channels, p) == pytest.approx(expected, rel=1e-12)


def test_the_worst_case_names_the_group_that_leaks():
    leaky = Channel([[1.0, 0.0], [0.5, 0.5]], [[0, 1], [1, 0]])
    sound = Channel([[0.5, 0.5], [0.5, 0.5]], [[0, 1], [1, 0]])
    record, other, report = product_worst_case([sound, leaky], 2)
    assert (record[1], other[1], report[1]) == (1, 0, 1)
    assert record[0] == other[0]


def test_a_product_that_reveals_nothing_has_no_worst_pair():
    blind = Channel([[0.5, 0.5], [0.5, 0.5]], [[0, 1], [1, 0]])
    for p in (1, 2, math.inf):
        record, other, _ = product_worst_case([blind, blind], p)
        assert (record == other).all()


def test_states_at_distance_zero_and_at_infinite_distance():
    told_apart = Channel([[0.6, 0.4], [0.5, 0.5]], [[0, 0], [0, 0]])
    alike = Channel([[0.6, 0.4], [0.6, 0.4]], [[0, 0], [0, 0]])
    far = Channel([[1.0, 0.0], [0.0, 1.0]], [[0, math.inf], [math.inf, 0]])
    coin = exponential_mechanism([[0, 1], [1, 0]], 1.0, calibrated=True)
    for p in (1, 2, math.inf):
        assert product_privacy_level([told_apart, coin], p) == math.inf
        assert product_privacy_level([alike, far, coin], p) == coin.privacy_level()
        assert product_privacy_level([alike, far], p) == 0.0


def test_six_groups_of_300_states_need_no_record_matrix():
    rng = np.random.default_rng(5)
    channels = [
        exponential_mechanism(euclidean(rng.normal(size=(300, 3))), 1 / math.sqrt(6))
        for _ in range(6)
    ]
    exact = product_privacy_level(channels, 2)
    levels = [channel.privacy_level() for channel in channels]
    assert max(levels) <= exact <= compose_budget(levels, 2) * (1 + 1e-12)
    # A second route, the variational form of the square root: λ is exceeded exactly if
    # max over s of Σ_k max_t [ρ_k(t) - λ t² / (2 s)] - λ s / 2 is positive.
    assert variational_excess(channels, exact * (1 - 1e-3)) > 0
    assert variational_excess(channels, exact * (1 + 1e-9)) <= 0


def variational_excess(channels, level):
    scales = np.geomspace(0.05, 50, 200)
    total = -level * scales / 2
    for channel in channels:
        logs = np.log(channel.matrix)
        ratios = np.array([(row - logs).max(axis=1) for row in logs])
        for i, scale in enumerate(scales):
            total[i] += (ratios - level * channel.distances**2 / (2 * scale)).max()
    return total.max()


@pytest.mark.parametrize("p", EXPONENTS)
def test_dual_norm_against_its_definition_as_a_maximum(p):
    """‖ε‖_q = max Σ ε_k d_k over ‖d‖_p ≤ 1, by random search from the maximiser's neighbourhood."""
    rng = np.random.default_rng(0)
    budgets = np.array([0.3, 1.1, 2.0, 0.0])
    composed = compose_budget(budgets, p)
    directions = np.abs(rng.normal(size=(20000, 4)))
    directions[0] = budgets == budgets.max()
    if 1 < p < math.inf:
        directions[1] = (budgets / budgets.max()) ** (1 / (p - 1))
    directions[2] = 1.0
    norms = np.linalg.norm(directions, ord=p, axis=1) if p <= 40 or p == math.inf else None
    if norms is None:
        largest = directions.max(axis=1)
        norms = largest * ((directions / largest[:, None]) ** p).sum(axis=1) ** (1 / p)
    values = directions @ budgets / norms
    assert values.max() == pytest.approx(composed, rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(
    epsilon=st.floats(1e-3, 50),
    groups=st.integers(1, 30),
    p=st.one_of(st.just(1.0), st.just(math.inf), st.floats(1.0, 100.0)),
)
def test_split_budget_composes_to_at_most_epsilon(epsilon, groups, p):
    budgets = split_budget(epsilon, groups, p)
    assert budgets.shape == (groups,)
    assert np.ptp(budgets) == 0
    composed = compose_budget(budgets, p)
    assert composed <= epsilon
    assert composed == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.parametrize("p", [0.99, 0, -1, math.nan, "two"])
def test_an_exponent_below_one_is_refused(p):
    coin = exponential_mechanism([[0, 1], [1, 0]], 1.0)
    for call in (
        lambda: compose_budget([1.0], p),
        lambda: split_budget(1.0, 2, p),
        lambda: product_privacy_level([coin], p),
    ):
        with pytest.raises(InvalidBudget, match="p must"):
            call()


def test_bad_budgets_and_weights_are_refused():
    with pytest.raises(InvalidBudget, match="group 1"):
        compose_budget([1.0, -0.5], 2)
    with pytest.raises(InvalidBudget, match="group 0"):
        compose_budget([math.nan, 1.0], 2)
    with pytest.raises(InvalidBudget, match="nonempty"):
        compose_budget([], 2)
    with pytest.raises(InvalidBudget, match="epsilon"):
        split_budget(0.0, 3, 2)
    for groups in (0, 2.5, True):
        with pytest.raises(InvalidBudget, match="groups"):
            split_budget(1.0, groups, 2)
    with pytest.raises(InvalidBudget, match="at least one"):
        product_privacy_level([], 2)
    coin = exponential_mechanism([[0, 1], [1, 0]], 1.0)
    with pytest.raises(InvalidMetric, match="weight 1"):
        product_privacy_level([coin, coin], 2, weights=[1.0, 0.0])


def test_product_level_of_one_channel_is_its_level():
    rng = np.random.default_rng(8)
    channel = random_channel(rng, 6, 5)
    for p in EXPONENTS:
        assert product_privacy_level([channel], p) == pytest.approx(
            privacy_level(channel.matrix, channel.distances), rel=1e-13
        )
