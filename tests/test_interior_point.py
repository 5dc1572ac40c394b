import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse.csgraph import shortest_path

from dephdp.certificate import privacy_level
from dephdp.optimal import interior_point, kernels, outputs
from dephdp.optimal.bound import lower_bound
from dephdp.optimal.lanes import Lanes
from dephdp.optimal.outputs import Certificates, Pricing
from dephdp.optimal.pairs import Neighbourhood
from dephdp.optimal.problem import Problem
from tests.instances import all_pairs_optimum


def grid(side, norm=2, step=1.0):
    points = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(-1, 2) * step
    return np.linalg.norm(points[:, None] - points[None], ord=norm, axis=-1)


def random_metric(n, rng):
    weights = rng.uniform(0.1, 2.0, (n, n))
    weights = np.triu(weights, 1)
    return shortest_path(weights + weights.T, directed=False)


def product_metric(shape, rng):
    parts = [random_metric(k, rng) for k in shape]
    total = np.zeros((1, 1))
    for part in parts:
        total = (total[:, None, :, None] + part[None, :, None, :] ** 2).reshape(
            len(total) * len(part), -1
        )
    return np.sqrt(total)


def euclidean_instance(side, seed=0):
    rng = np.random.default_rng(seed)
    d = grid(side, step=1 / (side - 1))
    n = len(d)
    return rng.dirichlet(np.full(n, 2.0)), d + rng.random((n, n)) / 2 * (1 - np.eye(n)), d


def bound_from_definition(problem, multipliers):
    """sum_x min_y (q_y - A'f_y)_x with dense multipliers, one output a time."""
    n, m = problem.loss.shape
    decay = np.exp(-problem.epsilon * problem.distances)
    reduced = np.empty((n, m))
    for y in range(m):
        f = np.zeros((n, n))
        mine = multipliers.output == y
        np.add.at(f, (multipliers.source[mine], multipliers.target[mine]), multipliers.value[mine])
        assert (f >= 0).all()
        reduced[:, y] = problem.weighted_loss[:, y] - (f.sum(axis=0) - (decay * f).sum(axis=1))
    return reduced.min(axis=1).sum()


def check(problem, tol=1e-7, **options):
    """Solve, verify everything that can be verified, return the loss."""
    result = interior_point.solve(problem, tol=tol, **options)
    assert result.status == "optimal"
    assert result.matrix.shape == problem.loss.shape
    assert (result.matrix >= 0).all()
    np.testing.assert_allclose(result.matrix.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert privacy_level(result.matrix, problem.distances) <= problem.epsilon
    loss = problem.expected_loss(result.matrix)
    bound = bound_from_definition(problem, result.multipliers)
    scale = max(abs(loss), 1e-6 * np.ptp(problem.weighted_loss, axis=1).sum())
    assert loss - bound <= tol * scale * (1 + 1e-3) + 1e-14
    assert bound <= loss + 1e-13
    assert lower_bound(problem, result.multipliers) == pytest.approx(bound, abs=1e-11)
    return loss


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["grid", "random", "product", "line", "discrete"]))
    n = draw(st.integers(2, 8))
    if kind == "grid":
        d = grid(3, norm=draw(st.sampled_from([1, 2, np.inf])))[:n, :n]
    elif kind == "random":
        d = random_metric(n, rng)
    elif kind == "product":
        d = product_metric((2, 3), rng)
    elif kind == "line":
        x = np.sort(rng.random(n)) + np.arange(n) * 0.1
        d = np.abs(np.subtract.outer(x, x))
    else:
        d = 1.0 - np.eye(n)
    n = len(d)
    m = draw(st.integers(1, 9))
    prior = rng.dirichlet(np.ones(n))
    if draw(st.booleans()):
        prior[rng.integers(n)] = 0.0
        prior /= prior.sum()
    loss = rng.random((n, m)) if draw(st.booleans()) else rng.normal(size=(n, m))
    epsilon = 10 ** draw(st.floats(-2, np.log10(20)))
    return Problem(prior, loss, d, epsilon)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems())
def test_agrees_with_the_linear_programme(problem):
    loss = check(problem)
    spread = np.ptp(problem.weighted_loss, axis=1).sum()
    assert loss == pytest.approx(all_pairs_optimum(problem), rel=1e-6, abs=2e-7 * spread)


@pytest.mark.parametrize(
    ("side", "norm", "optimum"),
    [
        (4, 1, 1.0410975671),
        (6, 1, 1.2542376135),
        (8, 1, 1.3654159862),
        (4, 2, 1.0888543635),
        (6, 2, 1.3241170155),
        (8, 2, 1.4496712543),
    ],
)
def test_known_optima_of_unit_grids(side, norm, optimum):
    d = grid(side, norm)
    n = len(d)
    assert check(Problem(np.full(n, 1 / n), d, d, 1.0)) == pytest.approx(optimum, rel=2e-7)


@pytest.fixture
def few_states_are_many(monkeypatch):
    """Let the rough program propose outputs for instances small enough to test."""
    monkeypatch.setattr(outputs, "_MANY", 40)
    monkeypatch.setattr(outputs, "_CLUSTERS", 25)


@pytest.mark.parametrize("epsilon", [1.0, 16.0])
def test_proposed_outputs_lead_to_the_same_optimum(epsilon, few_states_are_many, monkeypatch):
    prior, loss, d = euclidean_instance(8)
    problem = Problem(prior, loss, d, epsilon)
    proposed = check(problem, tol=1e-6)
    monkeypatch.setattr(outputs, "_MANY", 1000)
    assert proposed == pytest.approx(check(problem, tol=1e-6), rel=1e-6)


def test_outputs_that_the_proposal_misses_are_generated(few_states_are_many, monkeypatch):
    """A proposal of a third of the outputs that matter grows until all others are certified."""
    monkeypatch.setattr(outputs, "_SURPLUS", 0.3)
    d = grid(7, step=1 / 6)
    prior = np.full(49, 1e-4)
    prior[[3, 25, 44]] = (1 - 46e-4) / 3
    problem = Problem(prior, d**2, d, 6.0)
    hood = Neighbourhood.build(d, 6.0)
    with Lanes(1) as lanes:
        proposed, _ = outputs.choose_outputs(
            problem, np.ascontiguousarray(problem.weighted_loss.T), hood, lanes
        )
    used = interior_point.solve(problem, tol=1e-5).matrix.max(axis=0) > 1e-2
    assert not set(np.flatnonzero(used)) <= set(proposed)
    check(problem, tol=1e-5)


def test_a_crowded_rough_program_proposes_whatever_is_best_somewhere(few_states_are_many):
    """At a large budget nearly every state keeps its own report; those of no weight do not."""
    prior, loss, d = euclidean_instance(7)
    prior[::4] = 0
    problem = Problem(prior / prior.sum(), loss, d, 60.0)
    hood = Neighbourhood.build(d, 60.0)
    q = np.ascontiguousarray(problem.weighted_loss.T)
    with Lanes(1) as lanes:
        proposed, _ = outputs.choose_outputs(problem, q, hood, lanes)
    assert proposed.tolist() == np.flatnonzero(prior).tolist()
    check(problem, tol=1e-5)


@pytest.mark.parametrize("m", [1, 2, 30])
def test_rectangular_losses(m):
    rng = np.random.default_rng(1)
    d = random_metric(9, rng)
    problem = Problem(rng.dirichlet(np.ones(9)), rng.random((9, m)), d, 1.5)
    assert check(problem) == pytest.approx(all_pairs_optimum(problem), rel=1e-6)


def test_one_state():
    problem = Problem([1.0], [[3.0, 2.0, 5.0]], [[0.0]], 1.0)
    assert check(problem) == 2.0


def test_output_that_is_best_everywhere_is_used_alone():
    loss = np.array([[1.0, 0.0], [2.0, 0.5], [0.3, 0.1]])
    result = interior_point.solve(Problem([0.2, 0.3, 0.5], loss, grid(2)[:3, :3], 1.0), tol=1e-9)
    np.testing.assert_array_equal(result.matrix, [[0, 1]] * 3)


def test_dominated_output_is_not_used():
    prior, loss, d = euclidean_instance(5)
    loss = np.column_stack([loss, loss[:, 7] + 0.1])
    result = interior_point.solve(Problem(prior, loss, d, 3.0), tol=1e-7)
    assert result.matrix[:, -1].max() < 1e-5


def test_states_without_prior_are_protected():
    prior, loss, d = euclidean_instance(4)
    prior[5:12] = 0.0
    problem = Problem(prior / prior.sum(), loss, d, 5.0)
    assert check(problem) == pytest.approx(all_pairs_optimum(problem), rel=1e-6)


def test_infinite_distances_ask_for_nothing():
    """Two components and a lonely state: the optimum is the sum of their own."""
    rng = np.random.default_rng(2)
    parts = [random_metric(4, rng), random_metric(5, rng), np.zeros((1, 1))]
    n = sum(map(len, parts))
    d, begin, separate = np.full((n, n), np.inf), 0, 0.0
    prior, loss = rng.dirichlet(np.ones(n)), rng.random((n, 6))
    for part in parts:
        at = slice(begin, begin + len(part))
        d[at, at] = part
        mass = prior[at].sum()
        separate += mass * all_pairs_optimum(Problem(prior[at] / mass, loss[at], part, 2.0))
        begin += len(part)
    assert check(Problem(prior, loss, d, 2.0)) == pytest.approx(separate, rel=1e-6)


def test_distances_so_large_that_decay_underflows():
    prior, loss, d = euclidean_instance(4)
    best = (prior * loss.min(axis=1)).sum()
    assert check(Problem(prior, loss + 1, 1e4 * d, 1.0)) == pytest.approx(best + 1, rel=1e-6)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-4])
def test_tiny_budget(epsilon):
    prior, loss, d = euclidean_instance(4)
    problem = Problem(prior, loss, d, epsilon)
    constant = (prior @ loss).min()
    assert constant * (1 - 10 * epsilon) < check(problem) <= constant * (1 + 1e-7)


def near_duplicates(apart):
    """Six pairs of states, the two of a pair at most `apart` from each other."""
    rng = np.random.default_rng(3)
    points = np.repeat(rng.random((6, 2)), 2, axis=0) + apart / 2 * rng.random((12, 2))
    d = np.linalg.norm(points[:, None] - points[None], axis=-1)
    return Problem(rng.dirichlet(np.ones(12)), rng.random((12, 12)), d, 3.0)


def test_states_that_almost_coincide():
    problem = near_duplicates(1e-3)
    assert check(problem, tol=1e-6) == pytest.approx(all_pairs_optimum(problem), rel=2e-6)


def test_rounding_ends_the_search_with_an_honest_gap():
    """States 1e-6 apart: the normal equations lose what a gap of 1e-6 would need."""
    problem = near_duplicates(1e-6)
    result = interior_point.solve(problem, tol=1e-6)
    assert privacy_level(result.matrix, problem.distances) <= problem.epsilon
    loss, bound = problem.expected_loss(result.matrix), lower_bound(problem, result.multipliers)
    assert bound <= all_pairs_optimum(problem) + 1e-9
    assert all_pairs_optimum(problem) - 1e-9 <= loss <= bound * (1 + 1e-3)


def test_deadline_returns_a_certified_answer():
    prior, loss, d = euclidean_instance(9)
    problem = Problem(prior, loss, d, 4.0)
    result = interior_point.solve(problem, tol=1e-9, deadline=time.monotonic() + 0.05)
    assert result.status == "time_limit"
    assert privacy_level(result.matrix, d) <= 4.0
    loss = problem.expected_loss(result.matrix)
    assert lower_bound(problem, result.multipliers) <= loss < (prior @ problem.loss).max()


def test_same_input_same_output():
    prior, loss, d = euclidean_instance(8)
    first, second = (interior_point.solve(Problem(prior, loss, d, 4.0), tol=1e-4) for _ in range(2))
    np.testing.assert_array_equal(first.matrix, second.matrix)
    np.testing.assert_array_equal(first.multipliers.value, second.multipliers.value)


def test_start_from_another_budget():
    prior, loss, d = euclidean_instance(9)
    first = interior_point.solve(Problem(prior, loss, d, 3.0), tol=1e-3)
    problem = Problem(prior, loss, d, 3.5)
    warm = check(problem, tol=1e-5, start=first)
    assert warm == pytest.approx(check(problem, tol=1e-5), rel=1e-5)


def test_progress_is_reported():
    prior, loss, d = euclidean_instance(4)
    seen = []
    interior_point.solve(
        Problem(prior, loss, d, 2.0), tol=1e-6, progress=lambda *pair: seen.append(pair)
    )
    losses, bounds = np.array(seen).T
    assert len(losses) > 5
    assert losses[-1] - bounds[-1] <= 1e-6 * losses[-1]


# -- the parts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 50])
@pytest.mark.parametrize("invert", [True, False])
def test_factor_against_lapack(n, invert):
    rng = np.random.default_rng(n)
    square = rng.random((n, n + 3))
    matrix = square @ square.T + 0.1 * np.eye(n)
    work = kernels.Workspace.for_states(n)
    work.matrix[:] = np.tril(matrix)
    factors = np.empty(n * (n + 1) // 2)
    pieces = work.matrix, factors, work.panel, work.panel_rows, work.pivot
    assert kernels.factor(*pieces, invert)
    lower = np.linalg.cholesky(matrix)
    np.testing.assert_allclose(factors, lower[np.tril_indices(n)], rtol=1e-9, atol=1e-12)
    if invert:
        inverse = np.linalg.inv(matrix)
        np.testing.assert_allclose(
            -np.tril(work.matrix), np.tril(inverse), rtol=0, atol=1e-11 * abs(inverse).max()
        )
    right = rng.normal(size=n)
    solution = np.empty(n)
    kernels.solve_factored(factors, right, solution)
    np.testing.assert_allclose(matrix @ solution, right, atol=1e-9)


def test_factor_refuses_an_indefinite_matrix():
    work = kernels.Workspace.for_states(3)
    work.matrix[:] = np.diag([1.0, -1.0, 2.0])
    pieces = work.matrix, np.empty(6), work.panel, work.panel_rows, work.pivot
    assert not kernels.factor(*pieces, False)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["grid", "random", "product"]))
def test_essential_pairs_imply_all_others(seed, kind):
    """Shortest paths over the kept pairs restore the metric, and no kept pair is implied."""
    rng = np.random.default_rng(seed)
    d = {"grid": lambda: grid(4), "random": lambda: random_metric(12, rng)}.get(
        kind, lambda: product_metric((3, 4), rng)
    )()
    hood = Neighbourhood.build(d, 1.0, stretches=[0.1])
    np.testing.assert_allclose(
        shortest_path(np.where(hood.essential, d, 0), directed=False), d, rtol=1e-10
    )
    n = len(d)
    spanner = np.zeros((n, n), dtype=bool)
    spanner[hood.base // n, hood.base % n] = True
    assert not (spanner & ~hood.essential).any()
    stretched = shortest_path(np.where(spanner, d, 0), directed=False)
    assert (stretched <= 1.5 * d + 1e-12).all()
    for i, k in zip(*np.nonzero(np.triu(hood.essential)), strict=True):
        detour = d[i] + d[k]
        detour[[i, k]] = np.inf
        assert detour.min() > d[i, k] * (1 - 1e-12)


def test_pair_lists_survive_the_layout():
    d = grid(3)
    hood = Neighbourhood.build(d, 1.0)
    lists = [hood.base, hood.base[::2], hood.base[:1]]
    rows = hood.rows(hood.listed(lists), 3)
    for y, keys in enumerate(lists):
        start = rows.start[y]
        at = slice(start[0], start[-1])
        i = np.repeat(np.arange(9), np.diff(start))
        np.testing.assert_array_equal(i * 9 + rows.other[at], keys)
        np.testing.assert_allclose(rows.decay[at], np.exp(-d[i, rows.other[at]]), rtol=1e-8)


@pytest.mark.parametrize("shift", [0.0, 0.3, 0.6])
def test_pricing_against_the_linear_programme(shift):
    """min <w, v> over the cone with sum n, by HiGHS, lies between what pricing proves."""
    rng = np.random.default_rng(4)
    d = grid(5, step=0.25)
    n, epsilon = 25, 3.0
    hood = Neighbourhood.build(d, epsilon)
    costs = rng.normal(size=(4, n)) + shift
    with Lanes(1) as lanes:
        pricing = Pricing(costs, 1e-6, hood, lanes)
        pricing.run()
    i, j = np.nonzero(~np.eye(n, dtype=bool))
    rows = np.zeros((len(i), n))
    rows[np.arange(len(i)), j] = -1
    rows[np.arange(len(i)), i] = np.exp(-epsilon * d[i, j])
    for y in range(4):
        exact = linprog(
            costs[y], A_ub=rows, b_ub=np.zeros(len(i)), A_eq=np.ones((1, n)), b_eq=[n]
        ).fun
        low = pricing.entries[y].min() * n
        assert low <= exact + 1e-7
        assert exact <= pricing.value[y] * n + 1e-7
        assert (pricing.entries[y].min() >= -1e-6) == (exact >= -1e-6 * n)


def test_certificates_are_what_they_claim():
    prior, loss, d = euclidean_instance(6)
    problem = Problem(prior, loss, d, 4.0)
    q = np.ascontiguousarray(problem.weighted_loss.T)
    prices = q.min(axis=0) + prior * np.random.default_rng(5).random(36)
    hood = Neighbourhood.build(d, 4.0)
    with Lanes(1) as lanes:
        certificates = Certificates(q, hood, lanes)
        missing, reduced = certificates.certify(np.arange(36), prices, 1e-5)
        found = certificates.multipliers(np.arange(36))
    assert 0 < len(missing) < 36
    entries = q.T.copy()
    np.subtract.at(entries, (found.target, found.output), found.value)
    decay = np.exp(-4.0 * d[found.source, found.target])
    np.add.at(entries, (found.source, found.output), decay * found.value)
    np.testing.assert_allclose(entries.min(axis=1), reduced, atol=1e-9)
    settled = np.setdiff1d(np.arange(36), missing)
    assert (entries[:, settled] >= prices[:, None] - 1.001e-5).all()
