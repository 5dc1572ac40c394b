"""The builder: caching, parameters, failures that must not pass unseen."""

import multiprocessing
import shutil

import nbformat
import pytest

from book import build
from notebooks.claims import RECORD, Claim

CHAPTER = """\
---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# Squares

The package `dephdp` is mentioned here.

```{code-cell} ipython3
:tags: [parameters]
n = 3
```

```{code-cell} ipython3
import os
import time

from claims import Ledger, glue

with open("runs", "a") as log:
    log.write("ran ")
claims = Ledger("squares")
BODY
```
"""

HOLDS = """\
glue(total=n**2)
claims.check(
    "square", "$n^2$ is the sum of the first $n$ odd numbers", source="this book",
    evidence="exact enumeration", holds=sum(range(1, 2 * n, 2)) == n**2, n=n,
)"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with one chapter; `write(body)` gives the chapter's code."""
    for folder in ("notebooks", "dephdp", "drha"):
        (tmp_path / folder).mkdir()
    shutil.copy(build.ROOT / "notebooks" / "claims.py", tmp_path / "notebooks")
    (tmp_path / "requirements.lock").write_text("")
    (tmp_path / "_toc.yml").write_text("chapters: [{file: notebooks/squares}]")
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "EXECUTED", tmp_path / "executed")

    def write(body):
        (tmp_path / "notebooks" / "squares.md").write_text(CHAPTER.replace("BODY", body))
        return tmp_path / "notebooks" / "runs"

    return write


def test_executes_once_until_something_it_depends_on_changes(project):
    runs = project(HOLDS)
    first = build.execute_chapter("squares")
    assert build.execute_chapter("squares") == first
    assert runs.read_text() == "ran "

    (build.ROOT / "drha" / "table.py").write_text("changed = True")
    assert build.execute_chapter("squares") == first  # the chapter does not speak of it
    (build.ROOT / "dephdp" / "channel.py").write_text("changed = True")
    second = build.execute_chapter("squares")
    assert second != first
    assert runs.read_text() == "ran ran "

    build.prune({"squares": build.Outcome("squares", second)})
    assert not first.exists()
    assert second.exists()


def test_parameters_reach_the_chapter_and_unknown_ones_are_refused(project):
    project(HOLDS)
    assert build.parameter_names("squares") == {"n"}
    outcome = build.Outcome("squares", build.execute_chapter("squares", {"n": 5}))
    assert outcome.claims()[0].numbers == {"n": 5}
    assert outcome.notebook().metadata.execution["parameters"] == {"n": 5}
    with pytest.raises(build.ChapterError, match=r"squares\.md declares no parameter \['m'\]"):
        build.execute_chapter("squares", {"m": 5})


def test_a_failing_cell_is_shown_with_its_traceback(project):
    project("1 / (n - 3)")
    with pytest.raises(build.ChapterError, match=r"(?s)cell 2 failed.*1 / .n - 3.*ZeroDivision"):
        build.execute_chapter("squares")


def test_a_kernel_that_dies_is_named(project):
    project("os._exit(1)")
    with pytest.raises(build.ChapterError, match=r"squares\.md: Kernel died"):
        build.execute_chapter("squares")


def recorded(path, *claims):
    """Write an executed notebook that records some claims."""
    outputs = [
        nbformat.v4.new_output("display_data", metadata={RECORD: claim.to_record()})
        for claim in claims
    ]
    cell = nbformat.v4.new_code_cell(outputs=outputs)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    return build.Outcome(path.stem, path)


def test_a_chapter_that_proves_nothing_is_a_problem(tmp_path):
    def claim(id, holds=True):
        return Claim(id, "chapter", "$a < b$", "this book", ("Monte Carlo",), "verified", holds)

    def problems(*outcomes):
        return build.problems({outcome.name: outcome for outcome in outcomes})

    good = recorded(tmp_path / "good.ipynb", claim("first"), claim("second"))
    assert problems(good) == []
    (silent,) = problems(good, recorded(tmp_path / "silent.ipynb"))
    assert silent == "notebooks/silent.md records no claim"
    (wrong,) = problems(good, recorded(tmp_path / "wrong.ipynb", claim("third", holds=False)))
    assert wrong.startswith("notebooks/wrong.md: [FAILED] third")
    (twice,) = problems(good, recorded(tmp_path / "again.ipynb", claim("second")))
    assert "'second' is recorded twice" in twice
    (stopped,) = problems(good, build.Outcome("stopped", None, "cell 3 failed"))
    assert stopped == "cell 3 failed"


def test_two_builds_at_once_execute_a_chapter_once(project):
    runs = project("time.sleep(2)\n" + HOLDS)
    fork = multiprocessing.get_context("fork")  # the children see the patched paths
    builds = [fork.Process(target=build.execute_chapter, args=("squares",)) for _ in range(2)]
    for process in builds:
        process.start()
    for process in builds:
        process.join()
    assert [process.exitcode for process in builds] == [0, 0]
    assert runs.read_text() == "ran "
