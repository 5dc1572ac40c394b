"""Races: the product against its peers in one run, judged by ratios and never by the clock.

A benchmark asks for the ``race`` fixture, names the competitors and asserts on the ratio that comes
back; the rates are recorded in ``extra_info`` and printed as one table at the end. Run with
``pytest tests/benchmarks -o addopts= --benchmark-only``.
"""

import time

import pytest

RESULTS = pytest.StashKey[list]()
ROWS = pytest.StashKey[list]()


@pytest.fixture
def race(benchmark, request):
    """Time ``ours`` and each peer on the same work; return {peer: how many times slower it is}.

    ``work`` counts the items (reports, cells, levels) that one call of ``ours`` handles, and
    ``peers`` maps a name to (function, its work), so that a slow peer may do less.
    """

    def run(title, ours, peers, work=1, rounds=5):
        benchmark.pedantic(ours, rounds=rounds, warmup_rounds=1)
        rates = {"dephdp / drha": work / benchmark.stats.stats.min}
        for name, (function, amount) in peers.items():
            function()
            rates[name] = amount / min(_seconds(function) for _ in range(rounds))
        own = rates["dephdp / drha"]
        ratios = {name: own / rate for name, rate in rates.items()}
        benchmark.extra_info["rates per second"] = rates
        benchmark.extra_info["ratios"] = ratios
        request.config.stash.setdefault(RESULTS, []).append((title, rates, ratios))
        return ratios

    return run


@pytest.fixture
def speed_table(request):
    """Return a function that enters one measured solve in the table printed at the end."""

    def enter(title, epsilon, seconds, gap=None, peak=None, ratio=None):
        columns = [
            f"{title:<52}",
            f"{'' if epsilon is None else f'{epsilon:g}':>7}",
            f"{seconds:>11.4g}",
            f"{'' if gap is None else f'{gap:.1e}':>10}",
            f"{'' if peak is None else f'{peak / 2**20:.0f}':>10}",
            f"{'' if ratio is None else f'{ratio:.0f}':>9}",
        ]
        request.config.stash.setdefault(ROWS, []).append("".join(columns))

    return enter


def _seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def pytest_terminal_summary(terminalreporter, config):
    rows = config.stash.get(ROWS, [])
    if rows:
        terminalreporter.section("optimal mechanisms")
        names = f"{'instance':<52}{'epsilon':>7}{'seconds':>11}{'gap':>10}{'MiB':>10}{'slower':>9}"
        for line in (names, *rows):
            terminalreporter.write_line(line)
    results = config.stash.get(RESULTS, [])
    if not results:
        return
    terminalreporter.section("races")
    for title, rates, ratios in results:
        terminalreporter.write_line(title)
        for name, rate in rates.items():
            terminalreporter.write_line(f"  {name:<44}{rate:>14.4g}/s{ratios[name]:>10.1f}x")
