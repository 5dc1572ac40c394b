"""Worst cells against all partitions; bounds, and where the printed one stops being one."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import drha
from drha import worst_case

NOISES = {
    "laplace": drha.laplace(0.7),
    "laplace weak": drha.laplace(0.05),
    "gaussian": drha.gaussian(0.9, delta=1e-5),
    "gaussian strong": drha.gaussian(sigma=0.7),
    "gaussian weak": drha.gaussian(sigma=30.0),
    "geometric": drha.geometric(0.2),
    "discrete gaussian": drha.discrete_gaussian(sigma=6.0),
    "laplace, threshold": drha.laplace(0.5).with_convention(drha.conventions.Threshold(2.0)),
    "laplace, signed": drha.laplace(0.5).with_convention("signed"),
}
MECHANISMS = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())


def partitions(n, parts, largest):
    """Partitions of n into at most so many parts, none larger, in descending order."""
    if n == 0:
        yield ()
    elif parts:
        for first in range(min(n, largest), 0, -1):
            for rest in partitions(n - first, parts - 1, first):
                yield first, *rest


def heterogeneous_cells(n, levels):
    return np.array([p + (0,) * (levels - len(p)) for p in partitions(n, levels, n - 1)])


SHAPES = [(n, levels) for levels in range(2, 8) for n in range(2, 15)]
CELLS = {shape: heterogeneous_cells(*shape) for shape in SHAPES}


@MECHANISMS
@pytest.mark.parametrize("kind", ["exact", "refined"])
def test_worst_case_is_the_largest_risk_of_all_partitions(noise, kind):
    for (n, levels), cells in CELLS.items():
        largest = drha.local_risk(cells, noise, kind).max()
        worst = drha.worst_cell(n, levels, noise, kind)
        assert worst.sum() == n
        assert np.count_nonzero(worst) >= 2
        assert (np.diff(worst) <= 0).all()
        assert drha.local_risk(worst, noise, kind) == pytest.approx(largest, rel=1e-13)
        assert drha.worst_case_risk(n, levels, noise, kind) == pytest.approx(largest, rel=1e-13)
        bound = drha.risk_bound(n, levels, noise, kind)
        assert largest <= bound * (1 + 1e-13)


@settings(max_examples=80, deadline=None)
@given(
    st.floats(0.002, 5.0),
    st.sampled_from([drha.laplace, drha.geometric]),
    st.sampled_from(["exact", "refined"]),
    st.sampled_from(SHAPES),
)
def test_end_point_rule_over_budgets(epsilon, make, kind, shape):
    noise = make(epsilon)
    largest = drha.local_risk(CELLS[shape], noise, kind).max()
    assert drha.worst_case_risk(*shape, noise, kind) == pytest.approx(largest, rel=1e-12)


@pytest.mark.parametrize("kind", ["exact", "refined"])
def test_search_agrees_with_the_end_point_rule_where_partitions_are_too_many(kind):
    """The search knows nothing of Laplace noise, but must find the same worst cell."""
    for epsilon in (0.01, 0.1, 1.0):
        noise = drha.laplace(epsilon)
        for n, levels in ((60, 12), (200, 8)):
            found = worst_case._search(n, levels, noise, kind, n - 1)
            rule = drha.worst_case_risk(n, levels, noise, kind)
            assert drha.local_risk(found, noise, kind) == pytest.approx(rule, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.003, 0.1, 0.55, 1.0, 4.0])
def test_laplace_closed_forms(epsilon):
    noise, a = drha.laplace(epsilon), math.exp(-epsilon)
    v = 0.5 * math.sqrt(a)
    for n, levels in ((3, 3), (5, 3), (4, 6), (30, 5), (12, 2)):

        def largest(m, n=n, levels=levels):
            return (1 - v) ** (levels - m) * v ** (m - 1) * (1 + a ** (n - m) * (m - 1 - m * v))

        exact = max(largest(2), largest(min(n, levels)))
        assert drha.worst_case_risk(n, levels, noise) == pytest.approx(exact, rel=1e-12)
        bracket = (n - 1) / n + a ** (n - 2) * (1 / n - v)
        refined = (1 - v) ** (levels - 2) * v * bracket
        assert drha.worst_case_risk(n, levels, noise, "refined") == pytest.approx(
            refined, rel=1e-12
        )


@MECHANISMS
def test_general_bound_is_attained_by_ones(noise):
    """For the number of levels that maximises it, when at most half of the ones vanish."""
    z, v = noise.vanishing([0, 1])
    for levels in range(2, 9):
        value = [m * z ** (levels - m) * (1 - v) * v ** (m - 1) for m in range(2, levels + 1)]
        m = 2 + int(np.argmax(value))
        cell = np.array([1] * m + [0] * (levels - m))
        bound = drha.risk_bound(m, levels, noise)
        if v <= 0.5:
            assert drha.local_risk(cell, noise) == pytest.approx(bound, rel=1e-12)
        assert drha.risk_bound([2, m, 500], levels, noise).shape == (3,)
        assert (np.diff(drha.risk_bound(np.arange(2, 12), levels, noise)) >= 0).all()


def test_thresholds_of_the_smallest_counterexample():
    def threshold(make, low, high):
        return drha.printed_bound_threshold(3, 3, make, (low, high))

    v = np.roots([8, -4, 3, -1])
    v = float(v[np.isreal(v)][0].real)
    assert threshold(drha.laplace, 0.01, 2.0) == pytest.approx(-2 * math.log(2 * v), rel=1e-12)
    assert threshold(drha.laplace, 0.01, 2.0) == pytest.approx(0.5509901938, abs=5e-11)
    golden = math.log((1 + math.sqrt(5)) / 2)
    assert threshold(drha.geometric, 0.01, 2.0) == pytest.approx(golden, rel=1e-12)
    sigma = threshold(lambda s: drha.gaussian(sigma=s), 0.5, 50.0)
    assert sigma == pytest.approx(1.51633477, abs=5e-9)


@pytest.mark.parametrize(
    ("n", "levels", "epsilon"),
    [(4, 3, 0.3704), (4, 5, 0.4357), (10, 6, 0.1858), (100, 20, 0.0313), (1000, 3, 0.0047)],
)
def test_laplace_thresholds_are_single_changes_of_sign(n, levels, epsilon):
    threshold = drha.printed_bound_threshold(n, levels, drha.laplace, (1e-4, 2.0))
    assert threshold == pytest.approx(epsilon, abs=5e-5)
    for e in np.geomspace(1e-4, 3.0, 200):
        noise = drha.laplace(e)
        fails = drha.worst_case_risk(n, levels, noise) > drha.scenario_8_expression(
            n, levels, noise
        ) * (1 + 1e-12)
        assert fails == (e < threshold)


@pytest.mark.parametrize(
    ("n", "levels", "sigma"), [(4, 3, 2.405), (4, 4, 1.927), (6, 6, 2.610), (8, 4, 4.671)]
)
def test_gaussian_thresholds(n, levels, sigma):
    def make(s):
        return drha.gaussian(sigma=s)

    threshold = drha.printed_bound_threshold(n, levels, make, (0.5, 50.0))
    assert threshold == pytest.approx(sigma, abs=6e-4)
    for s, fails in ((threshold * 0.999, False), (threshold * 1.001, True)):
        cells = CELLS[n, levels]
        bound = drha.scenario_8_expression(n, levels, make(s))
        assert (drha.local_risk(cells, make(s)).max() > bound * (1 + 1e-12)) == fails


def test_shapes_and_extremes():
    noise = drha.laplace(0.1)
    cells = drha.worst_cell([[5, 2], [3, 5]], 4, noise)
    assert cells.shape == (2, 2, 4)
    assert cells.sum(axis=-1).tolist() == [[5, 2], [3, 5]]
    assert drha.worst_case_risk([[5, 2], [3, 5]], 4, noise).shape == (2, 2)
    for epsilon in (1e-6, 1e3):
        for kind in ("exact", "refined"):
            risk = drha.worst_case_risk([2, 10**9], 5, drha.laplace(epsilon), kind)
            assert ((risk >= 0) & (risk <= 1)).all()
            bound = drha.risk_bound([2, 10**9], 5, drha.laplace(epsilon), kind)
            assert ((bound >= 0) & (bound <= 1)).all()


def test_bad_input_is_refused():
    noise = drha.laplace(1.0)
    for call in (drha.worst_case_risk, drha.worst_cell, drha.risk_bound):
        with pytest.raises(drha.InvalidCounts, match="size 1"):
            call([3, 1], 3, noise)
        with pytest.raises(drha.InvalidCounts, match="levels"):
            call(3, 1, noise)
        with pytest.raises(drha.InvalidNoise):
            call(3, 3, 1.0)
        with pytest.raises(drha.DrhaError, match="kind"):
            call(3, 3, noise, "paper_bound")
    with pytest.raises(drha.InvalidCounts, match="risk_bound"):
        drha.worst_case_risk(1000, 40, drha.gaussian(sigma=400.0))
    with pytest.raises(drha.DrhaError, match="holds at both ends"):
        drha.printed_bound_threshold(3, 3, drha.laplace, (1.0, 2.0))
    with pytest.raises(drha.DrhaError, match="fails at both ends"):
        drha.printed_bound_threshold(3, 3, drha.laplace, (0.1, 0.2))
    with pytest.raises(drha.InvalidCounts, match="levels"):
        drha.printed_bound_threshold(3, 2, drha.laplace, (0.1, 0.2))
