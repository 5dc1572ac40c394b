"""Choosing epsilon against polynomial roots, dense scans, closed forms and what must be refused."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import Polynomial
from scipy.optimize import minimize_scalar

import drha
from drha.calibrate import MECHANISMS, PURE, dataset_risk, resolve_mechanism

X = Polynomial([0.0, 1.0])  # x = exp(-epsilon / 2), so that epsilon in (0, inf) is x in (0, 1)

tables = st.integers(1, 4).flatmap(
    lambda k: st.lists(
        st.lists(st.integers(0, 4), min_size=k, max_size=k).filter(any), min_size=1, max_size=4
    )
)


def risk_polynomial(counts):
    """Average exact Laplace risk of a table, as a polynomial in x."""
    vanish = [1 - X / 2] + [X ** (2 * c - 1) / 2 for c in range(1, np.max(counts) + 1)]
    total = Polynomial([0.0])
    for cell in counts:
        for k, count in enumerate(cell):
            if count:
                term = 1 - vanish[count]
                for j, other in enumerate(cell):
                    term = term if j == k else term * vanish[other]
                total += term
    return total / len(counts)


def roots_by_polynomial(counts, target):
    """All epsilon at which the risk equals the target, by eigenvalues of a companion matrix."""
    polynomial = risk_polynomial(counts) - target
    slope = polynomial.deriv()
    found = polynomial.roots()
    x = found.real[(np.abs(found.imag) < 1e-9) & (found.real > 1e-3) & (found.real < 1 - 1e-6)]
    return np.sort(-2 * np.log(x)), slope(x)


@settings(max_examples=60, deadline=None)
@given(tables, st.floats(0.02, 0.98))
def test_all_roots_of_small_tables(counts, target):
    expected, slopes = roots_by_polynomial(counts, target)
    if len(slopes) and np.abs(slopes).min() < 1e-4:
        return  # nearly touching: which roots there are is a matter of rounding
    choice = drha.choose_epsilon(counts, target)
    inner = [root for root in choice.roots if root < -2 * math.log(1e-3)]
    np.testing.assert_allclose(inner, expected, rtol=1e-7)


@settings(max_examples=60, deadline=None)
@given(
    tables,
    st.floats(0.02, 0.98),
    st.sampled_from(["exact", "refined", "paper_bound"]),
    st.sampled_from(["cells", "people", "worst"]),
    st.sampled_from(["laplace", "geometric", "gaussian-pdp"]),
)
def test_no_smaller_epsilon_exceeds_the_target(counts, target, measure, over, mechanism):
    delta = None if mechanism in PURE else 1e-5
    choice = drha.choose_epsilon(counts, target, mechanism, delta=delta, measure=measure, over=over)
    assert choice.proven <= choice.safe
    risk = dataset_risk(drha.FrequencyTable.from_counts(counts), measure, over)
    build = resolve_mechanism(mechanism, delta)[1]
    end = min(choice.safe, 1e3)
    if end > 0:
        scan = np.geomspace(end * 1e-6, end, 400)
        scanned = np.array([risk(build(e)) for e in scan])
        assert scanned.max() <= target
        if max(choice.limits[0], scanned[scan < 0.9 * end].max()) < target - 1e-3:
            assert choice.proven >= 0.9 * end
        if choice.safe < math.inf:
            assert risk(build(end)) == pytest.approx(target, abs=1e-6)
    else:
        assert risk(build(choice.epsilons[0])) > target
    low, high = choice.reach
    assert low <= min(choice.limits) and max(choice.limits) <= high
    assert choice.reachable or not choice.roots


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 10**6), min_size=1, max_size=5),
    st.integers(1, 6),
    st.floats(1e-3, 1 - 1e-3),
    st.sampled_from(["laplace", "geometric", "gaussian-pdp"]),
)
def test_homogeneous_tables_have_one_root_inside_the_sandwich(sizes, levels, share, mechanism):
    target = 0.5**levels + share * (1 - 0.5**levels)
    delta = None if mechanism in PURE else 1e-6
    counts = np.zeros((len(sizes), levels), dtype=int)
    counts[:, 0] = sizes
    choice = drha.choose_epsilon(counts, target, mechanism, delta=delta)
    low, high = choice.sandwich
    (root,) = choice.roots
    assert low * (1 - 1e-9) <= root <= high * (1 + 1e-9)
    assert choice.epsilon == pytest.approx(root, rel=1e-8)
    assert choice.epsilon <= choice.safe <= root
    assert choice.reachable


@pytest.mark.parametrize("levels", [1, 2, 3, 10])
@pytest.mark.parametrize("target", [0.05, 0.3, 0.6, 0.95])
def test_sandwich_closed_forms_and_ends(levels, target):
    low, high = drha.homogeneous_sandwich(target, levels)
    if target <= 0.5**levels:
        assert (low, high) == (math.inf, math.inf)
        return
    root = target ** (1 / levels)
    assert high == pytest.approx(-2 * math.log(2 * (1 - root)), rel=1e-10)
    expected = 0.0
    if levels > 1:
        expected = max(0.0, -2 * math.log(2 * (1 - target ** (1 / (levels - 1)))))
    assert low == pytest.approx(expected, rel=1e-10)
    geometric = drha.homogeneous_sandwich(target, levels, "geometric")[1]
    assert geometric == pytest.approx(-math.log(1 / root - 1), rel=1e-10)
    one = np.eye(1, levels, dtype=int)
    assert drha.choose_epsilon(one, target).epsilon == pytest.approx(high, rel=1e-8)
    if low > 0.1:
        large = drha.choose_epsilon(10**9 * one, target).epsilon
        assert large == pytest.approx(low, rel=1e-8)


@pytest.mark.parametrize(("n", "root"), [(1, 1.0696), (2, 0.5953), (5, 0.3082), (50, 0.0583)])
def test_published_roots_of_homogeneous_cells(n, root):
    assert drha.choose_epsilon([[n, 0]], 0.5).epsilon == pytest.approx(root, abs=5e-5)


def test_several_roots_of_an_expected_risk():
    """K = 2, p = (1/2, 1/2), n = 2: half the cells are (2, 0) or (0, 2), half are (1, 1)."""

    def expected(noise):
        return 0.5 * drha.local_risk([2, 0], noise) + 0.5 * drha.local_risk([1, 1], noise)

    choice = drha.choose_epsilon(None, 0.52, measure=expected)
    assert choice.roots == pytest.approx((0.988042, 4.849654), abs=1e-6)
    assert choice.epsilon == choice.safe == pytest.approx(choice.roots[0])
    assert choice.proven is None  # nothing is known of a function given by a user
    assert choice.limits is None and choice.sandwich is None and choice.cells is None
    assert choice.measure == "expected"
    named = drha.choose_epsilon([[2, 0], [1, 1]], 0.52)
    assert named.roots == pytest.approx(choice.roots)
    assert named.epsilon == pytest.approx(choice.roots[0])
    peak = -minimize_scalar(lambda e: -expected(drha.laplace(e)), bounds=(1, 4)).fun
    assert peak == pytest.approx(named.reach[1], abs=1e-4)
    twice = drha.choose_epsilon([[2, 0], [1, 1]], peak - 1e-9)
    assert len(twice.roots) == 2
    assert twice.roots[1] - twice.roots[0] < 0.1
    never = drha.choose_epsilon([[2, 0], [1, 1]], peak + 1e-9)
    assert never.roots == () and never.safe == math.inf
    assert 2.0 < never.proven < 2.1  # no proof passes a peak this close to the target
    assert "proven up to 2.0" in repr(never)
    with pytest.raises(drha.NoSafeEpsilon, match="never exceeds"):
        _ = never.epsilon


def test_a_wrong_bound_gives_a_wrong_epsilon():
    """Half the cells (4, 0, 0), half (2, 1, 1), target 0.25: the figures of three measures."""
    counts = [[4, 0, 0], [2, 1, 1]]
    bound = drha.choose_epsilon(counts, 0.25, measure="paper_bound").epsilon
    assert bound == pytest.approx(0.2242, abs=5e-5)
    noise = drha.laplace(bound)
    assert drha.local_risk(counts, noise).mean() == pytest.approx(0.2705, abs=5e-5)
    assert drha.local_risk(counts, noise, "refined").mean() == pytest.approx(0.1722, abs=5e-5)
    exact = drha.choose_epsilon(counts, 0.25)
    assert exact.roots == () and exact.safe == 0.0
    assert exact.reach[0] == pytest.approx(0.25)
    with pytest.raises(drha.NoSafeEpsilon, match="arbitrarily small epsilon"):
        _ = exact.epsilon


def test_a_coarse_range_does_not_weaken_the_proof():
    counts = [[3, 0, 0], [1, 1, 1], [7, 0, 0]]
    fine, coarse = (
        drha.choose_epsilon(counts, 0.4, between=between) for between in ((1e-6, 1e3), (0.2, 3.0))
    )
    assert coarse.epsilon == pytest.approx(fine.epsilon, rel=1e-8)
    assert coarse.proven == pytest.approx(coarse.safe, rel=1e-8)


def test_a_target_at_the_limit_itself_is_kept_but_not_proven():
    """The risk of (1, 1) starts at the target and falls; that of (1, 0) rises to it."""
    choice = drha.choose_epsilon([[0, 1], [1, 1]], 0.5, over="worst")
    assert choice.proven == 0.0
    assert "not proven" in repr(choice)
    assert choice.epsilon == choice.safe == pytest.approx(1.0696, abs=1e-4)


def test_tables_without_homogeneous_cells_have_no_choice():
    choice = drha.choose_epsilon([[1, 1], [5, 2]], 0.6)
    assert choice.safe == math.inf
    with pytest.raises(drha.NoSafeEpsilon, match="none of the 2 cells is homogeneous"):
        _ = choice.epsilon
    assert "no choice" in repr(choice)


def test_targets_below_the_floor_are_unreachable():
    choice = drha.choose_epsilon([[3, 0]], 0.25)
    assert not choice.reachable
    assert choice.roots == () and choice.safe == 0.0
    assert choice.sandwich == (math.inf, math.inf)
    assert drha.choose_epsilon([[3, 0]], 0.25 + 1e-7).epsilon < 1e-6  # beyond the default range


def test_delta_alone_limits_the_noise_and_so_the_risk():
    """The smallest sigma for (0, delta)-privacy is finite; large cells stay visible."""
    choice = drha.choose_epsilon([[269_083]], 0.7, "gaussian", delta=1e-6)
    assert choice.limits[0] == pytest.approx(0.75, abs=1e-4)
    assert choice.roots == () and choice.safe == 0.0
    assert drha.homogeneous_sandwich(0.5 + 1e-8, 1, "gaussian", delta=1e-6)[1] == math.inf


def test_roots_above_the_default_range():
    def noisy(epsilon):
        return drha.laplace(epsilon / 1e5)

    choice = drha.choose_epsilon([[1, 0]], 0.9, noisy)
    assert choice.epsilon == pytest.approx(1e5 * drha.choose_epsilon([[1, 0]], 0.9).epsilon)
    assert choice.mechanism == "noisy"


def test_weights_and_shapes():
    counts = np.array([[3, 0, 1], [1, 3, 0], [0, 0, 2], [5, 0, 0]])
    table = drha.FrequencyTable.from_counts(counts)
    shapes, shape = table.shapes
    np.testing.assert_array_equal(shapes[shape], np.sort(counts, axis=1))
    assert len(shapes) == 3
    noise = drha.geometric(0.4)
    for kind in ("exact", "refined", "paper_bound"):
        risk = drha.local_risk(counts, noise, kind)
        for over, value in {
            "cells": risk.mean(),
            "people": risk @ table.sizes / table.n_records,
            "worst": risk.max(),
        }.items():
            assert dataset_risk(table, kind, over)(noise) == pytest.approx(value, rel=1e-13)


def test_every_named_mechanism_and_a_large_table():
    rng = np.random.default_rng(5)
    counts = rng.poisson(rng.gamma(0.3, 3.0, (20_000, 5)))
    table = drha.FrequencyTable.from_counts(counts[counts.any(axis=1)])
    for mechanism in MECHANISMS:
        delta = None if mechanism in PURE else 1e-6
        choice = drha.choose_epsilon(table, 0.1, mechanism, delta=delta, between=(1e-3, 50))
        noise = resolve_mechanism(mechanism, delta)[1](choice.epsilon)
        risk = drha.local_risk(table, noise).mean()
        assert risk <= 0.1 + 1e-15
        if mechanism == "discrete-gaussian":  # its sigma may jump, and the risk with it
            assert choice.proven is None
        else:
            assert choice.proven <= choice.safe
            assert risk == pytest.approx(0.1, abs=1e-8)


@pytest.mark.parametrize(
    "convention", ["clip", "floor", "ceil", drha.conventions.Threshold(2.0), "signed"]
)
@pytest.mark.parametrize("family", [drha.laplace, drha.geometric])
def test_conventions_move_the_answer_and_the_proof_follows(convention, family):
    def mechanism(epsilon):
        return family(epsilon).with_convention(convention)

    counts = [[3, 0, 0], [2, 1, 0], [1, 1, 1]]
    risk = dataset_risk(drha.FrequencyTable.from_counts(counts))
    target = 0.5 * (risk(mechanism(1e-3)) + max(risk(mechanism(e)) for e in (0.1, 0.5, 1, 2, 5)))
    choice = drha.choose_epsilon(counts, target, mechanism)
    assert len(choice.roots) > 0
    scan = np.geomspace(1e-6, min(max(choice.safe, 1e-6), 1e3), 300)
    assert (max(risk(mechanism(e)) for e in scan) <= target) == (choice.safe > 0.0)
    assert (choice.proven is None) == (convention == "signed")
    if choice.proven is not None:
        assert choice.proven == pytest.approx(choice.safe, rel=1e-7)
        ends = [risk(mechanism(e)) for e in (1e-9, 5e8)]
        assert choice.limits == pytest.approx(ends, abs=1e-6)


def test_conventions_that_treat_counts_together_are_refused():
    with pytest.raises(drha.InvalidNoise):
        drha.choose_epsilon(
            [[3, 0]], 0.5, lambda e: drha.laplace(e).with_convention("rescale_cells")
        )


def test_substitution_halves_epsilon_of_pure_mechanisms():
    one, two = (
        drha.choose_epsilon([[2, 0], [1, 1]], 0.4, sensitivity=kind).epsilon
        for kind in ("add_remove", "substitution")
    )
    assert two == pytest.approx(2 * one)


def test_huge_counts_and_extreme_epsilons():
    choice = drha.choose_epsilon([[10**12, 0], [10**9, 1], [1, 0]], 0.6)
    assert np.isfinite(choice.risks).all()
    assert choice.proven > 0
    for epsilon in (1e-6, 1e3):
        risk = drha.local_risk([[10**12, 0, 0], [10**9, 10**9, 1]], drha.laplace(epsilon))
        assert np.isfinite(risk).all() and (risk >= 0).all() and (risk <= 1).all()


def test_one_level_only():
    choice = drha.choose_epsilon([[1], [4]], 0.8)
    assert choice.reach == pytest.approx((0.5, 1.0))
    assert choice.sandwich[0] == 0.0


def test_repr_tells_the_whole_answer():
    text = repr(drha.choose_epsilon([[2, 0]], 0.5))
    for words in ("<= 0.5 under laplace", "0.595282", "proven", "0.25 to 1", "1 of 1"):
        assert words in text


def test_plot_draws_roots_and_target():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    ax = drha.choose_epsilon([[2, 0], [1, 1]], 0.52).plot()
    assert ax.get_xscale() == "log"
    assert len(ax.lines[2].get_xdata()) == 2
    assert drha.choose_epsilon([[2, 0]], 0.2).plot(ax) is ax
    plt.close("all")


@pytest.mark.parametrize("target", [0, 1, -0.1, math.nan, math.inf, "low", None])
def test_bad_targets_are_refused(target):
    with pytest.raises(drha.InvalidQuestion, match="target must"):
        drha.choose_epsilon([[2, 0]], target)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"mechanism": "uniform"}, drha.InvalidQuestion, "'uniform' is unknown"),
        ({"mechanism": "gaussian"}, drha.InvalidQuestion, "needs delta"),
        ({"mechanism": "gaussian", "delta": 1.5}, drha.InvalidNoise, "delta must lie"),
        ({"mechanism": drha.laplace, "delta": 0.1}, drha.InvalidQuestion, "carries its own"),
        ({"mechanism": lambda e: e}, drha.InvalidNoise, "must be a count mechanism"),
        ({"mechanism": lambda e: drha.laplace(10.0 / e)}, drha.InvalidNoise, "noise grows"),
        ({"measure": "worst"}, drha.InvalidQuestion, "measure 'worst' is unknown"),
        ({"measure": lambda noise: math.nan}, drha.InvalidQuestion, "one finite number"),
        ({"measure": lambda noise: [0.1, 0.2]}, drha.InvalidQuestion, "one finite number"),
        ({"over": "rows"}, drha.InvalidQuestion, "over='rows' is unknown"),
        ({"between": (1.0, 1.0)}, drha.InvalidQuestion, "increasing, positive"),
        ({"between": 3}, drha.InvalidQuestion, "two numbers"),
    ],
)
def test_bad_questions_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        drha.choose_epsilon([[2, 0]], 0.5, **arguments)


def test_bad_tables_and_levels_are_refused():
    with pytest.raises(drha.InvalidTable, match="no records"):
        drha.choose_epsilon([[0, 0], [1, 0]], 0.5)
    with pytest.raises(drha.InvalidCounts):
        drha.choose_epsilon(None, 0.5)
    with pytest.raises(drha.InvalidQuestion, match="levels must"):
        drha.homogeneous_sandwich(0.5, 0)
