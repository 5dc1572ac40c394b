"""The estimator: certificates by brute force, stages in order, saved designs, bad input."""

import importlib.util
import json
import re
import subprocess
import sys
from functools import reduce
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dephdp
from dephdp import (
    DepHDP,
    Domain,
    EntropyEstimation,
    FrequencyEstimation,
    RecordTask,
    compose_budget,
    datasets,
    distance_matrix,
    privacy_level,
)
from dephdp.archive import alias_tables, induced_matrix
from dephdp.errors import (
    CertificationError,
    DephdpError,
    InvalidBudget,
    InvalidDomain,
    InvalidGroup,
    InvalidLoss,
    InvalidTask,
)

EXPONENTS = [1.0, 1.5, 2.0, 4.0, np.inf]


def people(rows=400, seed=0):
    rng = np.random.default_rng(seed)
    job = rng.choice(["none", "part", "full"], rows, p=[0.2, 0.3, 0.5])
    wage = np.where(job == "full", rng.integers(2, 5, rows), rng.integers(0, 3, rows))
    return pd.DataFrame({"job": job, "wage": wage, "flag": rng.random(rows) < 0.1})


def whole_record(design):
    """The channel of whole records and their distances, every record written down."""
    names = [name for group in design.groups_ for name in group.names]
    channel = reduce(lambda a, b: a.product(b, design.p), design.channels_)
    order = np.argsort([design.domain_.names.index(name) for name in names])
    sizes = [design.domain_[name].size for name in names]
    codes = np.indices(sizes).reshape(len(sizes), -1).T[:, order]
    weights = design.weights and {n: design.weights.get(n, 1.0) for n in design.domain_.names}
    return channel, distance_matrix(
        design.domain_, design.domain_.names, design.p, weights, codes=codes
    )


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    p=st.sampled_from(EXPONENTS),
    epsilon=st.floats(0.2, 12),
    select=st.sampled_from(["gain", "radial", "mse", "always", "never"]),
    noise=st.sampled_from(["exponential", "calibrated+remap", "tight+remap"]),
    composition=st.sampled_from(["theorem", "exact"]),
    weighted=st.booleans(),
)
def test_the_certificate_holds_for_every_pair_of_records(
    seed, p, epsilon, select, noise, composition, weighted
):
    weights = {"job": 2.0, "flag": 0.5} if weighted else None
    options = {"select": select, "noise": noise, "composition": composition, "weights": weights}
    rng = np.random.default_rng(seed)
    design = DepHDP(epsilon, p, points=9, pairs=200, **options).fit(people(60, seed), rng=rng)
    channel, distances = whole_record(design)
    level = privacy_level(channel.matrix, distances)
    assert level <= epsilon * (1 + 1e-12)
    assert design.certificate_.holds
    assert design.certificate_.level == pytest.approx(level, rel=1e-9)
    assert design.lower_bound_ <= design.loss_
    if composition == "theorem":
        assert compose_budget(design.certificate_.group_levels, p) <= epsilon * (1 + 1e-12)


def test_the_stages_do_what_they_say():
    frame = people()
    design = DepHDP(3.0, tol=1e-4, points=31).fit(frame, rng=np.random.default_rng(1))
    assert [group.names for group in design.groups_] == [("job", "wage"), ("flag",)]
    # One record changes 2 · 10⁵ / N² an attribute, and the attributes add up.
    assert design.surrogate_.coefficients == pytest.approx([1, 1])
    assert design.surrogate_.intercept == pytest.approx(0, abs=1e-9)
    losses = [
        channel.expected_loss(profile.prior, profile.loss)
        for channel, profile in zip(design.channels_, design.profiles_, strict=True)
    ]
    assert design.loss_ == pytest.approx(sum(losses))
    assert design.evaluate(frame) == pytest.approx(design.loss_)
    assert design.evaluate(people(seed=9)) != pytest.approx(design.loss_)


def test_more_freedom_never_costs():
    """Exact allocation beats envelopes and the even split; the exact product rule beats both."""

    def loss(**options):
        design = DepHDP(2.0, points=41, select="never", **options)
        return design.fit(people(), rng=np.random.default_rng(2)).loss_

    exact = loss()
    assert exact <= loss(allocation="envelope") + 1e-12
    assert exact <= loss(allocation="even") + 1e-12
    assert loss(composition="exact") <= exact + 1e-12
    assert loss(noise="tight+remap") <= loss(noise="exponential+remap") + 1e-12


def test_the_exact_product_rule_spends_what_theorem_1_leaves():
    """Two bits, one worth ten times the other: (ε, (√2 - 1) ε) is private, the ball has (ε, 0)."""
    rng = np.random.default_rng(0)
    bits = pd.DataFrame(rng.integers(0, 2, (500, 2)) == 1, columns=["a", "b"])

    def task(domain, codes):
        return RecordTask(domain, codes, lambda z: z, lambda x, y: (x != y) @ [10.0, 1.0])

    def fitted(composition):
        options = {"task": task, "select": "always", "points": 201, "tol": 1e-7}
        design = DepHDP(4.0, composition=composition, groups=["a", "b"], **options)
        return design.fit(bits, rng=np.random.default_rng(0))

    plain, spent = fitted("theorem"), fitted("exact")
    assert spent.loss_ < 0.83 * plain.loss_
    assert spent.lower_bound_ <= spent.loss_
    assert compose_budget(spent.allocation_.budgets, 2) > 4
    channel, distances = whole_record(spent)
    assert privacy_level(channel.matrix, distances) <= 4.0 * (1 + 1e-12)


def test_reports_follow_the_channels():
    frame = people(seed=4)
    design = DepHDP(2.5, allocation="even", select="never", noise="tight")
    design.fit(frame, rng=np.random.default_rng(0))
    record = frame.iloc[[0]]
    repeated = record.loc[record.index.repeat(100_000)]
    reports = design.domain_.encode(design.privatize(repeated, np.random.default_rng(5)))
    code = design.domain_.encode(record)
    for group, channel in zip(design.groups_, design.channels_, strict=True):
        expected = channel.matrix[group.states(code)[0]]
        counts = np.bincount(group.states(reports), minlength=group.size)
        error = np.sqrt(expected * (1 - expected) / len(reports))
        seen = error > 0
        assert np.abs((counts / len(reports) - expected)[seen] / error[seen]).max(initial=0) < 4.5
        assert (counts[~seen] == len(reports) * expected[~seen]).all()
    a, b = (group.states(reports) for group in design.groups_)
    joint = np.histogram2d(a, b, bins=[np.arange(g.size + 1) - 0.5 for g in design.groups_])[0]
    product = np.outer(joint.sum(axis=1), joint.sum(axis=0)) / joint.sum()
    chi = ((joint - product)[product > 5] ** 2 / product[product > 5]).sum()
    degrees = (np.array(joint.shape) - 1).prod()
    assert chi < degrees + 5 * np.sqrt(2 * degrees), "the groups' reports are independent"


def test_the_same_seed_gives_the_same_reports_and_the_index_is_kept():
    frame = people().set_index(np.arange(400) * 3)
    design = DepHDP(2.0).fit(frame, rng=np.random.default_rng(0))
    first, second = (design.privatize(frame, np.random.default_rng(7)) for _ in range(2))
    pd.testing.assert_frame_equal(first, second)
    assert first.index.equals(frame.index)
    assert list(first.columns) == list(frame.columns)
    assert not design.privatize(frame).equals(design.privatize(frame)), "fresh entropy each time"


@pytest.mark.parametrize("task", [EntropyEstimation, None])
def test_other_tasks(task):
    def own(domain, codes):
        return RecordTask(
            domain, codes, lambda z: z.astype(float), lambda a, b: (a - b) ** 2 @ [1, 2, 3]
        )

    design = DepHDP(2.0, task=task or own, select="always", points=9, tol=0.05)
    design.fit(people(80), rng=np.random.default_rng(0))
    assert design.certificate_.holds
    assert design.loss_ > 0
    assert (design.surrogate_.coefficients >= 0).all()


def test_drawn_contexts_estimate_the_loss_with_their_standard_error():
    """Against all records, by z-scores: the loss as it stands, and with the exact enumeration."""
    frame = people(300)
    options = {"task": EntropyEstimation, "groups": [["job", "wage"], ["flag"]], "pairs": None}
    options |= {"select": "never", "noise": "calibrated", "allocation": "even", "points": 3}
    exact = DepHDP(2.0, **options).fit(frame)
    assert exact.loss_error_ == 0
    z = []
    for seed in range(40):
        design = DepHDP(2.0, contexts=4, **options).fit(frame, np.random.default_rng(seed))
        assert design.certificate_.level == pytest.approx(exact.certificate_.level)
        z.append((design.loss_ - exact.loss_) / design.loss_error_)
    # four contexts a pair: the error is itself an estimate, so the tails are a little heavier
    assert abs(np.mean(z)) < 4 / np.sqrt(len(z))
    assert 0.5 < np.std(z) < 1.6


def test_drawn_contexts_do_not_flatter_an_optimised_design():
    """What was optimised looks better on its own contexts; the loss is of fresh ones."""
    frame = people(300)
    options = {"task": EntropyEstimation, "groups": [["job", "wage"], ["flag"]], "pairs": None}
    options |= {"select": "always", "points": 5, "tol": 1e-3}
    exact = DepHDP(2.0, **options).fit(frame)
    bounds, fresh, own = [], [], []
    for seed in range(12):
        design = DepHDP(2.0, contexts=2, **options).fit(frame, np.random.default_rng(seed))
        fresh.append((design.evaluate(frame, np.random.default_rng(seed + 100)), design.loss_))
        own.append(design.allocation_.loss)
        bounds.append(design.lower_bound_)
    fresh = np.array(fresh)
    error = np.sqrt(fresh.var(axis=0, ddof=1) / len(fresh)).max()
    assert abs(np.diff(fresh.mean(axis=0))[0]) < 4 * np.sqrt(2) * error
    assert np.mean(own) < fresh[:, 1].mean()
    assert np.mean(bounds) < exact.loss_ * (1 + 1e-3) + 4 * np.std(bounds) / np.sqrt(len(bounds))


def test_a_closed_form_needs_no_contexts():
    design = DepHDP(2.0, contexts=8, points=5).fit(people(), np.random.default_rng(3))
    plain = DepHDP(2.0, points=5).fit(people(), np.random.default_rng(3))
    assert design.loss_error_ == 0 and design.loss_ == pytest.approx(plain.loss_)
    with pytest.raises(InvalidTask, match="at least 2 contexts"):
        DepHDP(2.0, task=EntropyEstimation, contexts=1, points=5).fit(people(50))


def test_report_names_every_group_and_draws():
    design = DepHDP(2.0).fit(people(), rng=np.random.default_rng(0))
    report = design.report()
    assert report.table["attributes"].tolist() == ["job, wage", "flag"]
    assert report.table["level"].max() <= 2.0
    (legend,) = report.figure().legends
    assert [text.get_text() for text in legend.get_texts()] == ["job, wage", "flag"]
    assert "holds" in str(report)
    page = report.to_html()
    assert "<svg" in page
    assert 'aria-label="' in page
    assert "http" not in page.replace("http://www.w3.org", "").replace(
        "http://purl.org", ""
    ).replace("http://creativecommons.org", "").replace("https://matplotlib.org", "")


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_alias_tables_sample_what_they_should(seed, n, m):
    rng = np.random.default_rng(seed)
    matrix = rng.dirichlet(np.full(m, 0.2), n)
    matrix[rng.random((n, m)) < 0.2] = 1e-40
    matrix /= matrix.sum(axis=1, keepdims=True)
    keep, alias = alias_tables(matrix)
    assert ((keep >= 0) & (keep <= 1)).all()
    np.testing.assert_allclose(induced_matrix(keep, alias), matrix, rtol=1e-9, atol=0)


def test_saved_designs_come_back_and_hold_no_record(tmp_path):
    frame = people()
    design = DepHDP(2.0, np.inf, weights={"job": 0.5}).fit(frame, rng=np.random.default_rng(0))
    path = tmp_path / "design.npz"
    design.save(path)
    saved = DepHDP.load(path)
    assert saved.domain_ == design.domain_
    assert saved.certificate_ == design.certificate_
    for one, other in zip(saved.channels_, design.channels_, strict=True):
        np.testing.assert_array_equal(one.matrix, other.matrix)
    reports = saved.privatize(frame, np.random.default_rng(3))
    assert saved.domain_.encode(reports).shape == (400, 3)
    with np.load(path) as arrays:
        sizes = [arrays[name].shape for name in arrays.files if name != "header"]
        assert max(shape[0] for shape in sizes) <= max(group.size for group in design.groups_)


def test_a_file_that_was_tampered_with_is_refused(tmp_path):
    path = tmp_path / "design.npz"
    DepHDP(2.0).fit(people(), rng=np.random.default_rng(0)).save(path)
    with np.load(path) as arrays:
        content = dict(arrays)
    header = json.loads(str(content["header"]))
    content["header"] = json.dumps(header | {"epsilon": 0.5})
    np.savez(path, **content)
    with pytest.raises(CertificationError, match="FAILS"):
        DepHDP.load(path)
    content["header"] = json.dumps(header | {"format": 99})
    np.savez(path, **content)
    with pytest.raises(DephdpError, match="format"):
        DepHDP.load(path)


def test_the_client_needs_numpy_alone(tmp_path):
    frame = people()
    design = DepHDP(3.0, allocation="even", select="never", noise="tight")
    design.fit(frame, rng=np.random.default_rng(0)).save(tmp_path / "design.npz")
    records = {
        "job": ["full", "none"] * 20_000,
        "wage": [3, 0] * 20_000,
        "flag": [False, True] * 20_000,
    }
    (tmp_path / "records.json").write_text(json.dumps(records))
    script = """
import json, sys
sys.modules.update({name: None for name in ("scipy", "pandas", "numba", "cvxpy", "dephdp")})
import numpy as np
from client import Client
client = Client("design.npz")
records = json.load(open("records.json"))
print(json.dumps(client.privatize(records, np.random.default_rng(1))))
"""
    (tmp_path / "client.py").write_text(Path(dephdp.__file__).with_name("client.py").read_text())
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    reports = design.domain_.encode(pd.DataFrame(json.loads(run.stdout)))
    states = design.domain_.encode(pd.DataFrame(records))
    for group, channel in zip(design.groups_, design.channels_, strict=True):
        for row in (0, 1):
            expected = channel.matrix[group.states(states[[row]])[0]]
            counts = np.bincount(group.states(reports[row::2]), minlength=group.size)
            error = np.sqrt(expected * (1 - expected) * 20_000)
            seen = error > 0
            assert np.abs((counts - 20_000 * expected)[seen] / error[seen]).max(initial=0) < 4.5


def test_the_client_says_what_is_wrong(tmp_path):
    DepHDP(3.0).fit(people(), rng=np.random.default_rng(0)).save(tmp_path / "design.npz")
    spec = importlib.util.spec_from_file_location(
        "client", Path(dephdp.__file__).with_name("client.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    client = module.Client(tmp_path / "design.npz")
    with pytest.raises(ValueError, match="column 'flag' is missing"):
        client.privatize({"job": ["full"], "wage": [1]})
    with pytest.raises(ValueError, match="row 1, column 'job': 'spy'"):
        client.privatize({"job": ["full", "spy"], "wage": [1, 1], "flag": [True, True]})
    with pytest.raises(ValueError, match="one length"):
        client.privatize({"job": ["full"], "wage": [1, 1], "flag": [True, True]})


def test_bad_input_has_a_name():
    frame = people()
    with pytest.raises(DephdpError, match="not fitted"):
        DepHDP(1.0).privatize(frame)
    with pytest.raises(DephdpError, match="select must be one of"):
        DepHDP(1.0, select="best")
    with pytest.raises(DephdpError, match="exact"):
        DepHDP(1.0, composition="exact", allocation="even")
    with pytest.raises(InvalidGroup, match="partition"):
        DepHDP(1.0, groups=[["job"], ["flag"]]).fit(frame)
    with pytest.raises(InvalidDomain, match="weights"):
        DepHDP(1.0, weights={"age": 1.0}).fit(frame)
    with pytest.raises(InvalidTask, match="must return a Task"):
        DepHDP(1.0, task=lambda domain, codes: None).fit(frame)
    with pytest.raises(InvalidLoss, match="finite and nonnegative"):
        DepHDP(
            1.0, task=lambda d, c: RecordTask(d, c, lambda z: z[..., 0], lambda a, b: 0.0 * a - 1)
        ).fit(frame)
    design = DepHDP(1.0, states="observed").fit(frame, rng=np.random.default_rng(0))
    unseen = pd.DataFrame({"job": ["none"], "wage": [4], "flag": [True]})
    with pytest.raises(InvalidGroup, match="not a state"):
        design.privatize(unseen)
    with pytest.raises(InvalidDomain, match="job"):
        design.privatize(unseen.assign(job="spy"))


def test_degenerate_tables():
    constant = people().assign(same="x")
    design = DepHDP(2.0).fit(constant, rng=np.random.default_rng(0))
    assert design.certificate_.holds
    assert (design.privatize(constant)["same"] == "x").all()
    tiny = people(2)
    assert DepHDP(2.0).fit(tiny, rng=np.random.default_rng(0)).certificate_.holds
    single = people()[["job"]]
    assert DepHDP(2.0).fit(single, rng=np.random.default_rng(0)).certificate_.holds


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 50.0])
def test_extreme_budgets(epsilon):
    frame = people(100)
    design = DepHDP(epsilon, points=11).fit(frame, rng=np.random.default_rng(0))
    assert design.certificate_.holds
    never = DepHDP(epsilon, points=11, select="never", noise="exponential")
    assert design.loss_ <= never.fit(frame, rng=np.random.default_rng(0)).loss_ * (1 + 1e-6)


def test_budgets_and_exponents_out_of_range():
    for epsilon in (0, -1, np.nan, np.inf, "much"):
        with pytest.raises(InvalidBudget):
            DepHDP(epsilon)
    for p in (0.5, 0, np.nan):
        with pytest.raises(InvalidBudget):
            DepHDP(1.0, p)
    with pytest.raises(InvalidBudget, match="two samples"):
        DepHDP(1.0, points=1).fit(people(20))


def test_a_million_records():
    """Privatizing has no step whose memory grows faster than the records."""
    adult = datasets.load_adult()[["workclass", "sex", "race", "income"]].dropna()
    design = DepHDP(3.0, select="never").fit(adult, rng=np.random.default_rng(0))
    many = adult.loc[adult.index.repeat(22)][:1_000_000]
    reports = design.privatize(many, np.random.default_rng(1))
    assert len(reports) == 1_000_000


def test_domains_are_guessed_from_dtypes():
    frame = people()
    frame["size"] = pd.Categorical(["S", "M"] * 200, ["S", "M", "L"], ordered=True)
    frame["income"] = np.linspace(0, 1, 400)
    domain = Domain.infer(frame, bins=5)
    kinds = {attribute.name: (attribute.kind, attribute.size) for attribute in domain.attributes}
    assert kinds == {
        "job": ("nominal", 3),
        "wage": ("numeric", 5),
        "flag": ("nominal", 2),
        "size": ("ordinal", 3),
        "income": ("numeric", 5),
    }


def test_frequency_estimation_is_the_default_task():
    assert DepHDP(1.0).task is FrequencyEstimation


def test_the_script_of_the_readme_runs(tmp_path, monkeypatch):
    readme = (Path(dephdp.__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    section = readme.split("## Designing private reports")[1].split("\n## ")[0]
    script = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
    frame = people(300)
    frame.to_csv(tmp_path / "reference.csv", index=False)
    frame[:50].to_csv(tmp_path / "records.csv", index=False)
    monkeypatch.chdir(tmp_path)
    exec(compile(script, "README.md", "exec"), {})
    reports = pd.read_csv("reports.csv")
    assert reports.shape == (50, 3)
    assert set(reports["job"]) <= {"none", "part", "full"}
