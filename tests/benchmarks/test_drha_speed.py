"""Speed and memory of the drha core, as ratios against plainer routes in the same run."""

import math
import time
import tracemalloc

import numpy as np
import pandas as pd
import pytest

import drha

CELLS, LEVELS = 1_000_000, 8


@pytest.fixture(scope="module")
def counts():
    """Small cells mostly, as cross-tabulated quasi-identifiers have them, and a few large."""
    rng = np.random.default_rng(11)
    means = rng.gamma(0.4, 4.0, (CELLS, 1)) * rng.dirichlet(np.full(LEVELS, 0.5), CELLS)
    return rng.poisson(means)


def seconds(call, rounds=3):
    """Shortest of a few runs."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def literal_risk(counts, noise):
    """The formula as it reads: for each level, the product over all others."""
    u = noise.vanishing(counts)
    risk = np.zeros(len(counts))
    for k in range(counts.shape[1]):
        others = np.prod(np.delete(u, k, axis=1), axis=1)
        risk += np.where(counts[:, k] > 0, (1.0 - u[:, k]) * others, 0.0)
    return risk


@pytest.mark.parametrize("kind", ["exact", "refined"])
@pytest.mark.parametrize(
    "noise",
    [
        drha.laplace(0.5),
        drha.gaussian(1.0, delta=1e-5),
        drha.geometric(0.5),
        drha.discrete_gaussian(1.0, delta=1e-5),
    ],
    ids=["laplace", "gaussian", "geometric", "discrete gaussian"],
)
def test_local_risk_of_a_million_cells(benchmark, counts, noise, kind):
    benchmark.pedantic(drha.local_risk, (counts, noise, kind), rounds=3, warmup_rounds=1)
    benchmark.extra_info["cells_per_second"] = CELLS / benchmark.stats["min"]


def test_local_risk_against_the_literal_formula_and_simulation(benchmark, counts):
    noise = drha.laplace(0.5)
    risk = benchmark.pedantic(drha.local_risk, (counts, noise), rounds=3, warmup_rounds=1)
    ours = benchmark.stats["min"] / CELLS
    part = counts[:100_000]
    np.testing.assert_allclose(risk[: len(part)], literal_risk(part, noise), rtol=1e-12)
    literal = seconds(lambda: literal_risk(part, noise)) / len(part)

    draws, rng = 100, np.random.default_rng(12)
    few = counts[:2000]

    def simulate():
        hits = np.zeros(len(few))
        for _ in range(draws):
            survives = noise.release(few, rng) > 0
            hits += (survives.sum(axis=1) == 1) & (survives & (few > 0)).any(axis=1)
        return hits / draws

    estimate, exact = simulate(), risk[: len(few)]
    error = math.sqrt((exact * (1 - exact)).sum() / draws)
    assert abs(estimate.sum() - exact.sum()) < 4 * error
    a_draw = seconds(simulate) / (draws * len(few))
    needed = (exact * (1 - exact)).mean() / 5e-4**2  # draws per cell for standard error 5e-4
    benchmark.extra_info.update(
        cells_per_second=1 / ours,
        literal_over_ours=literal / ours,
        simulation_over_ours_at_standard_error_5e_4=needed * a_draw / ours,
    )
    assert literal / ours > 3
    assert needed * a_draw / ours > 10_000


def test_scenarios_of_a_million_cells(benchmark, counts):
    probabilities = benchmark.pedantic(
        drha.scenario_probabilities, (counts, drha.laplace(0.5)), rounds=3, warmup_rounds=1
    )
    benchmark.extra_info["cells_per_second"] = CELLS / benchmark.stats["min"]
    np.testing.assert_allclose(probabilities.sum(axis=1), counts.any(axis=1), atol=1e-14)


def test_memory_beyond_the_result_does_not_grow_with_the_cells(benchmark, counts):
    noise = drha.laplace(0.5)

    def extra(cells):
        tracemalloc.start()
        risk = drha.local_risk(counts[:cells], noise)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak - risk.nbytes

    drha.local_risk(counts[:10], noise)
    small, large = benchmark.pedantic(lambda: (extra(CELLS // 10), extra(CELLS)), rounds=1)
    benchmark.extra_info.update(bytes_for_a_tenth=small, bytes_for_all=large)
    assert large < 1.2 * small + 2**20
    assert large < counts.nbytes / 8


def test_table_from_frame_against_pandas_groupby(benchmark):
    rng = np.random.default_rng(13)
    rows, sizes = 2_000_000, {"age": 90, "area": 400, "sex": 2, "work": 12, "born": 60}
    frame = pd.DataFrame({name: rng.integers(0, size, rows) for name, size in sizes.items()})
    frame["work"] = frame["work"].map("occupation {}".format)
    frame["ill"] = rng.integers(0, 6, rows)
    build = drha.FrequencyTable.from_frame
    table = benchmark.pedantic(build, (frame, list(sizes), "ill"), rounds=2, warmup_rounds=1)

    def reference():
        return frame.groupby([*sizes, "ill"]).size()

    assert table.n_records == int(reference().sum())
    grouped = seconds(reference, rounds=2)
    benchmark.extra_info.update(
        rows_per_second=rows / benchmark.stats["min"],
        cells=table.n_cells,
        groupby_over_ours=grouped / benchmark.stats["min"],
    )
    assert grouped / benchmark.stats["min"] > 0.5
