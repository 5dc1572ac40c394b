import math
import pickle

import numpy as np
import pytest
from channels import euclidean, random_channel
from hypothesis import given, settings
from hypothesis import strategies as st

from dephdp import Channel, exponential_mechanism, privacy_level
from dephdp.errors import (
    CertificationError,
    InvalidBudget,
    InvalidChannel,
    InvalidDistribution,
    InvalidDomain,
    InvalidLoss,
    InvalidMetric,
)

PAIR = [[0.0, 1.0], [1.0, 0.0]]
SEEDS = st.integers(0, 2**32 - 1)


def frequencies(channel, states, rng):
    counts = np.zeros(channel.matrix.shape)
    np.add.at(counts, (states, channel.sample(states, rng)), 1)
    return counts


@pytest.mark.parametrize(
    ("states", "outputs"), [(1, 1), (1, 3), (2, 2), (3, 17), (16, 16), (5, 300), (300, 4)]
)
def test_sampling_frequencies_match_the_rows(states, outputs):
    """Each cell within 4 standard errors where cells are few; their mean square everywhere."""
    rng = np.random.default_rng(20240 + states)
    channel = random_channel(rng, states, outputs)
    draws = 2_000_000
    inputs = np.arange(draws) % states
    counts = frequencies(channel, inputs, rng)
    trials = np.bincount(inputs, minlength=states)[:, None]
    expected = trials * channel.matrix
    large = expected > 50
    errors = np.sqrt(trials * channel.matrix * (1 - channel.matrix))
    certain = errors == 0  # a single output
    assert (counts == expected)[certain].all()
    z = (counts - expected)[large & ~certain] / errors[large & ~certain]
    if 0 < z.size <= 300:
        assert np.abs(z).max() < 4
    if z.size > 30:
        # The mean of z² over nearly independent cells is one, its standard error sqrt(2 / cells).
        assert abs((z**2).mean() - 1) / math.sqrt(2 / z.size) < 4


def test_sampled_log_likelihood_ratios_match_the_divergence():
    """The mean of ln M(y|x) / M(y|x') over reports of x is the Kullback-Leibler divergence."""
    rng = np.random.default_rng(7)
    channel = exponential_mechanism(euclidean(np.arange(9.0)), 1.3)
    logs = np.log(channel.matrix)
    draws = 400_000
    for x, other in ((0, 1), (0, 8), (4, 3)):
        reports = channel.sample(np.full(draws, x), rng)
        ratios = (logs[x] - logs[other])[reports]
        divergence = channel.matrix[x] @ (logs[x] - logs[other])
        z = (ratios.mean() - divergence) / (ratios.std(ddof=1) / math.sqrt(draws))
        assert abs(z) < 4
        assert np.abs(ratios).max() <= 1.3 * channel.distances[x, other]


def test_sampling_inverts_the_distribution_function():
    """Given the same uniforms, a report is the first output whose cumulative sum exceeds it."""
    rng = np.random.default_rng(1)
    channel = random_channel(rng, 6, 37)
    states = rng.integers(6, size=100_000)
    reports = channel.sample(states, np.random.default_rng(2))
    uniforms = np.random.default_rng(2).random(100_000)
    cumulative = np.cumsum(channel.matrix, axis=1)
    expected = (cumulative[states] <= uniforms[:, None]).sum(axis=1)
    assert (reports == expected).all()


def test_impossible_outputs_are_never_drawn():
    rng = np.random.default_rng(3)
    matrix = [[0.0, 0.5, 0.0, 0.5, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0]]
    channel = Channel(matrix, PAIR)
    counts = frequencies(channel, np.arange(200_000) % 2, rng)
    assert ((counts > 0) == (np.array(matrix) > 0)).all()


def test_extreme_uniforms_stay_within_the_outputs():
    class Edge(np.random.Generator):
        def random(self, out):
            out[:] = np.resize([0.0, np.nextafter(1.0, 0.0)], len(out))

    rows = np.full((3, 10), 0.1)  # ten tenths do not add up to one in floating point
    channel = Channel(rows, np.zeros((3, 3)))
    reports = channel.sample(np.zeros(6, dtype=int), Edge(np.random.PCG64(0)))
    assert reports.tolist() == [0, 9, 0, 9, 0, 9]


def test_sample_keeps_shape_and_stream():
    rng = np.random.default_rng(4)
    channel = random_channel(rng, 4, 4)
    states = rng.integers(4, size=(250, 400))
    whole = channel.sample(states, np.random.default_rng(9))
    assert whole.shape == (250, 400)
    rng = np.random.default_rng(9)
    parts = np.concatenate([channel.sample(states[:7], rng), channel.sample(states[7:], rng)])
    assert (whole == parts).all()
    assert channel.sample(np.int8(2), rng).shape == ()
    assert channel.sample(np.array([], dtype=int), rng).shape == (0,)
    assert channel.sample(states.astype(np.uint8), np.random.default_rng(9)).tolist() == (
        whole.tolist()
    )


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ([0, 2], "state 2 at position 1"),
        ([-1, 0], "state -1 at position 0"),
        ([0.0, 1.0], "integer"),
        ([True], "integer"),
    ],
)
def test_bad_states_are_refused(states, message):
    channel = Channel([[0.5, 0.5], [0.5, 0.5]], PAIR)
    with pytest.raises(InvalidDomain, match=message):
        channel.sample(states, np.random.default_rng(0))


def test_sample_needs_a_generator():
    channel = Channel([[0.5, 0.5], [0.5, 0.5]], PAIR)
    for rng in (None, 0, np.random):
        with pytest.raises(TypeError, match="Generator"):
            channel.sample([0], rng)


def test_arrays_are_private_copies():
    matrix = np.array([[0.5, 0.5], [0.25, 0.75]])
    channel = Channel(matrix, PAIR)
    matrix[0] = [1.0, 0.0]
    assert channel.matrix[0].tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="read-only"):
        channel.matrix[0, 0] = 0.0
    with pytest.raises(ValueError, match="read-only"):
        channel.distances[0, 1] = 0.0
    with pytest.raises(AttributeError):
        channel.matrix = matrix
    assert repr(channel) == "Channel(2 states, 2 outputs)"
    copy = pickle.loads(pickle.dumps(channel))
    assert (copy.matrix == channel.matrix).all()


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[0.5, 0.4], [0.5, 0.5]], "row 0 sums to"),
        ([[0.5, 0.5], [1.2, -0.2]], "row 1, column 1"),
        ([[0.5, 0.5], [0.5, math.nan]], "row 1, column 1"),
    ],
)
def test_bad_matrices_are_refused(matrix, message):
    with pytest.raises(InvalidChannel, match=message):
        Channel(matrix, PAIR)


def test_bad_distances_are_refused():
    with pytest.raises(InvalidMetric, match="symmetric"):
        Channel([[0.5, 0.5], [0.5, 0.5]], [[0, 1], [2, 0]])
    with pytest.raises(InvalidMetric, match="expected 2"):
        Channel([[0.5, 0.5], [0.5, 0.5]], [[0]])


@settings(max_examples=50, deadline=None)
@given(SEEDS, st.integers(1, 8), st.integers(1, 8))
def test_expected_loss_is_its_double_sum(seed, states, outputs):
    rng = np.random.default_rng(seed)
    channel = random_channel(rng, states, outputs)
    prior, loss = rng.dirichlet(np.ones(states)), rng.normal(size=(states, outputs))
    expected = math.fsum(
        prior[x] * channel.matrix[x, y] * loss[x, y] for x in range(states) for y in range(outputs)
    )
    assert channel.expected_loss(prior, loss) == pytest.approx(expected, rel=1e-12, abs=1e-13)


def test_expected_loss_is_what_reports_cost():
    rng = np.random.default_rng(12)
    channel = random_channel(rng, 5, 7)
    prior, loss = rng.dirichlet(np.ones(5)), rng.random((5, 7))
    states = rng.choice(5, size=300_000, p=prior)
    losses = loss[states, channel.sample(states, rng)]
    z = (losses.mean() - channel.expected_loss(prior, loss)) / (losses.std() / math.sqrt(300_000))
    assert abs(z) < 4


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ([0.5, 0.4], "sums to"),
        ([1.5, -0.5], r"prior\[1\]"),
        ([math.nan, 1.0], r"prior\[0\]"),
        ([1.0], "shape"),
        ("ab", "numbers"),
    ],
)
def test_bad_priors_are_refused(prior, message):
    channel = Channel([[0.5, 0.5], [0.5, 0.5]], PAIR)
    with pytest.raises(InvalidDistribution, match=message):
        channel.expected_loss(prior, np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (np.zeros((2, 3)), "shape"),
        ([[0, math.nan], [0, 0]], r"loss\[0, 1\]"),
        ([[0, 0], [math.inf, 0]], r"loss\[1, 0\]"),
        ([["a", "b"], ["c", "d"]], "numbers"),
    ],
)
def test_bad_losses_are_refused(loss, message):
    channel = Channel([[0.5, 0.5], [0.5, 0.5]], PAIR)
    with pytest.raises(InvalidLoss, match=message):
        channel.expected_loss([0.5, 0.5], loss)


def test_product_is_independent_application():
    rng = np.random.default_rng(2)
    first, second = random_channel(rng, 3, 4), random_channel(rng, 2, 5)
    both = first.product(second, 2)
    for x in range(3):
        for z in range(2):
            assert both.matrix[2 * x + z] == pytest.approx(
                np.outer(first.matrix[x], second.matrix[z]).ravel()
            )
    assert both.distances[0, 2 * 2 + 1] == pytest.approx(
        math.hypot(first.distances[0, 2], second.distances[0, 1])
    )


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(2, 9), st.integers(2, 9), st.floats(0.05, 20.0))
def test_repair_meets_the_budget_exactly(seed, states, outputs, epsilon):
    rng = np.random.default_rng(seed)
    matrix = rng.dirichlet(np.full(outputs, 0.2), states)
    matrix[matrix < 0.05] = 0.0
    matrix /= matrix.sum(axis=1, keepdims=True)
    channel = Channel(matrix, euclidean(rng.random((states, 2))))
    repaired = channel.repair(epsilon)
    assert repaired.privacy_level() <= epsilon
    assert repaired.certify(epsilon).holds
    assert repaired.repair(epsilon) is repaired
    assert ((repaired.matrix > 0) == (matrix > 0).any(axis=0)).all()


def test_repairing_the_identity_gives_the_calibrated_exponential_mechanism():
    distances = euclidean(np.arange(12.0) / 3)
    repaired = Channel(np.eye(12), distances).repair(2.0)
    calibrated = exponential_mechanism(distances, 2.0, calibrated=True)
    assert repaired.matrix == pytest.approx(calibrated.matrix, rel=1e-9)


def test_repair_hardly_moves_a_nearly_private_channel():
    """Stray zeros, as a simplex solver leaves them, cost next to nothing."""
    rng = np.random.default_rng(5)
    distances = euclidean(np.arange(30.0))
    sound = exponential_mechanism(distances, 1.0, calibrated=True)
    matrix = np.where(sound.matrix < 1e-8, 0.0, sound.matrix)
    matrix /= matrix.sum(axis=1, keepdims=True)
    broken = Channel(matrix, distances)
    assert broken.privacy_level() == math.inf
    repaired = broken.repair(1.0)
    assert repaired.privacy_level() <= 1.0
    prior, loss = rng.dirichlet(np.ones(30)), distances
    assert repaired.expected_loss(prior, loss) == pytest.approx(
        broken.expected_loss(prior, loss), rel=1e-5
    )


@pytest.mark.parametrize("seed", [527, 1784, 2754])
def test_repair_hardly_moves_a_channel_off_by_rounding_whatever_its_rows(seed):
    """Here the level rises as the exponent of the closure falls from ε: lowering it goes far."""
    rng = np.random.default_rng(seed)
    states = int(rng.integers(3, 9))
    distances = euclidean(rng.random((states, 2)))
    count = int(rng.integers(1, states))
    chosen = rng.choice(states, count, replace=False)
    rays = np.exp(-distances[:, chosen]) * rng.random(count)
    rays /= rays.sum(axis=1).max()
    scale = rng.uniform(0.3, 1)
    while True:  # the last output takes what the rows lack, privately once that is nearly constant
        last = 1 - scale * rays.sum(axis=1)
        if (last > 0).all() and (np.log(last[:, None] / last) - distances).max() <= 0:
            break
        scale *= 0.98
    matrix = np.column_stack([scale * rays, last])
    matrix *= 1 + 1e-10 * rng.standard_normal(matrix.shape)
    channel = Channel(matrix / matrix.sum(axis=1, keepdims=True), distances)
    assert channel.privacy_level() > 1
    repaired = channel.repair(1.0)
    assert repaired.privacy_level() <= 1
    assert repaired.matrix == pytest.approx(channel.matrix, rel=1e-8)


@pytest.mark.parametrize("epsilon", [1e-18, 1e-15, 1e-13, 1e-9])
def test_repair_survives_budgets_at_the_edge_of_rounding(epsilon):
    distances = euclidean(np.random.default_rng(0).random((9, 2)))
    assert Channel(np.eye(9), distances).repair(epsilon).privacy_level() <= epsilon


def test_repair_merges_states_at_distance_zero_and_leaves_far_ones_alone():
    distances = [
        [0, 0, 1, math.inf],
        [0, 0, 1, math.inf],
        [1, 1, 0, math.inf],
        [math.inf] * 3 + [0],
    ]
    repaired = Channel(np.eye(4), distances).repair(1.0)
    assert repaired.privacy_level() <= 1.0
    assert (repaired.matrix[0] == repaired.matrix[1]).all()
    assert repaired.matrix[3].tolist() == [0, 0, 0, 1]
    assert repaired.matrix[2, 3] == 0


def test_repair_with_distances_that_break_the_triangle_inequality():
    distances = np.array([[0, 1, 5.0], [1, 0, 1], [5, 1, 0]])
    repaired = Channel(np.eye(3), distances).repair(1.5)
    assert repaired.privacy_level() <= 1.5
    assert privacy_level(repaired.matrix, [[0, 1, 2], [1, 0, 1], [2, 1, 0]]) <= 1.5


def test_certify_refuses_and_bad_budgets_are_named():
    channel = Channel([[0.9, 0.1], [0.1, 0.9]], PAIR)
    assert channel.certify(2.2).level == channel.privacy_level() == pytest.approx(math.log(9))
    assert not channel.certificate(2.1).holds
    with pytest.raises(CertificationError, match="FAILS"):
        channel.certify(2.1)
    for call in (channel.certify, channel.certificate, channel.repair):
        with pytest.raises(InvalidBudget, match="epsilon"):
            call(-1.0)
