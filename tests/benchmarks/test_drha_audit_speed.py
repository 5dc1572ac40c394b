"""Speed and memory of the audit: ten million records into a table, and Adult audited whole."""

import resource
import time

import numpy as np
import pandas as pd
import pytest

import drha
from drha.calibrate import MECHANISMS, PURE, resolve_mechanism

QUASI_IDENTIFIERS = {"age": 90, "area": 400, "sex": 2, "work": 12, "born": 60}


@pytest.fixture(scope="module")
def records():
    """Ten million people: where they live, work and were born depends on each other."""
    rng = np.random.default_rng(51)
    rows = 10_000_000
    kind = rng.integers(0, 50_000, rows)  # people of one kind share all but age and sex
    traits = {name: rng.integers(0, size, 50_000) for name, size in QUASI_IDENTIFIERS.items()}
    frame = pd.DataFrame({name: values[kind] for name, values in traits.items()})
    frame["age"] = rng.integers(0, 90, rows)
    frame["sex"] = rng.integers(0, 2, rows)
    frame["work"] = frame["work"].map("occupation {}".format)
    frame["ill"] = rng.integers(0, 6, rows)
    return frame


def seconds(call):
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def test_ten_million_records_against_pandas(benchmark, records):
    names = list(QUASI_IDENTIFIERS)
    table = benchmark.pedantic(
        drha.FrequencyTable.from_frame, (records, names, "ill"), rounds=1, warmup_rounds=0
    )
    ours = benchmark.stats["min"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    grouped, counts = seconds(lambda: records.groupby([*names, "ill"]).size())
    assert (table.counts > 0).sum() == len(counts)
    assert table.n_records == counts.sum()
    part = records.iloc[:1_000_000]
    crossed, _ = seconds(lambda: pd.crosstab([part[name] for name in names], part["ill"]))
    benchmark.extra_info.update(
        seconds=ours,
        cells=table.n_cells,
        groupby_over_ours=grouped / ours,
        crosstab_of_a_tenth_over_ours=crossed / ours,
        peak_bytes_of_the_process=peak,
        bytes_of_the_frame=int(records.memory_usage(deep=True).sum()),
    )
    assert grouped / ours > 0.5
    assert crossed * 10 / ours > 1.0


def test_audit_of_adult_with_five_mechanisms_and_forty_epsilons(benchmark):
    datasets = pytest.importorskip("dephdp.datasets")
    adult = datasets.load_adult()
    adult["band"] = pd.cut(adult["age"], [16, 24, 34, 44, 54, 64, 120]).astype(str)
    identifiers = ["band", "sex", "race", "education", "native_country"]
    mechanisms = [name for name in MECHANISMS if name != "gaussian-classical"]
    kind = {"mechanisms": mechanisms, "delta": 1e-5, "missing": "drop"}
    result = benchmark.pedantic(
        lambda: drha.audit(adult, identifiers, "income", **kind), rounds=3, warmup_rounds=1
    )
    ours = benchmark.stats["min"]
    table = result.table()

    def all_cells():
        """The same risks, cell by cell instead of shape by shape, calibrated afresh."""
        for name in mechanisms:
            build = resolve_mechanism(name, None if name in PURE else 1e-5)[1]
            for epsilon in result.epsilons:
                noise = build(epsilon)
                drha.table_risk(table, noise).average()
                drha.mean_absolute_error(table.counts, noise)

    literal, _ = seconds(all_cells)
    written, page = seconds(result.to_html)
    benchmark.extra_info.update(
        seconds=ours,
        cell_by_cell_over_ours=literal / ours,
        seconds_to_write_the_report=written,
        bytes_of_the_report=len(page),
    )
    assert len(result.risks) == 200
    assert literal / ours > 0.5


def test_choosing_epsilon_for_half_a_million_cells(benchmark):
    rng = np.random.default_rng(52)
    means = rng.gamma(0.4, 4.0, (1_000_000, 1)) * rng.dirichlet(np.full(8, 0.5), 1_000_000)
    counts = rng.poisson(means)
    counts = counts[counts.any(axis=1)]
    choice = benchmark.pedantic(
        lambda: drha.choose_epsilon(drha.FrequencyTable.from_counts(counts), 0.1), rounds=2
    )
    ours = benchmark.stats["min"]
    once, _ = seconds(lambda: drha.local_risk(counts, drha.laplace(1.0)).mean())
    benchmark.extra_info.update(
        seconds=ours,
        cells=len(counts),
        evaluations=len(choice.epsilons),
        grid_on_all_cells_over_ours=once * len(choice.epsilons) / ours,
    )
    assert choice.proven > 0
    assert once * len(choice.epsilons) / ours > 2
