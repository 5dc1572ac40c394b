"""The ledger and status pages: what they show of the executed chapters."""

import re

from book._ext.claims_ledger import Chapter, ledger, status, versions
from notebooks.claims import Claim

LINK = "../{}.html".format


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


def chapter(*claims, **execution):
    return Chapter("notebooks/name", "Composition & more", list(claims), execution)


def cells(html):
    rows = re.findall(r"<tr>(.*?)</tr>", html)
    return [found for row in rows if (found := re.findall(r"<td[^>]*>(.*?)</td>", row))]


def test_ledger_shows_every_field_and_leads_to_the_computation():
    text = ledger([chapter(claim("first"), claim("second")), chapter(claim("third"))], LINK)
    first, second, third = cells(text)
    statement, evidence, verdict = first
    assert '<a href="../notebooks/name.html#claim-first">first</a>' in statement
    assert r"\(a &lt; b\)" in statement
    assert "DepHDP, Theorem 1" in statement
    assert "<i>z score</i> 1.25 × 10<sup>−7</sup>" in statement
    assert evidence == "Monte Carlo, counterexample"
    assert "refuted" in verdict
    assert "second" in second[0]
    assert "third" in third[0]
    assert text.count('<h2><a href="../notebooks/name.html">Composition &amp; more</a></h2>') == 2
    assert "3 claims: 3 refuted." in text


def test_ledger_marks_what_failed():
    text = ledger([chapter(claim("first", holds=False), claim("second"))], LINK)
    assert "2 claims: 1 failed, 1 refuted." in text
    assert "claim-failed" in cells(text)[0][2]


def test_ledger_says_when_it_is_empty():
    assert "No executed chapter" in ledger([], LINK)
    assert "No executed chapter" in ledger([chapter()], LINK)


def test_status_shows_when_how_long_and_how_many():
    ours = chapter(claim("first"), seconds=12.34, finished="2026-01-02T03:04:05+00:00")
    (title, *when), plain = cells(status([ours, chapter()], LINK))
    assert title == '<a href="../notebooks/name.html">Composition &amp; more</a>'
    assert when == ["2026-01-02 03:04", "12.3", "1"]
    assert plain[1:] == ["by Jupyter Book", "—", "0"]
    assert "No chapter" in status([], LINK)


def test_versions_name_what_computed_the_book():
    assert [row[0] for row in cells(versions())[:2]] == ["Python", "numpy"]
