"""Frequency tables against pandas' own cross-tabulation, and everything they must refuse."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import drha
from drha import FrequencyTable
from drha.table import _tally


@pytest.fixture
def people():
    return pd.DataFrame(
        {
            "age": ["30s", "30s", "40s", "30s", "40s", "40s"],
            "zip": [7, 7, 7, 8, 7, 9],
            "ill": ["no", "yes", "no", "no", "no", "yes"],
        },
        index=list("abcdef"),
    )


rows = st.lists(
    st.tuples(st.sampled_from("xyz"), st.integers(-2, 2), st.booleans(), st.sampled_from("abc")),
    min_size=1,
    max_size=60,
)


@settings(max_examples=50, deadline=None)
@given(rows)
def test_counts_equal_pandas_crosstab(rows):
    frame = pd.DataFrame(rows, columns=["q1", "q2", "q3", "s"])
    table = FrequencyTable.from_frame(frame, ["q1", "q2", "q3"], "s")
    expected = pd.crosstab([frame["q1"], frame["q2"], frame["q3"]], frame["s"])
    pd.testing.assert_frame_equal(table.to_frame(), expected, check_names=True)
    assert table.n_records == len(frame)
    assert table.n_cells == len(table) == len(expected)
    np.testing.assert_array_equal(table.sizes, expected.sum(axis=1))
    np.testing.assert_array_equal(table.support_sizes, (expected > 0).sum(axis=1))
    np.testing.assert_array_equal(table.homogeneous, (expected > 0).sum(axis=1) == 1)


def test_a_small_table_in_full(people):
    table = FrequencyTable.from_frame(people, ["age", "zip"], "ill")
    np.testing.assert_array_equal(table.counts, [[1, 1], [1, 0], [2, 0], [0, 1]])
    assert table.levels == ("no", "yes")
    assert table.quasi_identifiers == ("age", "zip")
    assert table.labels["age"].tolist() == ["30s", "30s", "40s", "40s"]
    assert table.labels["zip"].tolist() == [7, 8, 7, 9]
    assert table.sizes.tolist() == [2, 1, 2, 1]
    assert table.homogeneous.tolist() == [False, True, True, True]
    assert repr(table) == (
        "FrequencyTable(4 cells x 2 levels of 'ill', 6 records, 3 homogeneous cells)"
    )


def test_levels_that_never_occur_are_kept_and_change_the_risk(people):
    noise = drha.laplace(0.5)
    observed = FrequencyTable.from_frame(people, ["age"], "ill")
    declared = FrequencyTable.from_frame(people, ["age"], "ill", levels=["yes", "unknown", "no"])
    assert declared.levels == ("yes", "unknown", "no")
    np.testing.assert_array_equal(declared.counts[:, [2, 0]], observed.counts)
    assert (declared.counts[:, 1] == 0).all()
    assert (drha.local_risk(declared, noise) < drha.local_risk(observed, noise)).all()
    people["ill"] = pd.Categorical(people["ill"], ["yes", "unknown", "no"])
    by_category = FrequencyTable.from_frame(people, ["age"], "ill")
    assert by_category.levels == declared.levels
    np.testing.assert_array_equal(by_category.counts, declared.counts)


def test_categories_order_cells_and_unused_ones_form_none(people):
    people["age"] = pd.Categorical(people["age"], ["50s", "40s", "30s"], ordered=True)
    table = FrequencyTable.from_frame(people, ["age"], "ill")
    assert table.labels["age"].tolist() == ["40s", "30s"]
    np.testing.assert_array_equal(table.counts, [[2, 1], [2, 1]])


def test_a_frame_whose_quasi_identifiers_single_out_everyone():
    frame = pd.DataFrame({"id": np.arange(1000), "s": np.arange(1000) % 3})
    table = FrequencyTable.from_frame(frame, ["id"], "s")
    assert table.n_cells == 1000
    assert table.homogeneous.all()
    assert (table.sizes == 1).all()


def test_many_wide_columns_neither_overflow_nor_materialise_empty_cells():
    """Forty columns of fifty values span 10^68 cells; only the rows' own are formed."""
    rng = np.random.default_rng(2)
    base = rng.integers(0, 50, (300, 40))
    frame = pd.DataFrame(base[rng.integers(0, 300, 5000)], columns=[f"q{i}" for i in range(40)])
    frame["s"] = rng.integers(0, 4, 5000)
    table = FrequencyTable.from_frame(frame, list(frame.columns[:-1]), "s")
    expected = frame.groupby(list(frame.columns[:-1]))["s"].value_counts().unstack(fill_value=0)
    np.testing.assert_array_equal(table.counts, expected)
    assert [tuple(row) for row in zip(*table.labels.values(), strict=True)] == list(expected.index)
    codes, size = np.array([0, 1, 1, 2]), np.iinfo(np.int64).max // 2
    (first, second), number = _tally([codes, codes[::-1]], [size, size])
    assert (first.tolist(), second.tolist()) == ([0, 1, 2], [2, 1, 0])
    assert number.tolist() == [1, 2, 1]


def test_other_kinds_of_column(people):
    people["when"] = pd.to_datetime(["2020-01-01", "2021-01-01"] * 3)
    people["band"] = pd.cut([1, 5, 9, 1, 5, 9], [0, 4, 10])
    table = FrequencyTable.from_frame(people, ("band",), "when")
    assert table.levels == (pd.Timestamp("2020-01-01"), pd.Timestamp("2021-01-01"))
    assert table.labels["band"].tolist() == [pd.Interval(0, 4), pd.Interval(4, 10)]
    np.testing.assert_array_equal(table.counts, [[1, 1], [2, 2]])
    again = FrequencyTable.from_frame(people, people.columns[:1], "when", levels=table.levels[::-1])
    np.testing.assert_array_equal(again.counts, [[2, 1], [1, 2]])


def test_from_counts_and_use_as_an_array():
    counts = np.array([[3, 0], [2, 1]])
    table = FrequencyTable.from_counts(counts, levels=["no", "yes"])
    counts[0, 0] = 99
    assert table.counts[0, 0] == 3
    np.testing.assert_array_equal(np.asarray(table), [[3, 0], [2, 1]])
    assert np.asarray(table, dtype=float).dtype == float
    with pytest.raises(ValueError, match="read-only"):
        table.counts[0, 0] = 1
    assert table.labels["cell"].tolist() == [0, 1]
    noise = drha.geometric(1.0)
    np.testing.assert_array_equal(
        drha.local_risk(table, noise), drha.local_risk(table.counts, noise)
    )
    floats = FrequencyTable.from_counts([[3.0, 0.0]])
    assert floats.counts.dtype == np.int64
    assert floats.levels == (0, 1)


@pytest.mark.parametrize(
    ("counts", "error", "message"),
    [
        ([[1, -2]], drha.InvalidCounts, "count -2 at cell 0, level 1"),
        ([[1, 2], [1.5, 2]], drha.InvalidCounts, "count 1.5 at cell 1, level 0"),
        ([[1, math.nan]], drha.InvalidCounts, "count nan at cell 0, level 1"),
        ([1, 2], drha.InvalidCounts, r"shape \(2,\)"),
        (np.zeros((0, 2), dtype=int), drha.InvalidCounts, "both positive"),
        ([[1, 2], [0, 0], [0, 0]], drha.InvalidTable, r"cell 1 has no records \(2 such cells\)"),
    ],
)
def test_bad_counts_are_refused(counts, error, message):
    with pytest.raises(error, match=message):
        FrequencyTable.from_counts(counts)


@pytest.mark.parametrize(
    ("levels", "message"),
    [("ab", "must be a list"), (["a"], "1 levels are named"), (["a", "a"], "'a' is named twice")],
)
def test_bad_levels_are_refused(levels, message):
    with pytest.raises(drha.InvalidTable, match=message):
        FrequencyTable.from_counts([[1, 2]], levels=levels)


@pytest.mark.parametrize(
    ("quasi_identifiers", "sensitive", "error", "message"),
    [
        (["age", "ill"], "ill", drha.InvalidTable, "'ill' is both"),
        (["age", "age"], "ill", drha.InvalidTable, "'age' is named twice"),
        ([], "ill", drha.InvalidTable, "at least one column"),
        ("age", "ill", drha.InvalidTable, "list of column names"),
        (3, "ill", drha.InvalidTable, "list of column names"),
        (["age"], ["ill"], drha.InvalidTable, "one column name"),
        (["age", "height"], "ill", drha.InvalidFrame, "'height' is not in the frame"),
        (["age"], "illness", drha.InvalidFrame, "'illness' is not in the frame"),
    ],
)
def test_bad_roles_are_refused(people, quasi_identifiers, sensitive, error, message):
    with pytest.raises(error, match=message):
        FrequencyTable.from_frame(people, quasi_identifiers, sensitive)


@pytest.mark.parametrize("column", ["zip", "ill"])
@pytest.mark.parametrize("categorical", [False, True])
def test_missing_values_are_refused_with_their_place(people, column, categorical):
    people[column] = people[column].astype(object)
    people.loc["d", column] = None
    people.loc["e", column] = math.nan
    if categorical:
        people[column] = people[column].astype("category")
    with pytest.raises(drha.InvalidFrame, match=rf"'{column}' .* row 3 \(index 'd'\), 2 in all"):
        FrequencyTable.from_frame(people, ["zip"], "ill")


def test_missing_values_in_unused_columns_do_not_matter(people):
    people["note"] = None
    assert FrequencyTable.from_frame(people, ["zip"], "ill").n_records == 6


def test_bad_frames_are_refused(people):
    twice = pd.concat([people, people["age"]], axis=1)
    with pytest.raises(drha.InvalidFrame, match="'age' occurs more than once"):
        FrequencyTable.from_frame(twice, ["zip"], "ill")
    with pytest.raises(drha.InvalidFrame, match="no rows"):
        FrequencyTable.from_frame(people.iloc[:0], ["zip"], "ill")
    with pytest.raises(drha.InvalidFrame, match="DataFrame"):
        FrequencyTable.from_frame({"zip": [1], "ill": [2]}, ["zip"], "ill")
    headers = people.set_axis(pd.MultiIndex.from_product([["x"], people.columns]), axis=1)
    with pytest.raises(drha.InvalidFrame, match="header"):
        FrequencyTable.from_frame(headers, ["zip"], "ill")
    people["zip"] = [[1], [2], [3], [4], [5], [6]]
    with pytest.raises(drha.InvalidFrame, match="'zip' cannot be sorted or hashed"):
        FrequencyTable.from_frame(people, ["zip"], "ill")


def test_values_outside_the_declared_levels_are_refused(people):
    with pytest.raises(drha.InvalidTable, match=r"has 'yes' in row 1 \(index 'b'\)"):
        FrequencyTable.from_frame(people, ["zip"], "ill", levels=["no", "unknown"])
    with pytest.raises(drha.InvalidTable, match="'no' is named twice"):
        FrequencyTable.from_frame(people, ["zip"], "ill", levels=["no", "yes", "no"])
