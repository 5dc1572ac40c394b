"""The estimator on the size of the paper's first case study, and a million reports."""

import numpy as np
import pytest

from book.cases.census import CensusSample
from dephdp import DepHDP, Domain, allocate_budget, datasets, loss_curves

GROUPS = [  # the partition of the case study, whose sizes its tables show
    ["age", "education", "race", "capital_gain", "hours_per_week", "income"],
    ["workclass"],
    ["fnlwgt", "relationship", "sex", "capital_loss", "native_country"],
    ["education_num"],
    ["marital_status"],
    ["occupation"],
]


@pytest.fixture(scope="module")
def adult():
    frame = datasets.load_adult().drop(columns="split").dropna()
    return frame.astype(dict.fromkeys(frame.select_dtypes("category"), str))


def design(rows, **options):
    numeric = {name: (rows[name].min(), rows[name].max()) for name in rows.select_dtypes("number")}
    domain = Domain.from_frame(rows, [c for c in rows if c not in numeric], numeric=numeric)
    return DepHDP(10.0, domain=domain, groups=GROUPS, states="observed", points=51, **options)


@pytest.mark.parametrize(
    ("select", "limit"),
    [
        ("never", 20),
        pytest.param(
            "always",
            1800,
            marks=pytest.mark.xfail(
                reason="not reached yet: a large group keeps a gap above 5 % at middle budgets"
            ),
        ),
    ],
    ids=["noise", "certified optimum"],
)
def test_full_configuration_of_case_one(benchmark, adult, select, limit):
    """300 records, six groups, two of them near 300 states, 50 budgets each."""
    rows = adult.sample(300, random_state=0)
    fitted = []

    def fit():
        jobs = 2 if select == "never" else 1  # the optimal mechanism uses both cores on its own
        options = {"select": select, "prior": "uniform", "tol": 0.05, "pairs": None, "jobs": jobs}
        options["time_limit"] = limit / 120  # a hundred budgets of the large groups share the time
        fitted.append(design(rows, **options).fit(rows, rng=np.random.default_rng(0)))

    benchmark.pedantic(fit, rounds=1)
    best = fitted[-1]
    sizes = [group.size for group in best.groups_]
    benchmark.extra_info.update(states=sizes, loss=best.loss_, lower_bound=best.lower_bound_)
    assert sorted(sizes)[-2] > 250
    assert best.certificate_.holds
    if select == "always":
        assert max(curve.gaps.max() for curve in best.curves_) <= 0.05
    assert benchmark.stats.stats.min <= limit


def test_certified_curves_of_case_one(benchmark):
    """The same size with the metric of the paper's experiments: Euclidean between z-scores."""
    sample = CensusSample.draw(np.random.default_rng(0))
    budgets = np.linspace(0, 10, 51)
    limit = 1800
    found = []

    def run():
        options = {"tol": 0.05, "time_limit": limit / 40}
        found.append(loss_curves(sample.profiles, ["optimal"] * 6, budgets, **options))

    benchmark.pedantic(run, rounds=1)
    curves = found[-1]
    sizes = sorted(curve.distances.shape[0] for curve in curves)
    gaps = np.array([curve.gaps for curve in curves])
    losses = np.array([curve.losses for curve in curves])
    bounds = np.array([curve.lower_bounds for curve in curves])
    best = allocate_budget(budgets, losses, 4.0, lower_bounds=bounds)
    benchmark.extra_info.update(states=sizes, gap=gaps.max(), loss=best.loss, gap_at_four=best.gap)
    assert sizes[-2] > 250
    assert gaps.max() <= 0.05
    assert benchmark.stats.stats.min <= limit


def test_a_million_reports(race, adult):
    """Record by record with numpy, and the whole table at once."""
    columns = ["age", "workclass", "education", "marital_status", "relationship", "sex", "income"]
    people = adult[columns]
    numeric = {"age": [17, 25, 35, 45, 55, 65, 91]}
    domain = Domain.from_frame(people, [c for c in columns if c != "age"], numeric=numeric)
    fitted = DepHDP(8.0, domain=domain, select="never")
    fitted.fit(people[:5000], rng=np.random.default_rng(0))
    million = people.loc[people.index.repeat(23)][:1_000_000]
    few = million[:300]
    rng = np.random.default_rng(1)

    def record_by_record():
        codes = domain.encode(few)
        for group, channel in zip(fitted.groups_, fitted.channels_, strict=True):
            for state in group.states(codes):
                rng.choice(channel.outputs, p=channel.matrix[state])

    peers = {"numpy.random.Generator.choice": (record_by_record, len(few))}
    ratios = race(
        "private reports", lambda: fitted.privatize(million, rng), peers, len(million), rounds=3
    )
    assert ratios["numpy.random.Generator.choice"] > 5
    assert len(million) == 1_000_000
