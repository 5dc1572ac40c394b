import math

import numpy as np
import pytest
from channels import euclidean
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import floyd_warshall

from dephdp import Attribute, Domain, check_metric, distance_matrix
from dephdp.errors import InvalidBudget, InvalidDomain, InvalidMetric
from dephdp.metric import combine_distances, component_distances, shortest_path_closure

EXPONENTS = st.one_of(st.just(1.0), st.just(math.inf), st.floats(1.0, 1000.0))

MIXED = Domain(
    [
        Attribute.nominal("sex", ["F", "M"]),
        Attribute.ordinal("schooling", ["primary", "secondary", "tertiary"]),
        Attribute.numeric("age", edges=[0, 10, 30, 100]),
    ]
)


def test_component_metrics():
    assert component_distances(MIXED["sex"]).tolist() == [[0, 1], [1, 0]]
    assert component_distances(MIXED["schooling"]).tolist() == [
        [0, 0.5, 1],
        [0.5, 0, 0.5],
        [1, 0.5, 0],
    ]
    assert component_distances(MIXED["age"])[0] == pytest.approx([0, 0.15, 0.60])
    declared = Attribute.numeric("children", values=[0, 1, 4], range=(0, 10))
    assert component_distances(declared)[0] == pytest.approx([0, 0.1, 0.4])
    assert component_distances(Attribute.ordinal("one", ["only"])).tolist() == [[0]]


@settings(max_examples=60, deadline=None)
@given(p=EXPONENTS, weights=st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=3))
def test_product_metric_equals_its_formula_pair_by_pair(p, weights):
    names = ["age", "sex", "schooling"]
    distances = distance_matrix(MIXED, names, p, weights)
    codes = MIXED.unravel(np.arange(18), names)
    components = [component_distances(MIXED[name]) for name in names]
    for x in range(18):
        for z in range(18):
            parts = [c[codes[x, k], codes[z, k]] for k, c in enumerate(components)]
            largest = max(parts)
            if math.isinf(p) or largest == 0:
                expected = largest
            else:
                total = sum(w * (d / largest) ** p for w, d in zip(weights, parts, strict=True))
                expected = largest * total ** (1 / p)
            assert distances[x, z] == pytest.approx(expected, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    p=EXPONENTS,
    weights=st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=3),
    names=st.permutations(["age", "sex", "schooling"]),
    count=st.integers(1, 3),
)
def test_product_metrics_satisfy_the_axioms(p, weights, names, count):
    distances = distance_matrix(MIXED, names[:count], p, weights[:count])
    check_metric(distances)
    assert (distances[~np.eye(len(distances), dtype=bool)] > 0).all()


def test_the_limit_of_large_p_is_the_maximum_and_the_weights_vanish():
    weights = {"sex": 3.0, "schooling": 0.1, "age": 1.0}
    maximum = distance_matrix(MIXED, MIXED.names, math.inf, weights)
    assert (maximum == distance_matrix(MIXED, MIXED.names, math.inf)).all()
    assert distance_matrix(MIXED, MIXED.names, 1e6, weights) == pytest.approx(maximum, rel=1e-5)


def test_grouping_is_associative():
    """The distance of a record is the ℓp norm of the distances of its groups."""
    for p in (1, 2, 3.5, math.inf):
        whole = distance_matrix(MIXED, MIXED.names, p)
        groups = [distance_matrix(MIXED, g, p) for g in (["sex", "schooling"], ["age"])]
        assert combine_distances(groups, p) == pytest.approx(whole, rel=1e-13)


def test_infinite_components_combine():
    far = [[0, math.inf], [math.inf, 0]]
    for p in (1, 2, math.inf):
        combined = combine_distances([far, [[0, 1], [1, 0]]], p)
        assert combined.tolist() == [
            [0, 1, math.inf, math.inf],
            [1, 0, math.inf, math.inf],
            [math.inf, math.inf, 0, 1],
            [math.inf, math.inf, 1, 0],
        ]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], "3 weights"),
        ([1.0, 0.0, 1.0], "weight 1"),
        ([1.0, 1.0, math.nan], "weight 2"),
        ([math.inf, 1.0, 1.0], "weight 0"),
        ({"sex": 1.0}, "weights name"),
    ],
)
def test_bad_weights(weights, message):
    with pytest.raises(InvalidMetric, match=message):
        distance_matrix(MIXED, MIXED.names, 2, weights)


def test_bad_exponents_and_groups():
    for p in (0.5, math.nan, -1, None):
        with pytest.raises(InvalidBudget, match="p must"):
            distance_matrix(MIXED, ["sex"], p)
    with pytest.raises(InvalidDomain, match="height"):
        distance_matrix(MIXED, ["height"])
    with pytest.raises(InvalidMetric, match="at least one"):
        combine_distances([])


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_point_sets_are_metrics(count, dimension, seed):
    points = np.random.default_rng(seed).normal(size=(count, dimension))
    check_metric(euclidean(points))


def test_pseudo_and_extended_metrics_are_allowed():
    check_metric([[0, 0, 1], [0, 0, 1], [1, 1, 0]])
    check_metric([[0, math.inf], [math.inf, 0]])
    check_metric([[0]])


@pytest.mark.parametrize(
    ("distances", "message"),
    [
        ([[0, 1], [2, 0]], r"symmetric.*d\(0, 1\)"),
        ([[0, 1], [math.inf, 0]], r"symmetric.*d\(0, 1\)"),
        ([[0, 1], [1, 0.5]], r"from itself.*d\(1, 1\)"),
        ([[0, -1], [-1, 0]], r"nonnegative.*d\(0, 1\)"),
        ([[0, math.nan], [math.nan, 0]], r"nonnegative.*d\(0, 1\)"),
        ([[0, 1, 3], [1, 0, 1], [3, 1, 0]], r"d\(0, 2\) = .*exceeds d\(0, 1\) \+ d\(1, 2\)"),
        ([[0, 1, math.inf], [1, 0, 1], [math.inf, 1, 0]], r"triangle"),
        ([[0, 1]], "square"),
        ([], "square"),
        ([["a"]], "numbers"),
    ],
)
def test_broken_axioms_are_named(distances, message):
    with pytest.raises(InvalidMetric, match=message):
        check_metric(distances)


@pytest.mark.parametrize("seed", range(4))
def test_triangle_check_equals_the_definition(seed):
    """Perturbed metrics: the check fails exactly if some triple does."""
    rng = np.random.default_rng(seed)
    verdicts = set()
    for _ in range(20):
        distances = euclidean(rng.random((6, 2)))
        x, z = rng.choice(6, 2, replace=False)
        distances[x, z] = distances[z, x] = distances[x, z] * rng.uniform(0.7, 1.3)
        sums = distances[:, :, None] + distances[None, :, :]
        broken = (distances[:, None, :] > sums * (1 + 1e-9)).any()
        verdicts.add(bool(broken))
        if broken:
            with pytest.raises(InvalidMetric, match="triangle"):
                check_metric(distances)
        else:
            check_metric(distances)
    assert verdicts == {True, False}


@pytest.mark.parametrize("seed", range(4))
def test_closure_equals_floyd_warshall_of_scipy(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.exponential(size=(15, 15)) + 1e-3
    lengths = np.minimum(lengths, lengths.T)
    lengths[rng.random((15, 15)) < 0.4] = math.inf
    lengths = np.maximum(lengths, lengths.T)
    np.fill_diagonal(lengths, 0)
    closed = shortest_path_closure(lengths)
    assert closed == pytest.approx(floyd_warshall(lengths), rel=1e-12)
    check_metric(closed)
    assert shortest_path_closure(closed) == pytest.approx(closed, rel=1e-14)


def test_closure_keeps_zero_distances():
    closed = shortest_path_closure([[0, 0, 5], [0, 0, 2], [5, 2, 0]])
    assert closed.tolist() == [[0, 0, 2], [0, 0, 2], [2, 2, 0]]
