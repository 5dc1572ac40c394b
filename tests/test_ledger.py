"""The ledger and status pages: what they show of the executed chapters."""

import re

from book._ext.claims_ledger import ledger_table, status_table, versions_table
from notebooks.claims import Claim


def claim(id, **change):
    fields = {
        "chapter": "chapter",
        "statement": "$a < b$",
        "source": "DepHDP, Theorem 1",
        "evidence": ("Monte Carlo", "counterexample"),
        "verdict": "refuted",
        "holds": True,
        "numbers": {"z_score": 1.25e-7},
    }
    return Claim(id=id, **fields | change)


def cells(html):
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)]


def test_ledger_shows_every_field_and_leads_to_the_computation():
    table = ledger_table([(claim("first"), "../notebooks/chapter.html"), (claim("second"), "x")])
    _, (statement, source, evidence, verdict, numbers), second = cells(table)
    assert '<a href="../notebooks/chapter.html#claim-first">first</a>' in statement
    assert r"\(a &lt; b\)" in statement
    assert source == "DepHDP, Theorem 1"
    assert evidence == "Monte Carlo + counterexample"
    assert "refuted" in verdict
    assert numbers == "z score: 1.25 × 10<sup>−7</sup>"
    assert "second" in second[0]


def test_ledger_marks_what_failed():
    (_, row) = cells(ledger_table([(claim("first", holds=False, numbers={}), "x")]))
    assert "claim-failed" in row[3]
    assert row[4] == "—"


def test_ledger_says_when_it_is_empty():
    assert "No executed chapter" in ledger_table([])


class Chapter:
    title = "Composition & more"
    claims = (claim("first"), claim("second", holds=False))
    execution = {"seconds": 12.34, "finished": "2026-01-02T03:04:05+00:00"}  # noqa: RUF012


class PlainChapter(Chapter):
    claims = ()
    execution = {}  # noqa: RUF012


def test_status_shows_when_how_long_and_how_many():
    _, ours, plain = cells(status_table([("a", Chapter), ("b", PlainChapter)], "{}.html".format))
    assert ours == [
        '<a href="a.html">Composition &amp; more</a>',
        "2026-01-02 03:04:05",
        "12.3",
        "2, 1 failed",
    ]
    assert plain[1:] == ["by Jupyter Book", "—", "0"]
    assert "No chapter" in status_table([], str)


def test_versions_name_what_computed_the_book():
    assert [row[0] for row in cells(versions_table())[1:3]] == ["Python", "numpy"]
