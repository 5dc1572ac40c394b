"""The audit against its own definitions, its report in a browser, and the command line."""

import itertools
import math
import re
import shlex
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import sync_playwright
from test_book_pages import BROWSERS, OFFLINE, inspect

import drha
from drha.__main__ import main, parse_epsilons
from drha.auditing import describe
from drha.calibrate import MECHANISMS, PURE, resolve_mechanism

matplotlib.use("svg")


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(41)
    rows = 1500
    frame = pd.DataFrame(
        {
            "age": rng.choice(["<40", "40-64", "65+"], rows, p=[0.5, 0.35, 0.15]),
            "area": rng.integers(0, 40, rows),
            "sex": rng.choice(["f", "m"], rows),
            "ill": rng.choice(["no", "flu", "<b>&cancer"], rows, p=[0.85, 0.1, 0.05]),
            "rich": rng.random(rows) < 0.1,
        }
    )
    return frame


@pytest.fixture(scope="module")
def result(people):
    return drha.audit(
        people,
        ["age", "area", "sex"],
        ["ill", "rich"],
        mechanisms=list(MECHANISMS),
        epsilons=[0.1, 0.5, 2.0],
        delta=1e-5,
        target=0.3,
    )


def test_every_row_equals_its_definition_on_all_cells(result):
    assert len(result.risks) == 2 * len(MECHANISMS) * 3
    for row in result.risks.itertuples():
        table = result.table(row.sensitive)
        delta = None if row.mechanism in PURE else 1e-5
        assert math.isnan(row.delta) if delta is None else row.delta == delta
        noise = resolve_mechanism(row.mechanism, delta)[1](row.epsilon)
        risk = drha.table_risk(table, noise)
        error = drha.mean_absolute_error(table.counts, noise).mean()
        for value, expected in {
            row.scale: noise.scale,
            row.risk_cells: risk.average(),
            row.risk_people: risk.average(weighted=True),
            row.refined_cells: risk.average("refined"),
            row.refined_people: risk.average("refined", weighted=True),
            row.worst_risk: risk.exact.max(),
            row.disclosed_cells: risk.disclosed_cells.mean,
            row.any_disclosed: risk.disclosed_cells.at_least_one,
            row.mean_absolute_error: error,
        }.items():
            assert value == pytest.approx(expected, rel=1e-12)


def test_released_tables_have_the_audited_error_and_share(result):
    rng = np.random.default_rng(42)
    row = result.risks.iloc[1]
    table, noise = result.table(row["sensitive"]), result.noise(row["mechanism"], row["epsilon"])
    errors, shares = [], []
    for _ in range(800):
        released = noise.release(table.counts, rng)
        errors.append(np.abs(released - table.counts).mean())
        alone = (released > 0).sum(axis=1) == 1
        shares.append((table.counts * (released > 0) * alone[:, None]).sum() / table.n_records)
    for draws, exact in ((errors, row["mean_absolute_error"]), (shares, row["refined_people"])):
        z = (np.mean(draws) - exact) / (np.std(draws) / math.sqrt(len(draws)))
        assert abs(z) < 4


def test_the_original_table_is_described(people, result):
    table = result.table("ill")
    row = result.original.iloc[0]
    cells = people.groupby(["age", "area", "sex"])["ill"]
    assert row["records"] == len(people)
    assert row["cells"] == len(cells)
    assert row["k"] == cells.size().min()
    assert row["distinct_l"] == cells.nunique().min()
    assert row["homogeneous_cells"] == (cells.nunique() == 1).sum()
    assert row["exposed_people"] == cells.size()[cells.nunique() == 1].sum()
    assert row["cells_of_one"] == (cells.size() == 1).sum()
    assert row["entropy_l"] == 1.0
    both = people.groupby(["age", "area", "sex"])[["ill", "rich"]].nunique()
    assert result.completely_homogeneous == (both == 1).all(axis=1).sum()
    assert table.n_cells == row["cells"]


def test_entropy_diversity_of_a_diverse_table():
    counts = np.array([[5, 5, 0], [8, 1, 1], [2, 2, 2]])
    p = np.array([0.8, 0.1, 0.1])
    row = describe(drha.FrequencyTable.from_counts(counts))
    assert row["entropy_l"] == pytest.approx(math.exp(-(p * np.log(p)).sum()))
    assert (row["distinct_l"], row["k"], row["exposed_people"]) == (2, 6, 0)


def test_choices_are_those_of_choose_epsilon(result):
    assert len(result.choices) == 2 * len(MECHANISMS)
    for row in result.choices.itertuples():
        build = result.mechanisms[row.mechanism]
        choice = drha.choose_epsilon(result.table(row.sensitive), 0.3, build)
        assert row.roots == choice.roots
        if math.isnan(row.epsilon):
            with pytest.raises(drha.NoSafeEpsilon, match=re.escape(row.reason)):
                _ = choice.epsilon
        else:
            assert (row.epsilon, row.reason) == (choice.epsilon, "")
    assert result.choices["epsilon"].isna().tolist() == [False] * 6 + [True] * 6
    diverse = pd.DataFrame({"q": [1, 1, 2, 2], "s": [0, 1, 0, 1]})
    none = drha.audit(diverse, ["q"], "s", epsilons=[1.0], target=0.3).choices
    assert none["epsilon"].isna().all()
    assert none["reason"].str.contains("none of the 2 cells is homogeneous").all()


def test_cells_and_subgroups_at_one_epsilon(result):
    risk = result.at("geometric", 0.5, "rich")
    assert risk.average() == pytest.approx(
        result.risks.query("mechanism == 'geometric' and epsilon == 0.5")["risk_cells"].iloc[1]
    )
    assert risk.by("sex")["records"].sum() == 1500
    assert repr(result).startswith("Audit(1500 records, ")


def test_own_mechanisms_and_conventions(people):
    result = drha.audit(
        people,
        ["age"],
        "ill",
        mechanisms={"clipped": lambda e: drha.laplace(e).with_convention("clip")},
        epsilons=[1.0],
    )
    assert result.risks["mean_absolute_error"].isna().all()
    assert result.risks["mechanism"].tolist() == ["clipped"]
    assert "clipped" in result.to_html()


def test_one_level_singled_out_people_and_unobserved_levels(people):
    frame = people.assign(id=range(len(people)), constant="yes")
    alone = drha.audit(frame, ["id"], "constant", epsilons=[1.0])
    assert alone.original["homogeneous_cells"].iloc[0] == len(frame)
    assert alone.risks["risk_cells"].iloc[0] == pytest.approx(drha.laplace(1.0).survival(1))
    more = drha.audit(frame, ["id"], "constant", epsilons=[1.0], levels=["yes", "no", "maybe"])
    assert more.original["levels"].iloc[0] == 3
    assert more.risks["risk_cells"].iloc[0] < alone.risks["risk_cells"].iloc[0]
    named = drha.audit(frame, ["id"], ["constant"], epsilons=[1.0], levels={"constant": ["yes", 0]})
    assert named.original["levels"].iloc[0] == 2
    unused = frame.assign(
        age=pd.Categorical(frame["age"], ["100+", "65+", "40-64", "<40"]),
        ill=pd.Categorical(frame["ill"], ["no", "flu", "<b>&cancer", "gout"]),
    )
    result = drha.audit(unused, ["age"], "ill", epsilons=[1.0])
    assert result.original[["cells", "levels"]].iloc[0].tolist() == [3, 4]


def test_extreme_epsilons_give_finite_risks(people):
    result = drha.audit(
        people,
        ["age", "area"],
        "ill",
        mechanisms=list(MECHANISMS),
        epsilons=[1e-6, 1e3],
        delta=1e-5,
    )
    values = result.risks.drop(columns=["sensitive", "mechanism", "delta"])
    assert np.isfinite(values).all(axis=None) and (values >= 0).all(axis=None)
    assert result.to_html()


def test_missing_values_are_refused_or_counted(people):
    frame = people.astype({"ill": object})
    frame.loc[[3, 5], "ill"] = None
    frame.loc[7, "age"] = None
    with pytest.raises(drha.InvalidFrame, match="missing value"):
        drha.audit(frame, ["age"], "ill")
    result = drha.audit(frame, ["age"], "ill", epsilons=[1.0], missing="drop")
    assert result.dropped == 3
    assert result.original["records"].iloc[0] == 1497
    assert "3 records with a missing value" in result.to_html()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"mechanisms": "gauss"}, drha.InvalidQuestion, "'gauss' is unknown"),
        ({"mechanisms": ["laplace", "laplace"]}, drha.InvalidQuestion, "named twice"),
        ({"mechanisms": []}, drha.InvalidQuestion, "no mechanism"),
        ({"mechanisms": "gaussian"}, drha.InvalidQuestion, "needs delta"),
        ({"mechanisms": "gaussian", "delta": 1.0}, drha.InvalidNoise, "delta must lie"),
        ({"epsilons": []}, drha.InvalidQuestion, "at least one"),
        ({"epsilons": [1.0, -1.0]}, drha.InvalidQuestion, "positive and finite"),
        ({"epsilons": "high"}, drha.InvalidQuestion, "must be numbers"),
        ({"missing": "ignore"}, drha.InvalidQuestion, "'ignore' is unknown"),
        ({"target": 2.0}, drha.InvalidQuestion, "target must lie"),
        ({"levels": ["no"]}, drha.InvalidTable, "not one of the declared levels"),
        ({"quasi_identifiers": ["height"]}, drha.InvalidFrame, "'height' is not in the frame"),
        ({"quasi_identifiers": "age"}, drha.InvalidTable, "list of column names"),
        ({"quasi_identifiers": []}, drha.InvalidTable, "at least one column"),
        ({"sensitive": ["ill", "ill"]}, drha.InvalidTable, "named twice"),
        ({"sensitive": "age"}, drha.InvalidTable, "both"),
        ({"sensitive": ["ill", "rich"], "levels": [1]}, drha.InvalidQuestion, "pass a dict"),
        ({"frame": [1, 2]}, drha.InvalidFrame, "must be a pandas DataFrame"),
        ({"frame": [1, 2], "missing": "drop"}, drha.InvalidFrame, "must be a pandas DataFrame"),
    ],
)
def test_bad_questions_are_refused(people, arguments, error, message):
    usual = {"frame": people, "quasi_identifiers": ["age"], "sensitive": "ill", "epsilons": [1.0]}
    with pytest.raises(error, match=message):
        drha.audit(**usual | arguments)
    with pytest.raises(drha.InvalidQuestion, match="was not audited"):
        drha.audit(people, ["age"], "ill", epsilons=[1.0]).at("gaussian", 1.0)
    with pytest.raises(drha.InvalidQuestion, match="was not audited"):
        drha.audit(people, ["age"], "ill", epsilons=[1.0]).table("rich")


def test_pictures(result):
    import matplotlib.pyplot as plt

    for draw in (result.plot_risk, result.plot_risk_utility):
        ax = draw()
        assert len(ax.lines) == len(MECHANISMS)
        assert draw("rich", measure="refined_people", ax=ax) is ax
        assert ax.xaxis_inverted() == (draw == result.plot_risk_utility)
    plt.close("all")


class Tags(HTMLParser):
    """Collects the tags of a page and complains about any that stays open."""

    VOID = ("meta", "br", "img", "link", "hr", "input")

    def __init__(self, page):
        super().__init__()
        self.open, self.seen = [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_report_is_one_self_contained_page(result, tmp_path):
    page = result.to_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page
    tags = Tags(page).seen
    names = {tag for tag, _ in tags}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "audio", "video"}
    for tag, attributes in tags:
        for name, value in attributes.items():
            if name.split(":")[-1] in ("href", "src", "action", "data", "poster"):
                assert value.startswith("#"), (tag, name, value)
    assert "@import" not in page
    assert set(re.findall(r"url\((?!#)", page)) == set()
    pictures = [attributes for tag, attributes in tags if tag == "svg"]
    assert len(pictures) == 6
    assert all(p["role"] == "img" and "epsilon 0.1" in p["aria-label"] for p in pictures)
    assert "<b>&cancer" not in page
    assert page == result.to_html()


def test_the_report_looks_right_in_a_browser(result, tmp_path):
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert path, "no Chromium is installed (Debian: apt-get install chromium)"
    report = tmp_path / "report.html"
    result.to_html(report)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(OFFLINE))
        assert inspect(browser, report) == []
        browser.close()


@pytest.fixture(scope="module")
def csv(people, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "people.csv"
    people.to_csv(path, index=False)
    return str(path)


def test_command_line_in_a_process_of_its_own(csv, tmp_path):
    report, values = tmp_path / "report.html", tmp_path / "values.csv"
    command = f"-m drha audit {csv} --qid age,area --sensitive ill --epsilon 0.1:10:40"
    done = subprocess.run(
        [sys.executable, *command.split(), "--out", report, "--csv", values],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "homogeneous_cells" in done.stdout
    assert "<svg" in report.read_text(encoding="utf-8")
    table = pd.read_csv(values)
    assert len(table) == 80
    np.testing.assert_allclose(table["epsilon"][:40], np.geomspace(0.1, 10, 40))


def test_command_line_options(csv, capsys):
    options = ["audit", csv, "--qid", "age,sex", "--sensitive", "ill,rich"]
    more = ["--epsilon", "0.5,1", "--mechanism", "gaussian-pdp,geometric", "--delta", "1e-6"]
    levels = ["--levels", "ill=no,flu,<b>&cancer,gout", "--neighbours", "substitution"]
    assert main([*options, *more, *levels, "--target", "0.6", "--missing", "drop"]) == 0
    out = capsys.readouterr().out
    assert "Audit(1500 records, 6 cells; 'ill', 'rich'; gaussian-pdp, geometric" in out
    assert "target" in out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "absent.csv"}, "absent.csv"),
        ({"--qid": "age,height"}, "'height' is not in the frame"),
        ({"--qid": "age,ill"}, "both a quasi-identifier and the sensitive"),
        ({"--mechanism": "gaussian"}, "needs delta"),
        ({"--mechanism": "uniform"}, "'uniform' is unknown"),
        ({"--target": "1.5"}, "target must lie strictly between 0 and 1"),
        ({"--levels": "ill=no,flu"}, "not one of the declared levels"),
        ({"--levels": "rich=no"}, "'rich', which is not sensitive"),
        ({"--out": "/nonexistent/report.html"}, "/nonexistent/report.html"),
        ({"--epsilon": "0.1:10"}, "is not a grid"),
        ({"--epsilon": "0.1:10:4:cubic"}, "is not a grid"),
        ({"--epsilon": "0,1"}, "positive and finite"),
        ({"--qid": "age,,sex"}, "empty name"),
        ({"--levels": "no,flu"}, "is not NAME=LEVEL"),
        ({"--delta": "small"}, "invalid float"),
    ],
)
def test_command_line_errors_leave_with_status_2(csv, changes, message, capsys):
    usual = {"data": csv, "--qid": "age,area", "--sensitive": "ill", "--epsilon": "1"} | changes
    data = usual.pop("data")
    try:
        status = main(["audit", data, *itertools.chain(*usual.items())])
    except SystemExit as stop:
        status = stop.code
    seen = capsys.readouterr()
    assert status == 2
    assert message in seen.err
    assert "Traceback" not in seen.err


def test_command_line_on_files_that_are_no_table(tmp_path, capsys):
    for name, text in {
        "empty.csv": "",
        "ragged.csv": "a,b\n1,2\n1,2,3,4\n",
        "longer.csv": "a,b\n1,2,3\n1,2,3\n",
    }.items():
        (tmp_path / name).write_text(text)
        assert main(["audit", str(tmp_path / name), "--qid", "a", "--sensitive", "b"]) == 2
        assert "is not a CSV file" in capsys.readouterr().err
    (tmp_path / "header.csv").write_text("a,b\n")
    assert main(["audit", str(tmp_path / "header.csv"), "--qid", "a", "--sensitive", "b"]) == 2
    assert "no rows" in capsys.readouterr().err
    (tmp_path / "typed.csv").write_text("a,b\n1,2\n")
    typed = ["--qid", "a", "--sensitive", "b", "--levels", "b=two,three"]
    assert main(["audit", str(tmp_path / "typed.csv"), *typed]) == 2
    assert "not of the type" in capsys.readouterr().err


def test_what_the_readme_shows(people, tmp_path, monkeypatch, capsys):
    """Its command and its Python lines run as they stand, on a file of that shape."""
    monkeypatch.chdir(tmp_path)
    names = {"age": "a", "area": "b", "rich": "y"}
    people.rename(columns=names)[["a", "b", "y"]].to_csv("data.csv", index=False)
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    command = re.search(r"^python -m drha (audit .*)$", readme, re.MULTILINE)[1]
    assert main(shlex.split(command)) == 0
    assert "<svg" in (tmp_path / "report.html").read_text(encoding="utf-8")
    (tmp_path / "report.html").unlink()
    (code,) = re.findall(r"^```python\n(import drha\n.*?)^```", readme, re.MULTILINE | re.DOTALL)
    exec(code, {})
    assert (tmp_path / "report.html").exists()
    assert "entropy_l" in capsys.readouterr().out


def test_grids_of_epsilon():
    assert parse_epsilons("0.1:10:3") == pytest.approx((0.1, 1.0, 10.0))
    assert parse_epsilons("0.1:10:3:log") == pytest.approx((0.1, 1.0, 10.0))
    assert parse_epsilons("1:5:3:linear") == (1.0, 3.0, 5.0)
    assert parse_epsilons("0.5") == (0.5,)
    assert parse_epsilons("0.5,2") == (0.5, 2.0)
