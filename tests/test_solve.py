"""The door: every metric, every kind of input, and the certificate of each answer."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dephdp
from dephdp.errors import (
    DephdpError,
    InvalidBudget,
    InvalidDistribution,
    InvalidLoss,
    InvalidMetric,
)
from dephdp.optimal.bound import lower_bound
from dephdp.optimal.problem import Multipliers, Problem
from dephdp.optimal.program import optimal_mechanism_lp
from dephdp.optimal.solve import optimal_curve, optimal_mechanism
from tests import instances


def solve(problem, **options):
    return optimal_mechanism(
        problem.prior, problem.loss, problem.distances, problem.epsilon, **options
    )


def check(mechanism, tol=1e-6):
    assert mechanism.channel.privacy_level() <= mechanism.problem.epsilon
    assert mechanism.lower_bound <= mechanism.loss
    assert mechanism.gap <= tol
    assert mechanism.status == "optimal"
    assert mechanism.recompute_lower_bound() == pytest.approx(mechanism.lower_bound, abs=1e-15)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(instances.KINDS),
    st.floats(np.log(0.01), np.log(20)).map(np.exp),
)
def test_the_optimum_of_the_linear_program_is_reached(seed, kind, epsilon):
    problem = instances.problem(np.random.default_rng(seed), kind, float(epsilon))
    mechanism = solve(problem, tol=5e-7)
    check(mechanism)
    reference = optimal_mechanism_lp(
        problem.prior, problem.loss, problem.distances, problem.epsilon
    )
    scale = max(abs(reference.loss), reference.loss - problem.weighted_loss.min(axis=1).sum())
    slack = 1e-6 * scale + 1e-8  # what the reference's own solver resolves
    assert reference.lower_bound - slack <= mechanism.loss <= reference.loss + slack
    assert mechanism.lower_bound <= reference.loss + 1e-14


@pytest.mark.parametrize(
    ("width", "norm", "optimum"),
    [
        (4, 1, 1.0410975671),
        (6, 1, 1.2542376135),
        (8, 1, 1.3654159862),
        (4, 2, 1.0888543635),
        (6, 2, 1.3241170155),
        (8, 2, 1.4496712543),
    ],
)
def test_known_values_on_grids(width, norm, optimum):
    distances = instances.grid(width, norm)
    n = len(distances)
    mechanism = optimal_mechanism(np.full(n, 1 / n), distances, distances, 1.0)
    check(mechanism)
    assert mechanism.loss == pytest.approx(optimum, rel=1e-6)
    if norm == 1:
        tight = dephdp.tight_constraints_mechanism(distances, 1.0)
        tight_loss = tight.expected_loss(np.full(n, 1 / n), distances)
        assert tight_loss == pytest.approx(optimum, abs=5e-11)


@pytest.mark.parametrize("kind", instances.KINDS)
def test_the_answer_depends_on_nothing_but_the_arguments(kind):
    problem = instances.problem(np.random.default_rng(3), kind, 1.7, states=6, outputs=5)
    first, second = solve(problem), solve(problem)
    assert (first.channel.matrix == second.channel.matrix).all()
    assert first.lower_bound == second.lower_bound


@pytest.mark.parametrize("outputs", [1, 2, 9])
def test_rectangular_outputs(outputs):
    for kind in ("line", "random"):
        problem = instances.problem(np.random.default_rng(4), kind, 2.0, states=5, outputs=outputs)
        mechanism = solve(problem)
        check(mechanism)
        assert mechanism.channel.matrix.shape == (5, outputs)


@pytest.mark.parametrize("kind", ["line", "random"])
def test_states_at_distance_zero_are_one_state(kind):
    """Copies share a row exactly, and the optimum is that of the merged problem."""
    rng = np.random.default_rng(5)
    small = instances.problem(rng, kind, 1.5, states=4, outputs=4)
    copies = np.array([0, 1, 1, 2, 3, 3, 3])
    distances = small.distances[np.ix_(copies, copies)]
    prior, loss = rng.dirichlet(np.ones(7)), rng.random((7, 4))
    mechanism = optimal_mechanism(prior, loss, distances, 1.5)
    check(mechanism)
    matrix = mechanism.channel.matrix
    assert (matrix[1] == matrix[2]).all()
    assert (matrix[4] == matrix[5]).all()
    merged_prior = np.bincount(copies, prior)
    merged_loss = np.array([np.bincount(copies, prior * column) for column in loss.T]).T
    merged = optimal_mechanism(
        merged_prior, merged_loss / merged_prior[:, None], small.distances, 1.5
    )
    assert mechanism.loss == pytest.approx(merged.loss, rel=2e-6)


def test_all_states_in_one_place_get_one_answer():
    mechanism = optimal_mechanism([0.6, 0.4], 1 - np.eye(2), np.zeros((2, 2)), 3.0)
    assert mechanism.channel.matrix.tolist() == [[1, 0], [1, 0]]
    assert (mechanism.loss, mechanism.gap) == (0.4, pytest.approx(0, abs=1e-14))


def test_nothing_is_asked_between_states_at_infinite_distance():
    """Two components, solved alone; a third one of probability zero."""
    rng = np.random.default_rng(6)
    blocks = [instances.metric(rng, kind, 4) for kind in ("line", "random", "discrete")]
    distances = np.full((12, 12), np.inf)
    for k, block in enumerate(blocks):
        distances[4 * k : 4 * k + 4, 4 * k : 4 * k + 4] = block
    order = rng.permutation(12)
    prior = np.concatenate([rng.dirichlet(np.ones(8)), np.zeros(4)])
    loss = rng.random((12, 5))
    whole = optimal_mechanism(
        prior[order], loss[order], distances[np.ix_(order, order)], 2.0, tol=1e-7
    )
    check(whole)
    expected = 0.0
    for k in range(2):
        part = slice(4 * k, 4 * k + 4)
        weight = prior[part].sum()
        alone = optimal_mechanism(prior[part] / weight, loss[part], blocks[k], 2.0, tol=1e-7)
        expected += weight * alone.loss
    assert whole.loss == pytest.approx(expected, rel=1e-6)


def test_states_of_probability_zero_are_protected():
    distances = instances.line([0.0, 1.0, 2.0])
    mechanism = optimal_mechanism([0.5, 0, 0.5], distances, distances, 1.0)
    check(mechanism)
    reference = optimal_mechanism_lp([0.5, 0, 0.5], distances, distances, 1.0)
    assert mechanism.loss == pytest.approx(reference.loss, rel=2e-6)
    # Without the middle state, whose row must sum to one too, the ends could do better.
    ends = optimal_mechanism([0.5, 0.5], distances[[0, 2]], distances[np.ix_([0, 2], [0, 2])], 1.0)
    assert ends.loss < 0.9 * mechanism.loss


def test_one_state():
    mechanism = optimal_mechanism([1.0], [[0.3, 0.1, 0.2]], [[0.0]], 1.0)
    assert mechanism.channel.matrix.tolist() == [[0, 1, 0]]
    assert mechanism.loss == 0.1


def test_exponentials_that_underflow():
    """At 2,000 times the diameter the best report is all but certain, and still private."""
    for distances in (instances.line(np.arange(4.0)), instances.grid(2, 2)):
        loss = 1 - np.eye(4) + instances.line(np.arange(4.0))
        mechanism = optimal_mechanism(np.full(4, 0.25), loss, distances, 2000.0)
        assert mechanism.channel.privacy_level() <= 2000
        assert mechanism.loss < 1e-6
        assert mechanism.lower_bound <= mechanism.loss


def test_a_broken_triangle_is_refused_or_closed():
    broken = np.array([[0, 1, 5], [1, 0, 1], [5, 1, 0]], dtype=float)
    prior, loss = np.full(3, 1 / 3), 1 - np.eye(3)
    with pytest.raises(InvalidMetric, match=r"d\(0, 2\).*d\(0, 1\) \+ d\(1, 2\)"):
        optimal_mechanism(prior, loss, broken, 1.0)
    closed = optimal_mechanism(prior, loss, broken, 1.0, closure=True)
    check(closed)
    line = optimal_mechanism(prior, loss, instances.line(np.arange(3.0)), 1.0)
    assert closed.loss == pytest.approx(line.loss, rel=2e-6)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"prior": [0.5, 0.6]}, InvalidDistribution),
        ({"prior": [1.5, -0.5]}, InvalidDistribution),
        ({"prior": [np.nan, 0.5]}, InvalidDistribution),
        ({"prior": [1.0]}, InvalidDistribution),
        ({"loss": [[0, np.nan], [1, 0]]}, InvalidLoss),
        ({"loss": [[0, np.inf], [1, 0]]}, InvalidLoss),
        ({"loss": [[0, 1]]}, InvalidLoss),
        ({"distances": [[0, 1], [2, 0]]}, InvalidMetric),
        ({"distances": [[0, -1], [-1, 0]]}, InvalidMetric),
        ({"distances": [[0, np.nan], [np.nan, 0]]}, InvalidMetric),
        ({"distances": [[1, 1], [1, 0]]}, InvalidMetric),
        ({"epsilon": 0}, InvalidBudget),
        ({"epsilon": -1}, InvalidBudget),
        ({"epsilon": np.inf}, InvalidBudget),
        ({"epsilon": np.nan}, InvalidBudget),
        ({"epsilon": "much"}, InvalidBudget),
        ({"tol": 0}, DephdpError),
        ({"tol": np.nan}, DephdpError),
        ({"time_limit": -1}, DephdpError),
        ({"time_limit": "soon"}, DephdpError),
    ],
)
def test_bad_arguments_are_refused_by_name(change, error):
    good = {
        "prior": [0.5, 0.5],
        "loss": [[0, 1], [1, 0]],
        "distances": [[0, 1], [1, 0]],
        "epsilon": 1.0,
    }
    with pytest.raises(error):
        optimal_mechanism(**(good | change))


def test_time_limit_returns_a_certified_answer():
    rng = np.random.default_rng(7)
    for distances in (instances.discrete(40), instances.grid(6, 2)):
        n = len(distances)
        loss = np.where(np.eye(n) > 0, 0, rng.random((n, n)) + distances)
        mechanism = optimal_mechanism(np.full(n, 1 / n), loss, distances, 4.0, time_limit=1e-9)
        assert mechanism.status == "time_limit"
        assert mechanism.channel.privacy_level() <= 4
        assert mechanism.lower_bound <= mechanism.loss


@pytest.mark.parametrize("kind", ["line", "discrete", "grid"])
def test_a_curve_is_its_points_and_never_increases(kind):
    problem = instances.problem(np.random.default_rng(8), kind, 1.0, states=7, outputs=7)
    epsilons = [2.0, 0.5, 8.0, 1.0, 4.0]
    curve = optimal_curve(problem.prior, problem.loss, problem.distances, epsilons)
    for epsilon, mechanism in zip(epsilons, curve, strict=True):
        check(mechanism)
        assert mechanism.problem.epsilon == epsilon
        alone = optimal_mechanism(problem.prior, problem.loss, problem.distances, epsilon)
        assert mechanism.loss == pytest.approx(alone.loss, rel=2e-6)
    losses = [curve[k].loss for k in np.argsort(epsilons)]
    assert (np.diff(losses) <= 0).all()
    assert optimal_curve(problem.prior, problem.loss, problem.distances, []) == []


def test_the_bar_appears_on_request(capsys):
    two = instances.discrete(2)
    optimal_mechanism([0.5, 0.5], two, two, 1.0)
    assert capsys.readouterr().err == ""
    optimal_mechanism([0.5, 0.5], two, two, 1.0, progress=True)
    assert "optimal mechanism" in capsys.readouterr().err


def test_anyone_can_recompute_the_bound():
    two = instances.discrete(2)
    mechanism = optimal_mechanism([0.5, 0.5], two, two, 1.0)
    saved = {
        k: getattr(mechanism.multipliers, k).tolist()
        for k in ("source", "target", "output", "value")
    }
    problem = Problem([0.5, 0.5], two, two, 1.0)
    assert lower_bound(problem, Multipliers(**saved)) == mechanism.recompute_lower_bound()
    with pytest.raises(AttributeError):
        mechanism.loss = 0.0
    assert "status='optimal'" in repr(mechanism)
