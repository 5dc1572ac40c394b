"""The optimal mechanism against its peers, and the sizes that they do not reach.

Run with ``pytest tests/benchmarks/test_optimal_speed.py -o addopts= --benchmark-only -s``; peers
run first and in the same process. Everything in the table printed at the end is measured.
"""

import time
from pathlib import Path

import highspy
import numpy as np
import pytest
import qif
from scipy import sparse

from dephdp import Domain, datasets, distance_matrix, optimal_curve, optimal_mechanism
from tests import instances

MEMORY = 2 * 2**30  # peak of the process, where nothing else is said


def random_instance(kind, n, seed=0):
    """Random loss: zero on the diagonal, half a uniform number plus the distance elsewhere."""
    width = round(np.sqrt(n))
    if kind == "grid":
        distances = instances.grid(width, 2) / (width - 1)
    elif kind == "line":
        distances = instances.line(1.4 * np.arange(n) / (n - 1))
    else:
        distances = instances.discrete(n)
    rng = np.random.default_rng(seed)
    prior = rng.dirichlet(np.full(n, 2.0))
    loss = rng.random((n, n)) / 2 + distances
    np.fill_diagonal(loss, 0)
    return prior, loss, distances


def squared_instance(n):
    prior, _, distances = random_instance("grid", n)
    return prior, distances**2, distances


def adult_instance(prior):
    """Age in ten bins, relationship and race of the Adult records: 300 states, Hamming loss."""
    names = ["age", "relationship", "race"]
    frame = datasets.load_adult()[names].dropna()
    frame["age"] = frame["age"].clip(upper=89)
    domain = Domain.from_frame(
        frame, nominal=names[1:], numeric={"age": np.linspace(15, 90, 11).tolist()}
    )
    codes = domain.ravel(domain.encode(frame), names)
    states = len(distance_matrix(domain, names))
    sizes = [attribute.size for attribute in domain.group(names)]
    levels = np.array(np.unravel_index(np.arange(states), sizes)).T
    hamming = (levels[:, None] != levels[None]).sum(axis=2).astype(float)
    counts = np.bincount(codes, minlength=states) if prior == "empirical" else np.ones(states)
    return counts / counts.sum(), hamming, distance_matrix(domain, names)


def highs_all_pairs(prior, loss, distances, epsilon):
    """Solve the linear program with all pairs by HiGHS's interior point; return its optimum."""
    n, m = loss.shape
    x, other = np.nonzero(~np.eye(n, dtype=bool))
    pairs = np.arange(len(x))
    ratio = np.exp(epsilon * distances[x, other])
    rows = sparse.csr_array((np.ones(len(x)), (pairs, x)), (len(x), n))
    rows = rows - sparse.csr_array((ratio, (pairs, other)), (len(x), n))
    matrix = sparse.vstack(
        [sparse.kron(rows, sparse.eye_array(m)), sparse.kron(sparse.eye_array(n), np.ones((1, m)))],
        format="csr",
    )
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = n * m, matrix.shape[0]
    program.col_cost_ = (prior[:, None] * loss).ravel()
    program.col_lower_, program.col_upper_ = np.zeros(n * m), np.ones(n * m)
    program.row_lower_ = np.concatenate([np.full(len(x) * m, -highspy.kHighsInf), np.ones(n)])
    program.row_upper_ = np.concatenate([np.zeros(len(x) * m), np.ones(n)])
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = matrix.indptr
    program.a_matrix_.index_ = matrix.indices
    program.a_matrix_.value_ = matrix.data
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("solver", "ipm")
    solver.passModel(program)
    solver.run()
    assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return solver.getInfo().objective_function_value


def qif_all_pairs(prior, loss, distances, epsilon):
    """Solve it by qif, which is given no hint about which pairs are implied by others."""
    channel = qif.mechanism.d_privacy.min_loss_given_d(
        prior,
        loss.shape[1],
        lambda x, other: epsilon * distances[x, other],
        lambda x, y: loss[x, y],
    )
    return float((prior[:, None] * loss * np.array(channel)).sum())


PEERS = {"HiGHS interior point, all pairs": highs_all_pairs, "qif, all pairs": qif_all_pairs}


def seconds(function):
    start = time.perf_counter()
    value = function()
    return value, time.perf_counter() - start


def peak_memory(function):
    """Return the function's value and the process's peak of resident memory meanwhile (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    value = function()
    lines = Path("/proc/self/status").read_text().splitlines()
    return value, next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compile every kernel before anything is timed."""
    for kind, n in (("line", 12), ("grid", 9), ("discrete", 12)):
        optimal_mechanism(*random_instance(kind, n), 4.0)


def run(benchmark, speed_table, title, instance, epsilon, gap, limit, memory=MEMORY, rounds=1):
    """Time one solve, check its certificate, gap, time and memory, and enter it in the table."""
    answers, peaks = [], []

    def solve():
        answer, peak = peak_memory(lambda: optimal_mechanism(*instance, epsilon, tol=gap))
        answers.append(answer)
        peaks.append(peak)

    benchmark.pedantic(solve, rounds=rounds, warmup_rounds=1 if rounds > 1 else 0)
    took, answer = benchmark.stats.stats.min, answers[-1]
    benchmark.extra_info.update(gap=answer.gap, peak=max(peaks), iterations=answer.iterations)
    speed_table(title, epsilon, took, answer.gap, max(peaks))
    assert answer.channel.privacy_level() <= epsilon
    assert answer.gap <= gap
    assert max(peaks) <= memory
    assert took <= limit
    return answer, took


@pytest.mark.parametrize(
    ("kind", "gap", "least"),
    [
        ("line", 1e-7, {"HiGHS interior point, all pairs": 1000}),
        ("grid", 1e-6, {"HiGHS interior point, all pairs": 50, "qif, all pairs": 50}),
    ],
)
def test_against_peers_at_64_states(benchmark, speed_table, kind, gap, least):
    instance = random_instance(kind, 64)
    title = f"{kind}, n = 64"
    answer, took = run(benchmark, speed_table, title, instance, 4.0, gap, 60, rounds=10)
    ratios = {}
    for name in least:
        optimum, peer_took = seconds(lambda name=name: PEERS[name](*instance, 4.0))
        ratios[name] = peer_took / took
        speed_table(f"{title}: {name}", 4.0, peer_took, ratio=ratios[name])
        assert optimum == pytest.approx(answer.loss, rel=1e-3)
    benchmark.extra_info["times faster"] = ratios
    for name, factor in least.items():
        assert ratios[name] >= factor, name


@pytest.mark.parametrize(("n", "limit"), [(300, 5), (1000, 180)])
def test_line(benchmark, speed_table, n, limit):
    instance = random_instance("line", n)
    run(benchmark, speed_table, f"line, n = {n}", instance, 4.0, 1e-6, limit)


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 10.0])
@pytest.mark.parametrize(("n", "limit"), [(300, 3), (600, 20)])
def test_discrete(benchmark, speed_table, n, limit, epsilon):
    instance = random_instance("discrete", n)
    run(benchmark, speed_table, f"discrete, n = {n}", instance, epsilon, 1e-6, limit)


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0, 16.0])
def test_grid_of_100(benchmark, speed_table, epsilon):
    instance = random_instance("grid", 100)
    run(benchmark, speed_table, "grid, n = 100", instance, epsilon, 1e-6, 15)


def test_grid_of_289(benchmark, speed_table):
    instance = random_instance("grid", 289)
    run(benchmark, speed_table, "grid, n = 289", instance, 4.0, 1e-3, 40)


def test_squared_distance(benchmark, speed_table):
    run(benchmark, speed_table, "squared loss, n = 289", squared_instance(289), 4.0, 1e-2, 60)


@pytest.mark.parametrize("prior", ["empirical", "uniform"])
@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0, 8.0])
def test_adult_group(benchmark, speed_table, epsilon, prior):
    title = f"Adult group, {prior} prior"
    run(benchmark, speed_table, title, adult_instance(prior), epsilon, 1e-3, 60)


@pytest.mark.parametrize(
    ("n", "epsilon", "limit"), [(625, 4.0, 300), (1024, 1.0, 900), (1024, 4.0, 900)]
)
def test_large_grids(benchmark, speed_table, n, epsilon, limit):
    instance = random_instance("grid", n)
    title = f"grid, n = {n}"
    run(benchmark, speed_table, title, instance, epsilon, 1e-2, limit, memory=4 * 2**30)


def test_a_curve_of_fifty_budgets(benchmark, speed_table):
    instance, budgets = adult_instance("empirical"), np.linspace(0.2, 10, 50)
    curves = []
    benchmark.pedantic(lambda: curves.append(optimal_curve(*instance, budgets, tol=1e-2)), rounds=1)
    took, gap = benchmark.stats.stats.min, max(point.gap for point in curves[0])
    benchmark.extra_info.update(gap=gap)
    speed_table("Adult group, curve of 50 budgets", None, took, gap)
    assert all(point.channel.privacy_level() <= point.problem.epsilon for point in curves[0])
    assert gap <= 1e-2
    assert took <= 1200
