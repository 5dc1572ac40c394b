"""The command line, from a CSV file to private reports."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dephdp
from dephdp import DepHDP
from dephdp.__main__ import main


@pytest.fixture
def files(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "city": rng.choice(["north", "south", "NA"], 120),
            "size": rng.choice(["S", "M", "L"], 120),
            "age": rng.integers(18, 90, 120),
            "grade": rng.integers(1, 4, 120),
        }
    )
    monkeypatch.chdir(tmp_path)
    frame.to_csv("reference.csv", index=False)
    frame[:40].to_csv("records.csv", index=False)
    return frame


DESIGN = ["design", "reference.csv", "--epsilon", "3", "--seed", "1", "--out", "design.npz"]


def test_from_a_file_to_private_reports(files, capsys):
    declared = ["--ordinal", "size=S,M,L", "--numeric", "age=18,30,50,70,90", "--nominal", "grade"]
    assert main([*DESIGN, *declared, "--report", "report.html"]) == 0
    assert "holds" in capsys.readouterr().out
    design = DepHDP.load("design.npz")
    kinds = {a.name: (a.kind, a.size) for a in design.domain_.attributes}
    assert kinds == {
        "city": ("nominal", 3),
        "size": ("ordinal", 3),
        "age": ("numeric", 4),
        "grade": ("nominal", 3),
    }
    assert design.domain_["size"].levels == ("S", "M", "L")
    with open("report.html", encoding="utf-8") as page:
        assert "<svg" in page.read()
    assert main(["privatize", "design.npz", "records.csv", "--out", "reports.csv"]) == 0
    reports = pd.read_csv("reports.csv", keep_default_na=False)
    assert list(reports.columns) == ["city", "size", "age", "grade"]
    assert len(reports) == 40
    assert set(reports["city"]) <= {"north", "south", "NA"}
    assert set(reports["age"]) <= {24.0, 40.0, 60.0, 80.0}


def test_columns_left_undeclared_are_guessed(files):
    assert main([*DESIGN, "--select", "never"]) == 0
    assert DepHDP.load("design.npz").domain_["age"].size == 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ordinal", "size"], "write size=..."),
        (["--numeric", "age=young"], "not numbers"),
        (["--nominal", "town"], "['town'] are not in the table"),
        (["--noise", "loud"], "noise must be one of"),
        (["--p", "0.5"], "0.5"),
        (["--ordinal", "size=S,M"], "size"),
    ],
)
def test_errors_are_told_in_one_line(files, capsys, arguments, message):
    assert main([*DESIGN, *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("dephdp: error: ")
    assert message in error


def test_in_a_process_of_its_own():
    command = [sys.executable, "-m", "dephdp", "design", "nowhere.csv", "--epsilon", "1"]
    root = Path(dephdp.__file__).parents[1]
    run = subprocess.run(
        [*command, "--out", "x.npz"], capture_output=True, text=True, check=False, cwd=root
    )
    assert run.returncode == 2
    assert "nowhere.csv" in run.stderr
