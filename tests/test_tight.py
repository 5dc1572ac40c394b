"""Tight constraints: closed forms, an exact rational solve, an LP, and when it does not exist."""

import math
from fractions import Fraction

import numpy as np
import pytest
from channels import euclidean
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from dephdp import tight_constraints_mechanism
from dephdp.errors import InfeasibleMechanism, InvalidBudget, InvalidMetric


def grid(side, p):
    points = np.argwhere(np.ones((side, side))).astype(float)
    return np.linalg.norm(points[:, None] - points[None], ord=p, axis=2)


def line_masses(positions, epsilon):
    """K⁻¹1 on a sorted line in closed form: each neighbour at decay t takes away t / (1 + t)."""
    decay = np.exp(-epsilon * np.diff(positions))
    taken = decay / (1 + decay)
    masses = np.ones(len(positions))
    masses[:-1] -= taken
    masses[1:] -= taken
    return masses


def lp_masses_exist(kernel):
    """Phase one of a linear program: how far from one some row must sum when μ ≥ 0."""
    n = len(kernel)
    bounded = np.vstack([np.c_[kernel, -np.ones(n)], np.c_[-kernel, -np.ones(n)]])
    solution = linprog(
        np.r_[np.zeros(n), 1.0], A_ub=bounded, b_ub=np.r_[np.ones(n), -np.ones(n)], method="highs"
    )
    assert solution.status == 0
    return solution.fun < 1e-7


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.floats(1e-3, 100), st.integers(0, 2**32 - 1))
def test_on_a_line_it_exists_and_equals_its_closed_form(states, epsilon, seed):
    positions = np.cumsum(np.random.default_rng(seed).exponential(size=states)) / states
    channel = tight_constraints_mechanism(euclidean(positions), epsilon)
    # An entry of the kernel, off by one unit, moves the level by that unit over the distance.
    unit = 1e-15 / min(epsilon * np.diff(positions).min(initial=1), 1)
    assert channel.privacy_level() <= epsilon
    if states > 1:
        assert channel.privacy_level() == pytest.approx(epsilon, rel=100 * unit)
    expected = np.exp(-epsilon * euclidean(positions)) * line_masses(positions, epsilon)
    assert channel.matrix == pytest.approx(expected, rel=1e-9, abs=100 * unit)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1, 4, 20, 600])
def test_on_a_discrete_metric_it_is_randomised_response(epsilon):
    channel = tight_constraints_mechanism(1 - np.eye(7), epsilon)
    expected = np.exp(-epsilon * (1 - np.eye(7))) / (1 + 6 * math.exp(-epsilon))
    assert channel.matrix == pytest.approx(expected, rel=1e-9)
    assert epsilon * (1 - 1e-9) <= channel.privacy_level() <= epsilon


@pytest.mark.parametrize(
    ("side", "optimum"), [(4, 1.0410975671), (6, 1.2542376135), (8, 1.3654159862)]
)
def test_on_l1_grids_it_attains_the_known_optima(side, optimum):
    distances = grid(side, 1)
    prior = np.full(side**2, side**-2)
    channel = tight_constraints_mechanism(distances, 1.0)
    assert channel.expected_loss(prior, distances) == pytest.approx(optimum, abs=6e-11)


def solve_exactly(kernel):
    """Gauss-Jordan elimination in rational arithmetic of K μ = 1, K as stored."""
    rows = [[Fraction(float(v)) for v in row] + [Fraction(1)] for row in kernel]
    for k in range(len(rows)):
        pivot = next(i for i in range(k, len(rows)) if rows[i][k])
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [value / rows[k][k] for value in rows[k]]
        for i in range(len(rows)):
            if i != k and rows[i][k]:
                rows[i] = [a - rows[i][k] * b for a, b in zip(rows[i], rows[k], strict=True)]
    return np.array([float(row[-1]) for row in rows])


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 7), st.floats(0.05, 20), st.integers(0, 2**32 - 1))
def test_it_exists_exactly_if_the_rational_solution_is_nonnegative(states, epsilon, seed):
    distances = euclidean(np.random.default_rng(seed).random((states, 2)))
    kernel = np.exp(-epsilon * distances)
    masses = solve_exactly(kernel)
    if masses.min() < -1e-6:
        with pytest.raises(InfeasibleMechanism, match="negative"):
            tight_constraints_mechanism(distances, epsilon)
        assert not lp_masses_exist(kernel)
    elif masses.min() > 0:
        channel = tight_constraints_mechanism(distances, epsilon)
        assert channel.matrix == pytest.approx(kernel * masses, rel=1e-7, abs=1e-12)
        assert epsilon * (1 - 1e-6) <= channel.privacy_level() <= epsilon


def test_refusal_names_the_outputs_and_the_way_out():
    # A centre among six satellites: its own mass would have to be negative at a small budget.
    angles = np.arange(6) * math.pi / 3
    points = np.vstack([[0.0, 0.0], np.c_[np.cos(angles), np.sin(angles)]])
    with pytest.raises(InfeasibleMechanism, match=r"1 of 7 .*output 0\).*raise epsilon.*calibrat"):
        tight_constraints_mechanism(euclidean(points), 0.2)
    assert tight_constraints_mechanism(euclidean(points), 3.0).privacy_level() <= 3.0


def test_a_mass_that_is_exactly_zero_leaves_a_column_of_zeros():
    """A star of k leaves: the centre's mass is (1 - (k - 1) t) / (1 + t), zero at t = 1/(k - 1)."""
    leaves = 5
    distances = np.full((leaves + 1, leaves + 1), 2.0)
    distances[0, :] = distances[:, 0] = 1.0
    np.fill_diagonal(distances, 0.0)
    epsilon = math.log(leaves - 1)
    channel = tight_constraints_mechanism(distances, epsilon)
    assert (channel.matrix[:, 0] < 1e-12).all()
    assert channel.privacy_level() <= epsilon
    assert tight_constraints_mechanism(distances, epsilon + 1e-3).matrix[0, 0] > 1e-5
    with pytest.raises(InfeasibleMechanism, match="output 0"):
        tight_constraints_mechanism(distances, epsilon - 1e-3)


@pytest.mark.parametrize("relative", [0.0, 1e-15, -1e-15, 1e-9])
def test_a_singular_kernel_with_a_solution_is_solved(relative):
    """K_{3,3} at ε = ln 2: the kernel is singular, equal masses still solve the system."""
    sides = np.arange(6) // 3
    distances = np.where(sides[:, None] == sides, 2.0, 1.0)
    np.fill_diagonal(distances, 0.0)
    epsilon = math.log(2) * (1 + relative)
    channel = tight_constraints_mechanism(distances, epsilon)
    mass = 1 / (1 + 2 * 0.25 + 3 * 0.5)
    if abs(relative) < 1e-12:  # any of many solutions: those whose sides have masses a, 2/3 - a
        totals = channel.matrix.diagonal().reshape(2, 3).sum(axis=0)
        assert totals == pytest.approx(2 * mass, rel=1e-9)
    else:
        assert channel.matrix.diagonal() == pytest.approx(mass, rel=1e-6)
    assert epsilon * (1 - 1e-9) <= channel.privacy_level() <= epsilon


def test_states_at_distance_zero_are_one_state():
    positions = np.array([0.3, 0.0, 0.3, 1.0])
    channel = tight_constraints_mechanism(euclidean(positions), 2.0)
    merged = tight_constraints_mechanism(euclidean(positions[[1, 0, 3]]), 2.0)
    assert (channel.matrix[:, 2] == 0).all()
    assert (channel.matrix[0] == channel.matrix[2]).all()
    assert channel.matrix[np.ix_([1, 0, 3], [1, 0, 3])] == pytest.approx(merged.matrix, rel=1e-12)
    assert tight_constraints_mechanism(np.zeros((3, 3)), 1.0).privacy_level() == 0


def test_infinite_distances_separate_blocks():
    distances = np.full((5, 5), math.inf)
    distances[:2, :2] = 1 - np.eye(2)
    distances[2:, 2:] = 1 - np.eye(3)
    channel = tight_constraints_mechanism(distances, 1.5)
    assert (channel.matrix[:2, 2:] == 0).all()
    assert channel.matrix[0, 0] == pytest.approx(1 / (1 + math.exp(-1.5)))
    assert channel.matrix[2, 2] == pytest.approx(1 / (1 + 2 * math.exp(-1.5)))
    alone = tight_constraints_mechanism(np.where(np.eye(3), 0, math.inf), 1.0)
    assert (alone.matrix == np.eye(3)).all()


def test_reports_follow_the_closed_form():
    """Monte Carlo: the share of truthful reports from the middle of a line of five."""
    channel = tight_constraints_mechanism(euclidean(np.arange(5)), 1.0)
    draws = 200_000
    reports = channel.sample(np.full(draws, 2), np.random.default_rng(3))
    truthful = (1 - math.exp(-1)) / (1 + math.exp(-1))
    error = math.sqrt(truthful * (1 - truthful) / draws)
    assert abs((reports == 2).mean() - truthful) < 4 * error


def test_bad_input():
    with pytest.raises(InvalidBudget, match="epsilon"):
        tight_constraints_mechanism(1 - np.eye(3), 0.0)
    with pytest.raises(InvalidBudget, match="underflows"):
        tight_constraints_mechanism(1 - np.eye(3), 1000.0)
    with pytest.raises(InvalidMetric, match="triangle"):
        tight_constraints_mechanism([[0, 1, 3], [1, 0, 1], [3, 1, 0]], 1.0)
