"""Every chapter runs from top to bottom, and every claim it makes holds."""

import re

import nbformat
import pytest

from book import build
from notebooks.claims import require_unique

CHAPTERS = build.chapters()


def test_every_source_is_a_chapter():
    sources = {path.stem for path in (build.ROOT / "notebooks").glob("*.md")}
    assert sources == set(CHAPTERS), "notebooks/ and _toc.yml disagree"


@pytest.mark.parametrize("name", CHAPTERS)
def test_readme_maps_the_chapter_under_its_title(name):
    title = re.search(r"(?m)^# (.*)$", build.source(name).read_text()).group(1)
    assert f"[{title}](notebooks/{name}.md)" in (build.ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", CHAPTERS)
def test_chapter_runs_and_its_claims_hold(name, outcomes):
    if outcomes[name].error:
        pytest.fail(outcomes[name].error, pytrace=False)
    claims = outcomes[name].claims()
    assert claims, f"notebooks/{name}.md records no claim"
    failed = [claim.to_text() for claim in claims if not claim.holds]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("name", CHAPTERS)
def test_chapter_declares_its_parameters(name):
    assert build.parameter_names(name), f"notebooks/{name}.md has no cell tagged parameters"


def test_claim_ids_are_unique_in_the_book(outcomes):
    require_unique(claim for outcome in outcomes.values() for claim in outcome.claims())


@pytest.mark.parametrize("name", CHAPTERS)
def test_executed_chapter_is_whole_and_names_no_folder_of_this_machine(name, outcomes):
    notebook = outcomes[name].notebook()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    assert str(build.ROOT) not in nbformat.writes(notebook)
