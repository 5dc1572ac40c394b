"""Anchor mechanisms: every exact quantity against all sets written down, and against draws."""

import itertools
import math

import numpy as np
import pytest
from channels import euclidean
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import all_pairs_optimum, discrete, line
from scipy.optimize import linprog

from dephdp import (
    AnchorSelection,
    anchor_mechanism,
    optimal_mechanism,
    privacy_level,
    public_anchor_mechanism,
)
from dephdp.certificate import log_ratios
from dephdp.errors import (
    DephdpError,
    InvalidBudget,
    InvalidChannel,
    InvalidDistribution,
    InvalidDomain,
    InvalidLoss,
    InvalidMetric,
)
from dephdp.metric import shortest_path_closure
from dephdp.optimal.anchors import (
    draw_sets,
    selection_cost,
    surrogate_distribution,
    surrogate_margin,
)


def nonempty_sets(count):
    for size in range(1, count + 1):
        yield from itertools.combinations(range(count), size)


def set_probability(row, chosen):
    """Pr(S) of independent draws, given that something was drawn: the definition."""
    together = math.prod(q if j in chosen else 1 - q for j, q in enumerate(row))
    return together / (1 - math.prod(1 - q for q in row))


def nearest(distances, chosen):
    return min(chosen, key=lambda j: (distances[j], j))


def instance(seed, states=6, ties=False, **options):
    rng = np.random.default_rng(seed)
    points = rng.integers(0, 3, (states, 2)) if ties else 3 * rng.random((states, 2))
    distances = euclidean(points)
    selection = AnchorSelection(
        alpha=rng.uniform(0.2, 0.95),
        far=10 ** rng.uniform(-4, -1),
        divisor=rng.uniform(1.01, 4),
        kernel=str(rng.choice(["exponential", "power", "logistic"])),
    )
    prior = rng.dirichlet(np.ones(states))
    loss = rng.random((states, states + 1))
    options = {"selection": selection, "tol": 1e-6} | options
    return prior, loss, distances, anchor_mechanism(prior, loss, distances, 2.0, **options)


# -- Phase I ---------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from([0.01, 0.5, 0.98]))
@settings(max_examples=40, deadline=None)
def test_the_cost_of_selection_is_the_worst_set(seed, candidates, scale):
    rng = np.random.default_rng(seed)
    q = rng.uniform(0.001, 0.999, (4, candidates))
    q[1] *= scale  # often below the others everywhere: then no candidate may be left out of all
    cost = selection_cost(q)
    for i, k in itertools.product(range(4), repeat=2):
        worst = max(
            math.log(set_probability(q[i], s) / set_probability(q[k], s))
            for s in nonempty_sets(candidates)
        )
        assert cost[i, k] == pytest.approx(0 if i == k else worst, abs=1e-9)


def test_one_candidate_is_always_selected_and_costs_nothing():
    assert np.abs(selection_cost([[0.9], [1e-4], [0.3]])).max() < 1e-12


def test_equal_probabilities_cost_nothing():
    assert np.abs(selection_cost(np.tile([0.2, 0.7, 0.9], (4, 1)))).max() < 1e-12


def test_naming_oneself_costs_the_same_at_every_distance():
    """With one near state each, cost = ln(alpha / far) + ln((1 - far) / (1 - alpha))."""
    distances = line([0.0, 1.0, 5.0, 40.0])
    q = AnchorSelection(divisor=100)(distances)
    cost = selection_cost(q)[~np.eye(4, dtype=bool)]
    assert np.allclose(cost, np.log(0.95 / 1e-4) + np.log((1 - 1e-4) / 0.05), rtol=1e-12)


def test_sets_are_drawn_as_their_probabilities_say():
    rng = np.random.default_rng(3)
    q = np.array([[0.3, 0.05, 0.6], [0.02, 0.03, 0.01]])
    draws = 200_000
    for i in range(2):
        sets = draw_sets(q, np.full(draws, i), rng)
        assert sets.any(axis=1).all()
        number = sets @ (1 << np.arange(3))
        for s in nonempty_sets(3):
            p = set_probability(q[i], s)
            share = (number == sum(1 << j for j in s)).mean()
            assert abs(share - p) < 4 * math.sqrt(p * (1 - p) / draws)


@pytest.mark.parametrize("kernel", ["exponential", "power", "logistic"])
def test_selection_falls_with_the_distance_and_ends_at_the_radius(kernel):
    distances = line(np.linspace(0, 2, 9))
    selection = AnchorSelection(divisor=2, decay=0.7, kernel=kernel)
    q = selection(distances)
    near = distances < selection.radius(distances)
    assert selection.radius(distances) == 1
    assert (q[~near] == selection.far).all() and (q[near] > selection.far).all()
    assert np.diag(q) == pytest.approx(selection.alpha)
    assert (np.diff(q[0, :4]) < 0).all()


def test_surrogates_are_the_nearest_of_the_set():
    rng = np.random.default_rng(5)
    distances = euclidean(rng.integers(0, 3, (5, 2)))  # with ties
    q = rng.uniform(0.05, 0.9, (5, 5))
    table = surrogate_distribution(q, distances)
    for i in range(5):
        expected = np.zeros(5)
        for s in nonempty_sets(5):
            expected[nearest(distances[i], s)] += set_probability(q[i], s)
        assert np.allclose(table[i], expected, atol=1e-12)


def test_the_margin_is_the_least_that_keeps_the_bound_often_enough():
    rng = np.random.default_rng(8)
    surrogates = rng.dirichlet(np.full(4, 0.5), 3)
    room, anchor_room = rng.random((3, 3)), 2 * rng.random((4, 4))
    delta = 0.2
    margin = surrogate_margin(room, anchor_room, surrogates, delta)

    def kept(i, k, xi, less=0.0):
        weight = np.outer(surrogates[i], surrogates[k])
        return weight[anchor_room - xi <= room[i, k] + 1e-12].sum() + less

    for i, k in itertools.product(range(3), repeat=2):
        assert kept(i, k, margin[i, k]) >= 1 - delta - 1e-12
        smaller = [x for x in (anchor_room - room[i, k]).ravel() if 0 <= x < margin[i, k] - 1e-9]
        # only the tails that were given up, delta / 4 for each state, can make a smaller one do
        assert all(kept(i, k, x) < 1 - delta / 2 for x in smaller)


# -- both phases -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"priced": False},
        {"priced": False, "neighbourhood": 1.0},
        {"anchors": [4, 0, 3], "priced": False},
        {"ties": True, "priced": False},
    ],
    ids=str,
)
def test_the_exact_level_is_that_of_all_sets(seed, options):
    *_, mechanism = instance(seed, **options)
    ratios = mechanism.log_ratios()
    written = log_ratios(mechanism.joint_channel().matrix)
    assert np.allclose(ratios, written, rtol=1e-9, atol=1e-9)
    level = privacy_level(mechanism.joint_channel().matrix, mechanism.distances)
    assert mechanism.privacy_level() == pytest.approx(level, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_loss_counts_both_phases(seed):
    prior, loss, _, mechanism = instance(seed, priced=False)
    assert mechanism.report_channel().expected_loss(prior, loss) == pytest.approx(mechanism.loss)
    joint = mechanism.joint_channel()
    repeated = np.tile(loss, (1, joint.outputs // loss.shape[1]))
    assert joint.expected_loss(prior, repeated) == pytest.approx(mechanism.loss, rel=1e-9)


def test_draws_have_the_loss_and_the_surrogates_that_were_computed():
    prior, loss, distances, mechanism = instance(2, priced=False)
    rng = np.random.default_rng(0)
    draws = 60_000
    states = rng.choice(len(prior), size=draws, p=prior)
    sets, reports = mechanism.sample(states, rng)
    lost = loss[states, reports]
    error = lost.std(ddof=1) / math.sqrt(draws)
    assert abs(lost.mean() - mechanism.loss) < 4 * error
    some = np.flatnonzero(states == 1)
    own = [nearest(distances[1], np.flatnonzero(s)) for s in sets[some]]
    for a, p in enumerate(mechanism.surrogates[1]):
        assert abs(np.mean(np.equal(own, a)) - p) < 4 * math.sqrt(p * (1 - p) / len(some)) + 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_the_probability_that_the_bound_holds(seed):
    *_, mechanism = instance(seed, priced=False, neighbourhood=2.0)
    joint = mechanism.joint_channel().matrix
    rng = np.random.default_rng(seed)
    for i, k in [(0, 1), (3, 2), (4, 5)]:
        allowed = math.exp(2.0 * mechanism.distances[i, k]) * (1 + 1e-9)
        exact = joint[i][joint[i] <= allowed * joint[k]].sum()
        assert mechanism.holding_probability(i, k) == pytest.approx(exact, abs=1e-9)
        estimate, error = mechanism.estimate_holding_probability(i, k, 20_000, rng)
        largest_error = math.sqrt(max(exact * (1 - exact), 0) / 20_000)  # an average of [0, 1]
        assert abs(estimate - exact) <= 4 * largest_error + 1e-9
        assert error <= 1.1 * largest_error + 1e-9
        assert exact >= 1 or mechanism.log_ratios()[i, k] > math.log(allowed) - 1e-6


def test_the_probability_of_independent_surrogates():
    *_, mechanism = instance(1, priced=False)
    cost, between = selection_cost(mechanism.probabilities), log_ratios(mechanism.rows)
    table = mechanism.surrogate_probabilities()
    for i, k in itertools.permutations(range(6), 2):
        kept = cost[i, k] + between <= 2.0 * mechanism.distances[i, k]
        expected = mechanism.surrogates[i] @ kept @ mechanism.surrogates[k]
        assert table[i, k] == pytest.approx(expected, abs=1e-12)


def test_phase_one_alone_is_never_repaired_by_phase_two():
    for seed in range(5):
        *_, mechanism = instance(seed)
        found = mechanism.certificate()
        assert found.level >= found.selection_level - 1e-9
        assert found.report_level <= found.level + 1e-9
        assert found.holds == (found.level <= 2.0)
        assert ("holds" if found.holds else "FAILS") in str(found)


def test_nothing_is_left_to_report_where_phase_one_spends_everything():
    distances = discrete(5)
    prior = np.array([0.4, 0.3, 0.1, 0.1, 0.1])
    mechanism = anchor_mechanism(prior, distances, distances, 5.0)
    assert np.ptp(mechanism.rows, axis=0).max() < 1e-12
    assert mechanism.loss == pytest.approx(0.6)
    found = mechanism.certificate()
    assert found.exhausted == 1 and found.report_level == 0 and not found.holds


def test_a_mild_selection_can_be_private():
    """Selection probabilities that hardly depend on the state leave budget for the report."""
    distances = discrete(4)
    selection = AnchorSelection(alpha=0.6, far=0.5, divisor=2)
    mechanism = anchor_mechanism(np.full(4, 0.25), distances, distances, 3.0, selection)
    found = mechanism.certificate()
    assert found.holds and found.selection_level < 1 and mechanism.loss < 0.75
    assert mechanism.holding_probability(0, 1) == pytest.approx(1)


def test_the_program_is_the_best_for_what_it_is_allowed():
    for seed in range(4):
        *_, mechanism = instance(seed, priced=False, delta=0.4)
        assert mechanism.program.gap < 1e-5
        best = all_pairs_optimum(mechanism.program.problem)
        assert mechanism.loss == pytest.approx(best, rel=1e-5)


# -- public anchors --------------------------------------------------------------------------------


def test_public_anchors_are_private_and_the_best_with_equal_rows():
    rng = np.random.default_rng(4)
    distances = euclidean(rng.random((8, 2)))
    prior, loss = rng.dirichlet(np.ones(8)), rng.random((8, 5))
    anchors = [1, 4, 6]
    channel = public_anchor_mechanism(prior, loss, distances, 3.0, anchors, tol=1e-7)
    assert channel.privacy_level() <= 3.0
    cell = distances[:, anchors].argmin(axis=1)
    rows, costs = [], np.zeros((3, 5))
    for i in range(8):
        costs[cell[i]] += prior[i] * loss[i]
        for k in range(8):
            for y in range(5):
                if cell[i] != cell[k]:
                    row = np.zeros((3, 5))
                    row[cell[i], y], row[cell[k], y] = 1, -math.exp(3.0 * distances[i, k])
                    rows.append(row.ravel())
    best = linprog(
        costs.ravel(),
        A_ub=rows,
        b_ub=np.zeros(len(rows)),
        A_eq=np.kron(np.eye(3), np.ones(5)),
        b_eq=np.ones(3),
    )
    assert best.status == 0
    assert channel.expected_loss(prior, loss) == pytest.approx(best.fun, rel=1e-6)


def test_all_states_as_public_anchors_are_the_optimal_mechanism():
    rng = np.random.default_rng(6)
    distances = euclidean(rng.random((6, 2)))
    prior, loss = rng.dirichlet(np.ones(6)), distances
    channel = public_anchor_mechanism(prior, loss, distances, 2.0, np.arange(6), tol=1e-7)
    best = optimal_mechanism(prior, loss, distances, 2.0, tol=1e-7)
    assert channel.expected_loss(prior, loss) == pytest.approx(best.loss, rel=1e-6)


# -- what is refused -------------------------------------------------------------------------------


def test_bad_arguments_are_named():
    distances = discrete(3)
    third = np.full(3, 1 / 3)

    def build(**changes):
        arguments = {"prior": third, "loss": distances, "distances": distances, "epsilon": 1.0}
        return anchor_mechanism(**(arguments | changes))

    with pytest.raises(InvalidDistribution):
        build(prior=[0.5, 0.5, 0.5])
    with pytest.raises(InvalidLoss):
        build(loss=np.full((3, 2), np.nan))
    with pytest.raises(InvalidMetric):
        build(distances=shortest_path_closure(distances) - 1)
    with pytest.raises(InvalidBudget):
        build(epsilon=0)
    with pytest.raises(InvalidBudget, match="delta"):
        build(delta=0)
    with pytest.raises(DephdpError, match="infinite"):
        build(distances=np.where(np.eye(3) == 1, 0, np.inf))
    for anchors in ([0, 3], [], [0.5], [1, 1]):
        with pytest.raises(InvalidDomain):
            build(anchors=anchors)
    with pytest.raises(InvalidChannel, match="state 0 selects candidate 0"):
        build(selection=lambda d: np.ones(d.shape))
    with pytest.raises(InvalidChannel, match="shape"):
        build(selection=lambda d: np.full((2, 3), 0.5))
    with pytest.raises(InvalidChannel, match="array of numbers"):
        selection_cost([["a"]])
    with pytest.raises(InvalidChannel, match="states, candidates"):
        selection_cost([0.5])
    for bad in ({"alpha": 1.0}, {"far": 0.0}):
        with pytest.raises(InvalidChannel, match="strictly"):
            AnchorSelection(**bad)
    for bad in ({"decay": 0}, {"divisor": np.inf}, {"kernel": "cosine"}):
        with pytest.raises(DephdpError):
            AnchorSelection(**bad)


def test_too_many_candidates_for_all_sets():
    mechanism = anchor_mechanism(np.full(15, 1 / 15), line(range(15)), line(range(15)), 1.0)
    for enumerated in (mechanism.joint_channel, lambda: mechanism.holding_probability(0, 1)):
        with pytest.raises(DephdpError, match="15 candidates"):
            enumerated()
    assert mechanism.privacy_level() > 1
