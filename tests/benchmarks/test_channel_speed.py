import math
import tracemalloc

import numpy as np
import pytest
from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Client

from dephdp import exponential_mechanism, privacy_level, product_privacy_level


@pytest.fixture(scope="module")
def three_hundred():
    points = np.random.default_rng(0).random((300, 3))
    distances = np.sqrt(((points[:, None] - points[None, :]) ** 2).sum(axis=-1))
    return exponential_mechanism(distances, 1.0)


def test_sampling_sixteen_states(race):
    """Any channel against randomised response alone, and against vectorised row inversion."""
    rng = np.random.default_rng(0)
    channel = exponential_mechanism(1.0 - np.eye(16), 1.0, calibrated=True)
    states = rng.integers(16, size=4_000_000)
    few = states[:200_000]
    values = few.tolist()
    cumulative = np.cumsum(channel.matrix, axis=1)

    def invert_rows():
        return (cumulative[few] <= rng.random((len(few), 1))).sum(axis=1)

    ratios = race(
        "sampling reports, 16 states",
        lambda: channel.sample(states, rng),
        {
            "multi-freq-ldpy GRR_Client": (
                lambda: [GRR_Client(value, 16, 1.0) for value in values],
                len(few),
            ),
            "numpy, inverting rows": (invert_rows, len(few)),
        },
        work=len(states),
    )
    assert ratios["multi-freq-ldpy GRR_Client"] > 8
    assert ratios["numpy, inverting rows"] > 1.5


def test_privacy_level_of_300_states(race, three_hundred):
    matrix, distances = three_hundred.matrix, three_hundred.distances

    def by_rows():
        logs, level = np.log(matrix), 0.0
        for x in range(len(matrix)):
            ratios = (logs[x] - logs).max(axis=1)
            apart = distances[x] > 0
            level = max(level, (ratios[apart] / distances[x, apart]).max())
        return level

    assert privacy_level(matrix, distances) == pytest.approx(by_rows(), rel=1e-12)
    ratios = race(
        "privacy level, 300 x 300",
        lambda: privacy_level(matrix, distances),
        {"numpy, row by row": (by_rows, 1)},
    )
    assert ratios["numpy, row by row"] > 1.5


def test_product_level_of_six_groups(race, three_hundred):
    """27 million million million records; the peer is one group's level, six times over."""
    channels = [three_hundred] * 6

    def levels():
        return [privacy_level(c.matrix, c.distances) for c in channels]

    ratios = race(
        "exact level of a product, 6 groups of 300 states",
        lambda: product_privacy_level(channels, 2),
        {"the six levels alone": (levels, 1)},
    )
    assert ratios["the six levels alone"] > 0.2


def test_memory_stays_quadratic(benchmark, three_hundred):
    """Peak of one evaluation, in multiples of an n × n array of doubles."""

    def peak(n):
        matrix = three_hundred.matrix[:n, :n] / three_hundred.matrix[:n, :n].sum(1, keepdims=True)
        distances = three_hundred.distances[:n, :n]
        tracemalloc.start()
        privacy_level(matrix, distances)
        bytes_ = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return bytes_ / (8 * n * n)

    privacy_level(three_hundred.matrix, three_hundred.distances)
    small, large = peak(75), benchmark.pedantic(peak, (300,))
    benchmark.extra_info["peak, n x n arrays"] = large
    assert large < 8
    assert large < 1.2 * small + 1
    assert not math.isnan(large)
