"""The claims API: what it accepts, what it refuses, what survives in a notebook."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebooks import claims as claims_module
from notebooks.claims import (
    Claim,
    InvalidClaim,
    Ledger,
    format_number,
    markup,
    number_html,
    read_claims,
    require_unique,
    z_score,
)

GOOD = {
    "statement": "$a < b$",
    "source": "this book",
    "evidence": "exact enumeration",
    "holds": True,
}


@pytest.fixture
def shown(monkeypatch):
    """What a ledger displays, as the outputs of a notebook."""
    outputs = []

    def display(data, *, metadata, raw):
        outputs.append({"data": data, "metadata": json.loads(json.dumps(metadata))})

    monkeypatch.setattr("IPython.display.display", display)
    return outputs


def test_a_claim_survives_the_notebook(shown):
    Ledger("chapter").check(
        "some-claim",
        **GOOD | {"evidence": ["Monte Carlo", "counterexample"], "holds": np.bool_(True)},
        count=np.int64(3),
        level=np.float64(0.25),
        array=np.array([0.5]),
        unbounded=-np.inf,
    )
    (claim,) = read_claims({"cells": [{"outputs": shown}, {"source": "text"}]})
    assert claim.evidence == ("Monte Carlo", "counterexample")
    assert claim.numbers == {"count": 3, "level": 0.25, "array": 0.5, "unbounded": -math.inf}
    assert claim.holds is True
    assert 'id="claim-some-claim"' in shown[0]["data"]["text/html"]
    assert "unbounded = −∞" in shown[0]["data"]["text/plain"]


def test_a_failed_claim_is_loud(shown):
    Ledger("chapter").check("some-claim", **GOOD | {"holds": False})
    assert "claim-failed" in shown[0]["data"]["text/html"]
    assert shown[0]["data"]["text/plain"].startswith("[FAILED]")
    assert not read_claims({"cells": [{"outputs": shown}]})[0].holds


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "Not Kebab"}, "kebab-case"),
        ({"statement": " "}, "statement is empty"),
        ({"source": ""}, "source is empty"),
        ({"statement": "costs $5"}, "paired"),
        ({"statement": "$$x$$"}, "paired"),
        ({"evidence": "a hunch"}, "not among"),
        ({"evidence": []}, "not among"),
        ({"verdict": "plausible"}, "verdict"),
        ({"holds": 1}, "one bool"),
        ({"holds": np.array([True, True])}, "one bool"),
        ({"value": math.nan}, "value is NaN"),
        ({"value": np.nan}, "value is NaN"),
        ({"value": "0.5"}, "one int or float"),
        ({"value": np.ones(2)}, "one int or float"),
        ({"value": True}, "one int or float"),
        ({"value": 1j}, "one int or float"),
    ],
)
def test_bad_claims_are_refused_by_name(shown, change, message):
    arguments = {"id": "some-claim"} | GOOD | change
    with pytest.raises(InvalidClaim, match=message):
        Ledger("chapter").check(arguments.pop("id"), **arguments)
    assert not shown


def test_an_id_has_one_meaning(shown):
    ledger = Ledger("chapter")
    ledger.check("some-claim", **GOOD)
    ledger.check("some-claim", **GOOD)  # the same cell run again
    with pytest.raises(InvalidClaim, match="already states"):
        ledger.check("some-claim", **GOOD | {"statement": "$a > b$"})
    with pytest.raises(InvalidClaim, match="recorded twice: in chapter and in chapter"):
        require_unique(read_claims({"cells": [{"outputs": shown}]}))
    with pytest.raises(InvalidClaim, match="kebab-case"):
        Ledger("Chapter One")


@given(
    st.dictionaries(
        st.text("abc_", min_size=1, max_size=5), st.integers() | st.floats(allow_nan=False)
    )
)
def test_records_are_json_and_come_back(numbers):
    claim = Claim("c", "ch", "s", "src", ("Monte Carlo",), "refuted", False, numbers)
    assert Claim.from_record(json.loads(json.dumps(claim.to_record(), allow_nan=False))) == claim


def test_numbers_read_well():
    values = [1234567, 0.123456, 1.5e-13, math.inf, -2.0]
    assert [format_number(v) for v in values] == ["1,234,567", "0.1235", "1.5e−13", "∞", "−2"]
    assert number_html(-1.5e-13) == "−1.5 × 10<sup>−13</sup>"
    assert number_html(2e20) == "2 × 10<sup>20</sup>"


def test_markup_escapes_text_and_keeps_mathematics():
    assert markup("if $a<b$ & `x<y`") == (
        'if <span class="math notranslate nohighlight">\\(a&lt;b\\)</span> '
        "&amp; <code>x&lt;y</code>"
    )


def test_z_score():
    assert z_score(1.2, 1.0, 0.1) == pytest.approx(2)
    assert z_score(1.0, 1.0, 0.0) == 0
    assert z_score(0.9, 1.0, 0.0) == -math.inf
    with pytest.raises(InvalidClaim, match="standard error"):
        z_score(1.0, 1.0, -1.0)
    with pytest.raises(InvalidClaim, match="standard error"):
        z_score(1.0, 1.0, math.nan)


def test_glue_hands_over_plain_numbers(monkeypatch):
    glued = {}
    monkeypatch.setattr(
        "myst_nb.glue", lambda name, value, display: glued.update({name: (value, display)})
    )
    claims_module.glue(level=np.float64(0.5), count=np.int32(2), name="Adult")
    assert {n: repr(v) for n, v in glued.items()} == {
        "level": "(0.5, False)",
        "count": "(2, False)",
        "name": "('Adult', False)",
    }
    with pytest.raises(InvalidClaim, match="level is NaN"):
        claims_module.glue(level=math.nan)
