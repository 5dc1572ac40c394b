"""Speed of the measures at national size, as ratios against simulation and plainer routes."""

import math
import time
import tracemalloc

import numpy as np
import pytest
from scipy import stats

import drha

CELLS, LEVELS = 1_000_000, 10
EPSILONS = np.geomspace(0.01, 10, 50)


def seconds(call, rounds=3):
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.fixture(scope="module")
def counts():
    """Small cells mostly, as cross-tabulated quasi-identifiers have them."""
    rng = np.random.default_rng(11)
    means = rng.gamma(0.4, 4.0, (CELLS, 1)) * rng.dirichlet(np.full(LEVELS, 0.5), CELLS)
    cells = rng.poisson(means).astype(np.int32)
    cells[:, 0] += ~cells.any(axis=1)
    return cells


def test_local_risk_of_a_million_cells_at_fifty_budgets(benchmark, counts):
    """Averages of one million cells for 50 values of epsilon, against simulating them as well."""

    def every_budget():
        return [drha.local_risk(counts, drha.laplace(e)).mean() for e in EPSILONS]

    averages = benchmark.pedantic(every_budget, rounds=1, warmup_rounds=0)
    ours = benchmark.stats["min"]

    tracemalloc.start()
    drha.local_risk(counts, drha.laplace(0.5))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    # To the same standard error: what the exact average leaves is rounding, 1e-13 at most, so
    # simulation is given the generous target 5e-4 for each cell.
    few, draws, rng = counts[:2000], 100, np.random.default_rng(12)
    noise = drha.laplace(float(EPSILONS[25]))

    def simulate():
        hits = np.zeros(len(few))
        for _ in range(draws):
            survives = noise.release(few, rng) > 0
            hits += (survives.sum(axis=1) == 1) & (survives & (few > 0)).any(axis=1)
        return hits / draws

    exact = drha.local_risk(few, noise)
    error = math.sqrt((exact * (1 - exact)).sum() / draws)
    assert abs(simulate().sum() - exact.sum()) < 4 * error
    a_draw = seconds(simulate) / (draws * len(few))
    needed = (exact * (1 - exact)).mean() / 5e-4**2
    ratio = needed * a_draw / (ours / (CELLS * len(EPSILONS)))
    benchmark.extra_info.update(
        seconds=ours,
        peak_bytes_beyond_counts=peak,
        counts_bytes=counts.nbytes,
        simulation_over_ours_at_standard_error_5e_4=ratio,
    )
    assert all(0 < average < 1 for average in averages)
    assert peak + counts.nbytes < 2**30
    assert ratio > 10_000


@pytest.mark.parametrize("model", ["multinomial", "dirichlet-multinomial"])
def test_averaged_risk_of_all_sizes_up_to_2000(benchmark, model):
    """Twenty levels; against the recurrence written with numpy and scipy's probabilities."""
    levels, largest, noise = 20, 2000, drha.laplace(0.5)
    n = np.arange(1, largest + 1)
    p = np.arange(1, levels + 1) / (levels * (levels + 1) / 2)
    measure = drha.expected_risk if model == "multinomial" else drha.shrinkage_risk
    parameters = p if model == "multinomial" else levels * p

    risk = benchmark.pedantic(measure, (n, parameters, noise), rounds=3, warmup_rounds=1)

    def plain(size):
        c = np.arange(size + 1)
        u, s = noise.vanishing(c), noise.survival(c) * (c > 0)
        none, one, before = u.copy(), s.copy(), parameters[0]
        for share in parameters[1:]:
            new_none, new_one = np.empty(size + 1), np.empty(size + 1)
            for m in range(size + 1):
                k = c[: m + 1]
                if model == "multinomial":
                    w = stats.binom.pmf(k, m, share / (share + before))
                else:
                    w = stats.betabinom.pmf(k, m, share, before)
                new_none[m] = w @ (u[k] * none[m::-1])
                new_one[m] = w @ (u[k] * one[m::-1] + s[k] * none[m::-1])
            none, one, before = new_none, new_one, before + share
        return one[-1]

    short = 60
    assert plain(short) == pytest.approx(risk[short - 1], rel=1e-9)
    slow = seconds(lambda: plain(short), rounds=1) * (largest / short) ** 2
    tracemalloc.start()
    measure(n, parameters, noise)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    benchmark.extra_info.update(
        plain_over_ours=slow / benchmark.stats["min"],
        peak_bytes=peak,
        bytes_per_size=peak / largest,
    )
    assert peak < 500 * largest  # linear: a few dozen arrays of this length
    assert slow / benchmark.stats["min"] > 10


def test_number_of_disclosed_cells_against_scipy(benchmark):
    risk = np.random.default_rng(3).beta(0.3, 2.0, 1000)
    pmf = benchmark.pedantic(lambda: drha.DisclosedCells(risk).pmf, rounds=5, warmup_rounds=1)
    ours = benchmark.stats["min"]
    k = np.arange(len(risk) + 1)
    np.testing.assert_allclose(pmf, stats.poisson_binom(risk).pmf(k), rtol=1e-8, atol=1e-15)
    slow = seconds(lambda: stats.poisson_binom(risk).pmf(k))
    many = np.random.default_rng(4).beta(0.3, 2.0, CELLS)
    benchmark.extra_info.update(
        scipy_over_ours=slow / ours,
        seconds_for_a_million_cells=seconds(lambda: drha.DisclosedCells(many).pmf, rounds=1),
    )
    assert slow / ours > 5


def test_marginal_risk_of_cells_with_their_own_probabilities(benchmark):
    """Negative binomial sizes with a long tail: quadrature against the sum over sizes."""
    rng = np.random.default_rng(5)
    sizes, noise = drha.negative_binomial(0.2, 0.02), drha.laplace(0.5)
    p = rng.dirichlet(np.full(5, 0.5), 2000)
    risk = benchmark.pedantic(drha.marginal_risk, (sizes, p, noise), rounds=3, warmup_rounds=1)
    n = np.arange(1, sizes.largest() + 1)

    def by_sum():
        return drha.expected_risk(n, p[0], noise) @ sizes.truncated_pmf(n)

    assert by_sum() == pytest.approx(risk[0], rel=1e-11)
    ratio = seconds(by_sum) * len(p) / benchmark.stats["min"]
    benchmark.extra_info["sum_over_ours"] = ratio
    assert ratio > 10
