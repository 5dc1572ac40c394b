"""Groups of attributes: states, look-up, priors, distances."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dephdp import Attribute, Domain, distance_matrix
from dephdp.errors import (
    InvalidDistribution,
    InvalidDomain,
    InvalidGroup,
    InvalidLoss,
    InvalidMetric,
)
from dephdp.group import Group, GroupProfile, RowIndex

DOMAIN = Domain(
    [
        Attribute.nominal("sex", ["F", "M"]),
        Attribute.ordinal("schooling", ["primary", "secondary", "tertiary"]),
        Attribute.numeric("age", edges=[0, 10, 30, 60, 100]),
        Attribute.nominal("constant", ["only"]),
    ]
)


def records(rng, count):
    return np.stack([rng.integers(size, size=count) for size in DOMAIN.sizes], axis=1)


@settings(max_examples=80, deadline=None)
@given(data=st.data(), rows=st.integers(1, 12), columns=st.integers(1, 4))
def test_row_index_finds_what_a_dictionary_finds(data, rows, columns):
    codes = st.integers(0, 4)
    table = data.draw(arrays(np.int64, (rows, columns), elements=codes))
    queries = data.draw(arrays(np.int64, (3, 7, columns), elements=st.integers(0, 6)))
    index = RowIndex(table)
    known = sorted(set(map(tuple, table.tolist())))
    assert list(map(tuple, index.rows.tolist())) == known
    assert [known[i] for i in index.inverse] == list(map(tuple, table.tolist()))
    assert index.counts.tolist() == [table.tolist().count(list(row)) for row in known]
    position = {row: i for i, row in enumerate(known)}
    expected = [[position.get(tuple(q), -1) for q in plane] for plane in queries.tolist()]
    assert index.find(queries).tolist() == expected


def test_row_index_does_not_overflow_in_many_columns():
    rng = np.random.default_rng(1)
    table = rng.integers(1_000_000, size=(50, 40))  # a product of 10^240 combinations
    index = RowIndex(table)
    np.testing.assert_array_equal(index.rows[index.find(table)], table)
    assert (index.find(table[:, ::-1]) == -1).all()


def test_states_come_in_ravel_order_whatever_the_order_of_the_names():
    names = ("age", "sex")
    full = Group.full(DOMAIN, names)
    assert full.size == 8 and full.columns == [2, 0]
    np.testing.assert_array_equal(DOMAIN.ravel(full.codes, names), np.arange(8))
    table = records(np.random.default_rng(2), 9)
    seen = Group.observed(DOMAIN, names, table)
    expected = sorted({tuple(row) for row in table[:, [2, 0]].tolist()})
    assert list(map(tuple, seen.codes.tolist())) == expected
    np.testing.assert_array_equal(seen.codes[seen.states(table)], table[:, [2, 0]])
    np.testing.assert_array_equal(full.states(table), DOMAIN.ravel(table[:, [2, 0]], names))


@pytest.mark.parametrize("p", [1, 1.5, 2, math.inf])
def test_distances_of_observed_states_are_those_of_the_full_product(p):
    table = records(np.random.default_rng(3), 7)
    names, weights = ("schooling", "age", "sex"), {"age": 2.0, "sex": 0.5, "schooling": 1.0}
    seen = Group.observed(DOMAIN, names, table)
    rows = DOMAIN.ravel(seen.codes, names)
    every = distance_matrix(DOMAIN, names, p, weights)
    np.testing.assert_array_equal(seen.distances(p, weights), every[np.ix_(rows, rows)])
    np.testing.assert_array_equal(Group.full(DOMAIN, names).distances(p, weights), every)


def test_plug_replaces_the_group_and_nothing_else():
    rng = np.random.default_rng(4)
    table, group = records(rng, 5), Group.full(DOMAIN, ["age", "sex"])
    plugged = group.plug(table[:, None], np.arange(group.size))
    assert plugged.shape == (5, 8, 4)
    for i, y in itertools.product(range(5), range(8)):
        expected = table[i].copy()
        expected[[2, 0]] = group.codes[y]
        assert plugged[i, y].tolist() == expected.tolist()
    original = table.copy()
    group.plug(table, np.zeros(5, dtype=int))
    np.testing.assert_array_equal(table, original)


def test_priors():
    group = Group.full(DOMAIN, ["schooling"])
    table = np.array([[0, 2, 0, 0], [1, 0, 3, 0], [1, 2, 1, 0]])
    assert group.prior().tolist() == [1 / 3] * 3
    assert group.prior(table).tolist() == [1 / 3, 0, 2 / 3]
    assert group.prior(table, pseudocount=1).tolist() == [2 / 6, 1 / 6, 3 / 6]
    with pytest.raises(InvalidGroup, match="pseudocount"):
        group.prior(table, pseudocount=-1)
    with pytest.raises(InvalidGroup, match="no records"):
        group.prior(table[:0])


def test_one_state_is_a_group():
    group = Group.full(DOMAIN, "constant")
    assert group.size == 1 and group.names == ("constant",)
    assert group.distances().tolist() == [[0.0]] and group.prior().tolist() == [1.0]
    GroupProfile(group, group.prior(), group.distances(), np.zeros((1, 1)))


def test_bad_groups_are_refused_by_name():
    table = np.array([[0, 2, 0, 0], [1, 0, 3, 0]])
    with pytest.raises(InvalidGroup, match="24 combinations of levels, more than the limit of 20"):
        Group.full(DOMAIN, ["sex", "schooling", "age"], limit=20)
    with pytest.raises(InvalidDomain, match="not an attribute"):
        Group.full(DOMAIN, ["income"])
    with pytest.raises(InvalidGroup, match="distinct rows in increasing order"):
        Group(DOMAIN, ["sex"], [[1], [0]])
    with pytest.raises(InvalidGroup, match="nonempty"):
        Group(DOMAIN, ["sex"], np.empty((0, 1), dtype=int))
    seen = Group.observed(DOMAIN, ["sex", "schooling"], table)
    with pytest.raises(InvalidGroup, match=r"record 1: \{'sex': 'M', 'schooling': 'tertiary'\}"):
        seen.states([[0, 2, 1, 0], [1, 2, 1, 0]])
    with pytest.raises(InvalidDomain, match="age"):
        seen.states([[0, 2, 9, 0]])


def test_profiles_are_checked_and_read_only():
    group = Group.full(DOMAIN, ["sex"])
    good = GroupProfile(group, group.prior(), group.distances(), 1 - np.eye(2))
    with pytest.raises(ValueError, match="read-only"):
        good.loss[0, 0] = 1
    with pytest.raises(InvalidDistribution):
        GroupProfile(group, [1.0], group.distances(), np.eye(2))
    with pytest.raises(InvalidMetric):
        GroupProfile(group, group.prior(), np.eye(2), np.eye(2))
    with pytest.raises(InvalidLoss):
        GroupProfile(group, group.prior(), group.distances(), np.eye(3))
