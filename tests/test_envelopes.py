import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dephdp.envelopes import (
    convex_majorant,
    convex_minorant,
    shift_majorant,
    shift_minorant,
    shifted_envelopes,
)
from dephdp.errors import InvalidBudget, InvalidLoss


def falling(rng, points, jumps=0.3):
    """A non-increasing curve, flat in places."""
    drops = rng.exponential(size=points) * (rng.random(points) < jumps)
    return drops[::-1].cumsum()[::-1]


def slopes(grid, values):
    return np.diff(values) / np.diff(grid)


def envelope_program(grid, values, below):
    """The linear programs (36) and (37), as printed."""
    u = cp.Variable(len(grid))
    constraints = [u <= values if below else u >= values]
    if len(grid) > 2:
        rise = cp.multiply(cp.diff(u), 1 / np.diff(grid))
        constraints.append(cp.diff(rise) >= 0)
    objective = cp.Maximize(cp.sum(u)) if below else cp.Minimize(cp.sum(u))
    cp.Problem(objective, constraints).solve(solver=cp.HIGHS)
    return u.value


@pytest.mark.parametrize("seed", range(12))
def test_the_hull_solves_the_linear_program_of_the_minorant(seed):
    rng = np.random.default_rng(seed)
    grid = np.cumsum(rng.uniform(0.1, 1, rng.integers(1, 15)))
    values = rng.normal(size=len(grid))
    expected = envelope_program(grid, values, below=True)
    np.testing.assert_allclose(convex_minorant(grid, values), expected, atol=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_the_majorant_attains_the_least_sum(seed):
    rng = np.random.default_rng(seed)
    grid = np.cumsum(rng.uniform(0.1, 1, rng.integers(1, 15)))
    values = rng.normal(size=len(grid))
    majorant = convex_majorant(grid, values)
    expected = envelope_program(grid, values, below=False)
    assert majorant.sum() == pytest.approx(expected.sum(), abs=1e-6)
    assert (majorant >= values).all()
    assert (np.diff(slopes(grid, majorant)) > -1e-5).all()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_the_minorant_is_convex_below_and_idempotent(values):
    grid = np.arange(len(values)) / 3
    minorant = convex_minorant(grid, values)
    scale = max(1.0, np.abs(values).max())
    assert (minorant <= values).all()
    assert (np.diff(slopes(grid, minorant)) >= -1e-9 * scale).all()
    np.testing.assert_allclose(convex_minorant(grid, minorant), minorant, atol=1e-12 * scale)
    # It touches the curve at both ends, and lies above every line below the curve.
    assert minorant[0] == values[0] and minorant[-1] == values[-1]


def test_rows_are_handled_alike():
    rng = np.random.default_rng(3)
    grid, curves = np.linspace(0, 1, 40), rng.normal(size=(2, 3, 40))
    together = convex_minorant(grid, curves)
    for i in range(2):
        for k in range(3):
            np.testing.assert_array_equal(together[i, k], convex_minorant(grid, curves[i, k]))


def test_no_least_convex_majorant_exists():
    grid, values = [0.0, 1.0, 2.0], np.array([1.0, 0.9, 0.0])
    first, second = np.array([1.0, 0.9, 0.8]), np.array([1.8, 0.9, 0.0])
    for majorant in (first, second):
        assert (majorant >= values).all()
        assert np.diff(majorant, 2).item() >= -1e-15
        assert majorant.sum() == pytest.approx(2.7)
    assert convex_majorant(grid, values).sum() == pytest.approx(2.7)
    assert np.diff(np.minimum(first, second), 2).item() < 0


@pytest.mark.parametrize("seed", range(20))
def test_shifted_envelopes_bound_every_non_increasing_curve_through_the_samples(seed):
    rng = np.random.default_rng(seed)
    grid = np.linspace(0, 2, 21)
    values = falling(rng, 21)
    lower, upper = shifted_envelopes(grid, values)
    fine = np.linspace(0, 2, 2001)
    # The extreme curves through the samples are the staircases.
    from_left = values[np.searchsorted(grid, fine, side="right") - 1]
    from_right = values[np.searchsorted(grid, fine - 1e-12)]
    assert (np.interp(fine, grid, lower) <= from_right + 1e-9).all()
    assert (np.interp(fine, grid, upper) >= from_left - 1e-9).all()
    for bound in (lower, upper):
        assert (np.diff(bound, 2) >= -1e-6).all()


def test_repeating_the_first_value_of_the_upper_bound_breaks_convexity():
    grid = np.linspace(0, 4, 5)
    values = np.exp(-grid)
    aligned = np.concatenate([values[:1], values[:-1]])
    assert np.diff(aligned, 2).min() < 0
    assert np.diff(shift_majorant(values), 2).min() >= 0
    np.testing.assert_array_equal(shift_minorant(values), [*values[1:], values[-1]])


def test_one_point_is_its_own_envelope():
    for function in (convex_minorant, convex_majorant):
        np.testing.assert_array_equal(function([2.0], [3.0]), [3.0])
    np.testing.assert_array_equal(np.ravel(shifted_envelopes([0.0], [3.0])), [3.0, 3.0])


@pytest.mark.parametrize(
    ("grid", "values", "error", "message"),
    [
        ([0.0, 0.0], [1.0, 1.0], InvalidBudget, r"budgets\[1\] = .*does not exceed"),
        ([0.0, -1.0], [1.0, 1.0], InvalidBudget, r"budgets\[1\] = .*nonnegative"),
        ([], [], InvalidBudget, "nonempty"),
        ([0.0, 1.0], [1.0], InvalidLoss, r"shape \(1,\), the grid has 2"),
        ([0.0, 1.0], [1.0, np.nan], InvalidLoss, "finite"),
        ([0.0, 1.0, 3.0], [1.0, 1.0, 1.0], InvalidLoss, "not uniform"),
        ([0.0, 1.0, 2.0], [1.0, 1.5, 1.0], InvalidLoss, "rises from sample 0 to 1"),
    ],
)
def test_bad_input_is_named(grid, values, error, message):
    with pytest.raises(error, match=message):
        shifted_envelopes(grid, values)


def test_a_majorant_is_one_curve():
    with pytest.raises(InvalidLoss, match="one curve"):
        convex_majorant([0.0, 1.0], np.ones((2, 2)))
