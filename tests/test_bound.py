"""Lower bounds: below every private channel, whatever the multipliers; exact at the optimum."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dephdp.errors import (
    DephdpError,
    InvalidBudget,
    InvalidDistribution,
    InvalidLoss,
    InvalidMetric,
)
from dephdp.optimal.bound import cluster_bound, cluster_multipliers, lower_bound
from dephdp.optimal.problem import Multipliers, Problem


def random_problem(rng, n=5, m=4, epsilon=None):
    points = rng.random((n, 2))
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    epsilon = epsilon or float(rng.uniform(0.1, 8))
    return Problem(rng.dirichlet(np.ones(n)), rng.normal(size=(n, m)), distances, epsilon)


def random_private_channel(rng, problem):
    """Draw columns in the cone of private columns; the last one takes what the rows lack.

    Rays exp(-eps d(., c)) are private, and so are their positive combinations. The last column is
    private as soon as the others are small enough, since it then is nearly constant.
    """
    rays = np.exp(-problem.epsilon * problem.distances)
    others = rays @ rng.random((problem.states, problem.outputs - 1))
    scale = 1 / others.sum(axis=1).max()
    while True:
        last = 1 - scale * others.sum(axis=1)
        if (last > 0).all():
            excess = np.log(last[:, None] / last) - problem.epsilon * problem.distances
            if excess.max() <= 0:
                return np.column_stack([scale * others, last])
        scale /= 2


def random_multipliers(rng, problem, count=40, scale=0.1):
    n, m = problem.states, problem.outputs
    source = rng.integers(n, size=count)
    target = (source + rng.integers(1, n, size=count)) % n
    return Multipliers(source, target, rng.integers(m, size=count), scale * rng.random(count))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_any_multipliers_bound_any_private_channel(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng)
    bound = lower_bound(problem, random_multipliers(rng, problem))
    assert bound <= problem.expected_loss(random_private_channel(rng, problem)) + 1e-15


def exact_bound(problem, multipliers):
    """Evaluate the bound in rational arithmetic, with exp(-x) enclosed from above."""
    n, m = problem.states, problem.outputs
    reduced = [
        [Fraction(problem.prior[x]) * Fraction(problem.loss[x, y]) for y in range(m)]
        for x in range(n)
    ]
    rows = zip(
        multipliers.source, multipliers.target, multipliers.output, multipliers.value, strict=True
    )
    for i, j, y, f in rows:
        x = Fraction(problem.epsilon) * Fraction(problem.distances[i, j])
        power = total = Fraction(1)  # exp(x) from below gives exp(-x) from above
        for k in range(1, 60):
            power *= x / k
            total += power
        reduced[j][y] -= Fraction(f)
        reduced[i][y] += Fraction(f) / total
    return sum(min(row) for row in reduced)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_bound_is_below_its_exact_value_and_close_to_it(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, n=4, m=3)
    multipliers = random_multipliers(rng, problem, scale=10.0 ** rng.integers(-3, 4))
    exact = exact_bound(problem, multipliers)
    bound = Fraction(lower_bound(problem, multipliers))
    assert bound <= exact
    assert float(exact - bound) <= 1e-13 * (1 + multipliers.value.sum())


def test_repeated_rows_add_up():
    problem = random_problem(np.random.default_rng(1))
    once = Multipliers([0, 0], [1, 1], [2, 2], [0.1, 0.2])
    summed = Multipliers([0], [1], [2], [0.30000000000000004])
    assert lower_bound(problem, once) == pytest.approx(lower_bound(problem, summed), abs=1e-14)


def test_without_multipliers_the_bound_is_the_loss_of_an_oracle():
    problem = random_problem(np.random.default_rng(2))
    oracle = problem.weighted_loss.min(axis=1).sum()
    assert lower_bound(problem, Multipliers.none()) == pytest.approx(oracle, abs=1e-14)


def test_one_cluster_is_the_whole_linear_program():
    """Randomised response on two states: the optimum is 1 / (1 + exp(eps))."""
    epsilon = 1.3
    problem = Problem([0.5, 0.5], 1 - np.eye(2), 1 - np.eye(2), epsilon)
    assert cluster_bound(problem, [0, 0]) == pytest.approx(1 / (1 + np.exp(epsilon)), rel=1e-7)
    assert cluster_bound(problem, [0, 1]) == pytest.approx(0, abs=1e-12)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_coarser_partitions_give_better_bounds(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, n=6, m=5)
    finest, coarser, whole = (
        cluster_bound(problem, labels)
        for labels in (range(6), [0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 0, 0])
    )
    assert finest <= coarser + 1e-7
    assert coarser <= whole + 1e-7
    assert whole <= problem.expected_loss(random_private_channel(rng, problem)) + 1e-9


def test_infinite_distances_carry_no_rows():
    distances = np.array([[0.0, np.inf], [np.inf, 0.0]])
    problem = Problem([0.5, 0.5], 1 - np.eye(2), distances, 1.0)
    assert len(cluster_multipliers(problem, [0, 1])) == 0
    forced = Multipliers([0], [1], [0], [0.25])  # a row with factor zero: only the target pays
    assert lower_bound(problem, forced) == pytest.approx(0, abs=1e-15)
    assert lower_bound(problem, Multipliers([0], [1], [0], [0.75])) == pytest.approx(-0.25)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"prior": [0.5, 0.6]}, InvalidDistribution, "sums to"),
        ({"prior": [1.5, -0.5]}, InvalidDistribution, r"prior\[1\]"),
        ({"prior": [np.nan, 1.0]}, InvalidDistribution, r"prior\[0\]"),
        ({"prior": [1.0]}, InvalidDistribution, "shape"),
        ({"loss": [[0.0, np.nan], [1.0, 0.0]]}, InvalidLoss, r"loss\[0, 1\]"),
        ({"loss": [[0.0, 1.0]]}, InvalidLoss, "shape"),
        ({"loss": np.empty((2, 0))}, InvalidLoss, "shape"),
        ({"loss": [0.0, 1.0]}, InvalidLoss, "shape"),
        ({"loss": [[0.0, 1.0], [1.0]]}, InvalidLoss, "shape"),
        ({"distances": [[0.0, 1.0], [2.0, 0.0]]}, InvalidMetric, "symmetric"),
        ({"distances": [[0.0, -1.0], [-1.0, 0.0]]}, InvalidMetric, "nonnegative"),
        ({"distances": [[0.0, np.nan], [np.nan, 0.0]]}, InvalidMetric, "nonnegative"),
        ({"distances": [[1.0, 1.0], [1.0, 0.0]]}, InvalidMetric, "from itself"),
        ({"distances": [[0.0, 1.0]]}, InvalidMetric, "square"),
        ({"epsilon": 0.0}, InvalidBudget, "epsilon"),
        ({"epsilon": np.inf}, InvalidBudget, "epsilon"),
        ({"epsilon": np.nan}, InvalidBudget, "epsilon"),
    ],
)
def test_bad_problems_are_refused_by_name(change, error, message):
    good = {
        "prior": [0.5, 0.5],
        "loss": [[0.0, 1.0], [1.0, 0.0]],
        "distances": [[0.0, 1.0], [1.0, 0.0]],
        "epsilon": 1.0,
    }
    with pytest.raises(error, match=message) as caught:
        Problem(**(good | change))
    assert isinstance(caught.value, DephdpError)


def test_problem_is_immutable():
    problem = random_problem(np.random.default_rng(3))
    with pytest.raises(ValueError, match="read-only"):
        problem.loss[0, 0] = 1.0
    with pytest.raises(AttributeError):
        problem.epsilon = 2.0


@pytest.mark.parametrize("value", [[-0.1], [np.nan], [np.inf]])
def test_multipliers_must_be_non_negative_and_finite(value):
    with pytest.raises(ValueError, match="non-negative"):
        Multipliers([0], [1], [0], value)
