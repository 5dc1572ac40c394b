"""The reproduction table: every printed number once, and verdicts by the rule alone."""

import csv

import numpy as np
import pandas as pd
import pytest

from book import reproduction as rep
from book.experiments.table1 import TABLE_ONE
from book.published import TABLES
from book.sources import SOURCES, table_one


@pytest.fixture(scope="module")
def everything():
    return rep.reproduction(SOURCES)


@pytest.mark.parametrize("table", rep.tables())
def test_every_printed_number_has_exactly_one_row(table, everything):
    """By the csv module, cell by cell."""
    lines = [
        line
        for line in (TABLES / f"{table}.csv").read_text().splitlines()
        if not line.startswith("#")
    ]
    rows = everything[everything["table"] == table]
    cells = 0
    for record in csv.DictReader(lines):
        keys = {k: v for k, v in record.items() if k in rep.KEYS}
        for name, text in record.items():
            if name in rep.KEYS or text == "":
                continue
            cells += 1
            match = rows["quantity"] == name
            for key, value in keys.items():
                match &= rows[key] == (float(value) if key == "epsilon" else value)
            assert match.sum() == 1, (record, name)
            assert rows.loc[match, "published"].item() == float(text)
    assert cells == len(rows) > 0


def test_no_two_rows_are_the_same_number(everything):
    keys = ["table", *(k for k in rep.KEYS if k in everything), "quantity"]
    assert not everything.duplicated(subset=keys).any()
    assert set(everything["verdict"]) <= set(rep.VERDICTS)


def test_sources_are_of_printed_tables_and_their_chapters_exist(everything):
    assert set(SOURCES) <= set(rep.tables())
    for source in SOURCES.values():
        for chapter in source.chapters:
            assert (TABLES.parent.parent / "notebooks" / f"{chapter}.md").exists()
    assert everything.groupby("table")["ours"].count()[list(SOURCES)].min() > 0


def test_the_last_digit_is_read_off_the_text():
    assert rep._half_unit("19.84") == pytest.approx(0.005)
    assert rep._half_unit("13") == 0.5
    assert rep._half_unit("-5.84e-1") == pytest.approx(5e-4)


BASE = {"published": 10.0, "rounding": 0.05, "ours": 10.0, "error": np.nan}
BASE |= {"bound": np.nan, "bound_error": np.nan, "reading": False}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "reproduced"),
        ({"reading": True}, "reproduced under a stated reading"),
        ({"ours": 10.54}, "reproduced"),
        ({"ours": 10.56}, "not reproducible"),
        ({"ours": 9.44}, "not reproducible"),
        ({"ours": 11.0, "error": 0.5}, "reproduced"),
        ({"ours": 11.0, "error": 0.4}, "not reproducible"),
        ({"ours": 14.9, "error": 30.0}, "reproduced"),
        ({"ours": 15.2, "error": 30.0}, "not reproducible"),
        ({"ours": np.nan}, "not recomputed"),
        ({"bound": 10.1}, "infeasible as stated"),
        ({"bound": 10.04}, "reproduced"),
        ({"bound": 10.1, "bound_error": 0.02}, "reproduced"),
        ({"bound": 10.2, "bound_error": 0.02, "ours": 30.0}, "infeasible as stated"),
        ({"published": 0.0, "rounding": 0.0, "bound": 1e-9}, "infeasible as stated"),
        ({"published": 0.0, "rounding": 0.0, "ours": 0.0}, "reproduced"),
    ],
)
def test_verdicts_follow_the_rule(change, expected):
    assert rep.verdict(BASE | change) == expected


def test_a_value_for_what_is_not_printed_is_refused():
    def invented():
        return pd.DataFrame(
            [{"case": "IV", "method": "SPL+DPN", "epsilon": 1.0, "quantity": "loss", "ours": 1.0}]
        )

    source = rep.Source(invented, ("case_frequency_estimation",))
    with pytest.raises(ValueError, match="not printed"):
        rep.reproduction({"table1": source})


def test_table_one_is_what_its_experiment_says():
    """One number by hand: the mean of the kept rows, and the error of the difference."""
    kept = TABLE_ONE.results().query("case == 'II' and method == 'SPL+RMP' and epsilon == 4")
    row = table_one().query(
        "case == 'II' and method == 'SPL+RMP' and epsilon == 4 and quantity == 'loss'"
    )
    assert row["ours"].item() == pytest.approx(kept["loss"].mean())
    printed = rep.printed("table1").query(
        "case == 'II' and method == 'SPL+RMP' and epsilon == 4 and quantity == 'halfwidth'"
    )
    variance = kept["loss"].var(ddof=1) / len(kept)
    variance += (printed["published"].item() / 1.96) ** 2 / 10
    assert row["error"].item() == pytest.approx(np.sqrt(variance))
