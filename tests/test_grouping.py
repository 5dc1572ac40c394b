"""Stage 1: dependence, its bias, and the groups it connects."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from dephdp import Attribute, Domain, datasets
from dephdp.errors import InvalidDomain, InvalidGroup
from dephdp.grouping import (
    ESTIMATORS,
    Grouping,
    bin_edges,
    connected_groups,
    discretize,
    group_attributes,
    normalized_mutual_information,
    permuted_information,
    split_group,
)

TABLES = arrays(
    np.int64, st.tuples(st.integers(1, 25), st.integers(1, 4)), elements=st.integers(0, 3)
)


def entropy_of(rows):
    counts = list(dict.fromkeys(rows))
    return stats.entropy([rows.count(value) for value in counts]), len(counts)


def pair_by_pair(table, corrected):
    """The definition, with scipy's entropy and counts of tuples."""
    n, attributes = table.shape
    result = np.zeros((attributes, attributes))
    for i, j in itertools.product(range(attributes), repeat=2):
        x, y = table[:, i].tolist(), table[:, j].tolist()
        parts = [entropy_of(v) for v in (x, y, list(zip(x, y, strict=True)))]
        hx, hy, hxy = [h + corrected * (cells - 1) / (2 * n) for h, cells in parts]
        result[i, j] = 2 * (hx + hy - hxy) / (hx + hy) if hx + hy > 0 else 0.0
    return result


@settings(max_examples=60, deadline=None)
@given(table=TABLES)
def test_dependence_equals_its_definition(table):
    plain = normalized_mutual_information(table, "plug-in")
    np.testing.assert_allclose(plain, pair_by_pair(table, 0), atol=1e-12)
    corrected = normalized_mutual_information(table, "miller-madow")
    np.testing.assert_allclose(corrected, pair_by_pair(table, 1), atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(table=TABLES)
def test_laws_of_every_estimator(table):
    varies = (table != table[0]).any(axis=0)
    for estimator in ESTIMATORS:
        found = normalized_mutual_information(table, estimator)
        np.testing.assert_allclose(found, found.T, atol=1e-12)
        np.testing.assert_allclose(np.diag(found), varies, atol=1e-12)
        assert (found <= 1 + 1e-12).all()
        assert (found[~varies] == 0).all()
        # relabelling levels and shuffling records change nothing
        again = normalized_mutual_information(5 - table[::-1], estimator)
        np.testing.assert_allclose(found, again, atol=1e-12)


def test_the_permutation_mean_is_the_mean_over_all_permutations():
    rng = np.random.default_rng(1)
    for _ in range(4):
        table = rng.integers(0, 3, size=(6, 2))
        x = table[:, 0]
        every = [
            normalized_mutual_information(np.stack([x, y], 1), "plug-in")[0, 1]
            for y in itertools.permutations(table[:, 1])
        ]
        plain = normalized_mutual_information(table, "plug-in")[0, 1]
        expected = (plain - np.mean(every)) / (1 - np.mean(every))
        found = normalized_mutual_information(table, "permutation")[0, 1]
        assert found == pytest.approx(expected, abs=1e-12)


def test_the_permutation_mean_agrees_with_scipys_hypergeometric():
    rng = np.random.default_rng(2)
    table = np.stack([rng.integers(0, 4, 150), rng.binomial(9, 0.1, 150)], axis=1)
    n, mean = len(table), 0.0
    margins = [np.unique(column, return_counts=True)[1] for column in table.T]
    for a, b in itertools.product(*margins):
        k = np.arange(1, min(a, b) + 1)
        mean += stats.hypergeom.pmf(k, n, a, b) @ (k / n * np.log(n * k / (a * b)))
    chance = 2 * mean / sum(stats.entropy(counts) for counts in margins)
    plain = normalized_mutual_information(table, "plug-in")[0, 1]
    found = normalized_mutual_information(table, "permutation")[0, 1]
    assert found == pytest.approx((plain - chance) / (1 - chance), abs=1e-12)


def test_the_permutation_mean_agrees_with_random_permutations():
    rng = np.random.default_rng(3)
    table = np.stack([rng.integers(0, k, 120) for k in (2, 5, 9)], axis=1)
    draws = permuted_information(table, 400, rng)
    assert draws.shape == (400, 3, 3)
    plain = normalized_mutual_information(table, "plug-in")
    adjusted = normalized_mutual_information(table, "permutation")
    upper = np.triu_indices(3, 1)
    plain, adjusted = plain[upper], adjusted[upper]
    chance = (plain - adjusted) / (1 - adjusted)  # I0, from A = (I - I0) / (1 - I0)
    error = draws.std(axis=0, ddof=1)[upper] / math.sqrt(400)
    assert (np.abs(draws.mean(axis=0)[upper] - chance) < 4 * error).all()


def test_plug_in_bias_is_first_order_as_stated():
    """Independent attributes: n·E[I] tends to (r - 1)(s - 1) / 2 (natural logarithms)."""
    rng = np.random.default_rng(4)
    n, r, s, repeats = 400, 3, 5, 800
    information = np.empty(repeats)
    for i in range(repeats):
        table = np.stack([rng.integers(0, r, n), rng.integers(0, s, n)], axis=1)
        counts = np.bincount(table[:, 0] * s + table[:, 1], minlength=r * s).reshape(r, s)
        margins = stats.entropy(counts.sum(0)) + stats.entropy(counts.sum(1))
        ratio = normalized_mutual_information(table, "plug-in")[0, 1]
        information[i] = ratio * margins / 2
    expected = (r - 1) * (s - 1) / (2 * n)
    error = information.std(ddof=1) / math.sqrt(repeats)
    assert abs(information.mean() - expected) < 4 * error + 0.05 * expected


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.integers(-3, 12), min_size=2, max_size=40).filter(lambda v: len(set(v)) > 1),
    bins=st.integers(1, 8),
    rule=st.sampled_from(["equal-frequency", "equal-width"]),
)
def test_bins_cover_the_column_and_keep_its_order(values, bins, rule):
    edges = bin_edges(values, bins, rule)
    codes = discretize(values, bins, rule)
    assert (np.diff(edges) > 0).all() and len(edges) <= bins + 1
    assert edges[0] == min(values) and edges[-1] >= max(values)
    for value, code in zip(values, codes, strict=True):
        assert edges[code] <= value
        assert value < edges[code + 1] or code == len(edges) - 2
    assert (np.diff(codes[np.argsort(values, kind="stable")]) >= 0).all()
    attribute = Attribute.numeric("x", edges=edges)
    assert attribute.size == len(edges) - 1


def test_equal_frequency_bins_hold_equal_numbers_and_respect_ties():
    rng = np.random.default_rng(5)
    codes = discretize(rng.normal(size=1000), 10)
    assert np.bincount(codes).tolist() == [100] * 10
    inflated = np.concatenate([np.zeros(92), np.arange(1, 9)])  # one value fills the low quantiles
    assert np.bincount(discretize(inflated, 10)).tolist() == [92, 8]
    assert bin_edges([1.0, 1.0, 1.0, 2.0], 4).tolist() == [1.0, 2.0, np.nextafter(2.0, 3)]


def test_bad_columns_to_bin():
    assert discretize([7, 7, 7], 3).tolist() == [0, 0, 0]
    with pytest.raises(InvalidDomain, match="one value 7"):
        bin_edges([7, 7], 3)
    with pytest.raises(InvalidDomain, match="finite"):
        bin_edges([1, math.nan], 3)
    with pytest.raises(InvalidDomain, match="positive"):
        bin_edges([1, 2], 0)
    with pytest.raises(InvalidDomain, match="rule"):
        bin_edges([1, 2], 2, "quantile")


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 8), tau=st.floats(-0.1, 1))
def test_groups_are_the_components_and_splits_are_single_linkage(seed, size, tau):
    rng = np.random.default_rng(seed)
    half = np.triu(np.round(rng.random((size, size)) ** 3, 1), 1)
    dependence = half + half.T + np.eye(size)
    groups = connected_groups(dependence, tau)
    assert sorted(i for group in groups for i in group) == list(range(size))
    assert groups == sorted(groups, key=min)
    label = {i: k for k, group in enumerate(groups) for i in group}
    for i, j in itertools.combinations(range(size), 2):
        assert not (dependence[i, j] > tau and label[i] != label[j])
    for group in groups:  # connected: growing from one member reaches all
        reached = {group[0]}
        while True:
            more = {j for i in reached for j in group if dependence[i, j] > tau} | reached
            if more == reached:
                break
            reached = more
        assert reached == set(group)
        limit = 1 + seed % 3
        parts = split_group(dependence, group, lambda part, limit=limit: len(part) <= limit)
        assert sorted(i for part in parts for i in part) == list(group)
        assert all(len(part) <= limit for part in parts)
        thresholds = np.unique(dependence)
        levels = [connected_groups(dependence, t) for t in (tau, *thresholds)]
        assert all(any(part in level for level in levels) for part in parts)


def test_an_oversized_group_is_cut_at_its_weakest_link():
    dependence = np.eye(4)
    for (i, j), value in {(0, 1): 0.9, (1, 2): 0.2, (2, 3): 0.5}.items():
        dependence[i, j] = dependence[j, i] = value
    assert connected_groups(dependence, 0.1) == [(0, 1, 2, 3)]
    fits_two = split_group(dependence, (0, 1, 2, 3), lambda part: len(part) <= 2)
    assert fits_two == [(0, 1), (2, 3)]
    assert split_group(dependence, (0, 1, 2, 3), lambda part: len(part) <= 1) == [
        (0,),
        (1,),
        (2,),
        (3,),
    ]
    with pytest.raises(InvalidGroup, match="alone exceeds"):
        split_group(dependence, (0, 1), lambda part: False)


@pytest.fixture(scope="module")
def twins():
    """Two copies of a coin, a die, a constant and a number."""
    rng = np.random.default_rng(6)
    n = 400
    coin, die = rng.integers(0, 2, n), rng.integers(0, 6, n)
    number = rng.integers(0, 50, n)
    domain = Domain(
        [
            Attribute.nominal("coin", "HT"),
            Attribute.ordinal("die", range(6)),
            Attribute.nominal("constant", ["c"]),
            Attribute.nominal("copy", "HT"),
            Attribute.numeric("number", values=range(50)),
        ]
    )
    return domain, np.stack([coin, die, np.zeros(n, int), 1 - coin, number], axis=1)


def test_stage_1_in_one_call(twins):
    domain, records = twins
    for estimator in ESTIMATORS:
        grouping = group_attributes(domain, records, estimator=estimator)
        assert grouping.groups == (("coin", "copy"), ("die",), ("constant",), ("number",))
        assert grouping.dependence[0, 3] == pytest.approx(1)
    assert len(group_attributes(domain, records, tau=1).groups) == 5
    one = group_attributes(domain, records[:1])  # one record: nothing varies
    assert len(one.groups) == 5 and not one.dependence.any()


def test_the_size_guard_refuses_or_splits(twins):
    domain, records = twins
    assert group_attributes(domain, records, limit=50).groups[0] == ("coin", "copy")
    # the declared product of a coin and its copy has 4 states; 2 of them occur
    declared = {"tau": 0.1, "oversized": "refuse"}
    wide = Domain(domain.attributes[:4])
    with pytest.raises(InvalidGroup, match=r"\('die',\) has 6 states, more than the limit of 3"):
        group_attributes(wide, records[:, :4], limit=3, **declared)
    narrow = Domain([domain["coin"], domain["copy"]])
    columns = records[:, [0, 3]]
    with pytest.raises(InvalidGroup, match=r"has 4 states, more than the limit of 3"):
        group_attributes(narrow, columns, limit=3, **declared)
    assert group_attributes(narrow, columns, limit=3).groups == (("coin",), ("copy",))
    seen = group_attributes(narrow, columns, limit=3, observed=True, **declared)
    assert seen.groups == (("coin", "copy"),)


def test_bad_input_is_refused_by_name(twins):
    domain, records = twins
    with pytest.raises(InvalidDomain, match="outside"):
        group_attributes(domain, records + 1)
    with pytest.raises(InvalidGroup, match="table"):
        normalized_mutual_information(np.empty((0, 2), dtype=int))
    with pytest.raises(InvalidGroup, match="integers"):
        normalized_mutual_information(np.ones((3, 2)))
    with pytest.raises(InvalidGroup, match="estimator 'mi'"):
        normalized_mutual_information(records, "mi")
    with pytest.raises(InvalidGroup, match="oversized"):
        group_attributes(domain, records, oversized="drop")
    with pytest.raises(InvalidGroup, match="NaN"):
        connected_groups(np.eye(2), math.nan)
    with pytest.raises(InvalidGroup, match="symmetric"):
        connected_groups([[1, 0.5], [0, 1]])
    with pytest.raises(InvalidGroup, match="finite"):
        connected_groups([[1, math.inf], [math.inf, 1]])
    with pytest.raises(InvalidGroup, match="square"):
        connected_groups([[1, 0.5]])
    with pytest.raises(TypeError, match="Generator"):
        permuted_information(records, 5, None)
    with pytest.raises(InvalidGroup, match="positive"):
        permuted_information(records, 0, np.random.default_rng(1))


def test_adult_falls_into_the_eight_groups_of_its_meanings():
    adult = datasets.load_adult().drop(columns="split").dropna()
    numeric = {
        name: (float(adult[name].min()), float(adult[name].max()))
        for name in adult
        if adult[name].dtype == "Int64"
    }
    nominal = [name for name in adult if name not in {*numeric, "education"}]
    domain = Domain.from_frame(adult, nominal=nominal, ordinal=["education"], numeric=numeric)
    records = domain.encode(adult)
    expected = (
        ("age", "marital_status", "relationship", "sex", "income"),
        ("workclass",),
        ("fnlwgt",),
        ("education", "education_num", "occupation"),
        ("race", "native_country"),
        ("capital_gain",),
        ("capital_loss",),
        ("hours_per_week",),
    )
    assert group_attributes(domain, records).groups == expected
    assert group_attributes(domain, records, estimator="plug-in").groups == expected


def test_the_graph_is_drawn_with_every_name_and_link():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    dependence = np.array([[1, 0.5, 0.07], [0.5, 1, 0.02], [0.07, 0.02, 1]])
    grouping = Grouping(("a_b", "c", "d"), dependence, 0.1, (("a_b", "c"), ("d",)))
    ax = grouping.draw()
    assert {text.get_text() for text in ax.texts} == {"a b", "c", "d"}
    assert [line.get_linestyle() for line in ax.lines] == ["-", ":"]
    assert len(ax.collections) == 2
    _, given_ax = plt.subplots()
    assert grouping.draw(given_ax) is given_ax
    plt.close("all")
