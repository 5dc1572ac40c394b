"""The tables that take long: resumed, ordered, and checked row by row."""

import numpy as np
import pandas as pd
import pytest

from book.experiments import experiment
from book.experiments.__main__ import experiments
from book.experiments.experiment import Experiment, ResultMismatch


def squares(seed, power):
    draws = np.random.default_rng(seed).random(3)
    return [
        {"k": k, "kind": "odd" if k % 2 else "even", "value": draws[k] ** power} for k in (0, 1, 2)
    ]


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "RESULTS", tmp_path)
    units = [{"seed": seed, "power": power} for seed in range(3) for power in (1, 0.5)]
    return Experiment("squares", units, squares)


def test_a_run_computes_every_unit_in_order_and_says_how(table):
    table.run(jobs=1)
    kept = table.table()
    assert len(kept) == 18 and list(kept["seed"]) == sorted(kept["seed"])
    assert kept["versions"].str.contains("numpy").all() and (kept["seconds"] >= 0).all()
    expected = pd.DataFrame([{**u, **row} for u in table.units for row in squares(**u)])
    pd.testing.assert_frame_equal(table.results(), expected)


def test_a_run_resumes_where_it_stopped(table):
    table.run(jobs=1)
    whole = table.results()
    kept = table.table()
    kept[kept["seed"] != 1].to_csv(table.path, index=False)
    assert table.missing() == [{"seed": 1, "power": 1}, {"seed": 1, "power": 0.5}]
    with pytest.raises(ValueError, match=r"lacks 2 of 6 units.*make experiments"):
        table.results()
    table.run(jobs=1)
    pd.testing.assert_frame_equal(table.results(), whole)


def test_a_recheck_compares_numbers_and_words(table):
    table.run(jobs=1)
    report = table.recheck(np.random.default_rng(0), count=4)
    assert len(report) == 4 and (report["largest difference"] == 0).all()
    assert (report["numbers"] == 6).all()
    for column, change in (("value", lambda v: v * (1 + 1e-4)), ("kind", lambda v: v + "!")):
        kept = table.table()
        kept[column] = change(kept[column])
        kept.to_csv(table.path, index=False)
        with pytest.raises(ResultMismatch, match=column):
            table.recheck(np.random.default_rng(0), count=1)
        table.path.unlink()
        table.run(jobs=1)


def test_only_quick_units_are_computed_again(table):
    table.run(jobs=1)
    kept = table.table().assign(seconds=9.0)
    kept.to_csv(table.path, index=False)
    with pytest.raises(ValueError, match="took at most 5 s"):
        table.recheck(np.random.default_rng(0))


def test_every_table_is_complete():
    assert {name: table.missing() for name, table in experiments().items() if table.missing()} == {}
