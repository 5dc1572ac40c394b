"""Claims: what a chapter asserts, how it was checked, and what came out.

A chapter opens one `Ledger` and calls `Ledger.check` beside the evidence. Each call shows a box in
the chapter and leaves a record in the notebook's output. The builder, the ledger page and the
tests read these records back with `read_claims`, so a claim whose check failed cannot pass unseen.
"""

from __future__ import annotations

import html
import math
import numbers
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

RECORD = "claim"  # key of the record in an output's metadata

EVIDENCE = (
    "exact enumeration",
    "second algorithm",
    "Monte Carlo",
    "counterexample",
    "proof and computation",
)

VERDICTS = ("verified", "corrected", "refuted")

_KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class InvalidClaim(ValueError):
    """A claim that cannot be recorded: the message says which field is wrong and why."""


@dataclass(frozen=True)
class Claim:
    """One statement with the evidence for it.

    Parameters
    ----------
    id : str
        Kebab-case name, unique in the book; the claim's anchor is ``claim-<id>``.
    chapter : str
        The ledger's name.
    statement : str
        What is claimed. ``$...$`` is mathematics and a pair of backquotes is code.
    source : str
        Whose statement it is, for instance ``"DepHDP, Theorem 1"`` or ``"this book"``.
    evidence : tuple of str
        Kinds of evidence, each one of `EVIDENCE`.
    verdict : {"verified", "corrected", "refuted"}
        What the evidence says of the source's statement: it stands, it stands once corrected as
        `statement` has it, or it is false.
    holds : bool
        Whether the check came out as the verdict says. For a refuted statement it is true when
        the counterexample does contradict it.
    numbers : dict
        Named results, finite or infinite; never NaN.
    """

    id: str
    chapter: str
    statement: str
    source: str
    evidence: tuple[str, ...]
    verdict: str
    holds: bool
    numbers: dict[str, int | float] = field(default_factory=dict)

    def __post_init__(self):
        for name in ("id", "chapter"):
            if not _KEBAB.fullmatch(getattr(self, name)):
                raise InvalidClaim(
                    f"{name} {getattr(self, name)!r} is not kebab-case: use a-z, 0-9, -"
                )
        for name in ("statement", "source"):
            text = getattr(self, name)
            if not isinstance(text, str) or not text.strip():
                raise InvalidClaim(f"claim {self.id!r}: {name} is empty")
        if "$$" in self.statement or self.statement.count("$") % 2:
            raise InvalidClaim(
                f"claim {self.id!r}: the statement needs its mathematics between single, paired $"
            )
        if not self.evidence or not set(self.evidence) <= set(EVIDENCE):
            raise InvalidClaim(
                f"claim {self.id!r}: evidence {self.evidence} is not among {EVIDENCE}"
            )
        if self.verdict not in VERDICTS:
            raise InvalidClaim(f"claim {self.id!r}: verdict {self.verdict!r} is not in {VERDICTS}")
        if not isinstance(self.holds, bool):
            raise InvalidClaim(f"claim {self.id!r}: holds is {self.holds!r}; it must be one bool")

    def to_html(self) -> str:
        """Render the box a reader sees in the chapter."""
        state = self.verdict if self.holds else "failed"
        numbers = "".join(
            f"<span><i>{html.escape(label(name))}</i> {number_html(value)}</span>"
            for name, value in self.numbers.items()
        )
        return (
            f'<aside class="claim claim-{state}" id="claim-{self.id}" aria-label="Claim {self.id}">'
            f'<p class="claim-head"><span class="claim-state">{state}</span> '
            f'<a href="#claim-{self.id}" class="claim-id">{self.id}</a> '
            f'<span class="claim-evidence">{html.escape(" + ".join(self.evidence))}</span></p>'
            f"<p>{markup(self.statement)}</p>"
            f'<p class="claim-source">Statement: {markup(self.source)}</p>'
            + (f'<p class="claim-numbers">{numbers}</p>' if numbers else "")
            + "</aside>"
        )

    def to_text(self) -> str:
        """Render the same box for a terminal."""
        state = self.verdict.upper() if self.holds else "FAILED"
        values = ", ".join(f"{label(n)} = {format_number(v)}" for n, v in self.numbers.items())
        lines = [
            f"[{state}] {self.id}: {self.statement}",
            f"  {self.source}; {' + '.join(self.evidence)}",
        ]
        return "\n".join(lines + [f"  {values}"] * bool(values))

    def to_record(self) -> dict:
        """Return the claim as JSON types.

        The numbers become pairs, for notebooks sort the keys of a mapping, and infinities become
        strings, for JSON has none.
        """
        values = [[n, str(v) if math.isinf(v) else v] for n, v in self.numbers.items()]
        return asdict(self) | {"evidence": list(self.evidence), "numbers": values}

    @classmethod
    def from_record(cls, record: Mapping) -> Claim:
        """Read a claim back from `to_record`."""
        values = {n: float(v) if isinstance(v, str) else v for n, v in record["numbers"]}
        return cls(**{**record, "evidence": tuple(record["evidence"]), "numbers": values})


class Ledger:
    """The claims of one chapter.

    Parameters
    ----------
    chapter : str
        Kebab-case name of the chapter.

    Examples
    --------
    >>> claims = Ledger("arithmetic")
    >>> claims.check(
    ...     "sum-of-odd-numbers", r"$1 + 3 + \\dots + (2n - 1) = n^2$ for $n \\le 10$",
    ...     source="this book", evidence="exact enumeration",
    ...     holds=all(sum(range(1, 2 * n, 2)) == n**2 for n in range(11)), cases=11,
    ... )  # doctest: +SKIP
    """

    def __init__(self, chapter: str):
        if not _KEBAB.fullmatch(chapter):
            raise InvalidClaim(f"chapter {chapter!r} is not kebab-case: use a-z, 0-9, -")
        self.chapter = chapter
        self.claims: dict[str, Claim] = {}

    def check(
        self,
        id: str,
        statement: str,
        *,
        source: str,
        evidence: str | Iterable[str],
        holds: bool,
        verdict: str = "verified",
        **values: float,
    ) -> None:
        """Record a claim and show it; see `Claim` for the fields.

        A false `holds` does not raise, so that the reader sees the failed box and what follows;
        the build and the tests fail on it.

        Raises
        ------
        InvalidClaim
            A field is wrong, a number is NaN, or another statement already has this id.
        """
        claim = Claim(
            id=id,
            chapter=self.chapter,
            statement=statement,
            source=source,
            evidence=(evidence,) if isinstance(evidence, str) else tuple(evidence),
            verdict=verdict,
            holds=_plain_bool(id, holds),
            numbers={name: plain_number(name, value) for name, value in values.items()},
        )
        known = self.claims.setdefault(id, claim)
        if known.statement != statement:  # running one cell again is fine, a second meaning is not
            raise InvalidClaim(f"claim {id!r} already states: {known.statement}")
        self.claims[id] = claim
        _display(claim)


def read_claims(notebook: Mapping) -> list[Claim]:
    """Return the claims recorded in an executed notebook, in order."""
    return [
        Claim.from_record(output["metadata"][RECORD])
        for cell in notebook["cells"]
        for output in cell.get("outputs", ())
        if RECORD in output.get("metadata", {})
    ]


def require_unique(claims: Iterable[Claim]) -> None:
    """Raise `InvalidClaim` when two claims share an id."""
    seen: dict[str, Claim] = {}
    for claim in claims:
        if claim.id in seen:
            raise InvalidClaim(
                f"claim {claim.id!r} is recorded twice: in {seen[claim.id].chapter} "
                f"and in {claim.chapter}"
            )
        seen[claim.id] = claim


def glue(**values) -> None:
    """Make results quotable in prose as ``{glue:text}`name:.3f```.

    NumPy scalars become plain Python first: their own repr cannot be formatted.
    """
    from myst_nb import glue as myst_glue

    for name, value in values.items():
        plain = value if isinstance(value, str) else plain_number(name, value)
        myst_glue(name, plain, display=False)


def z_score(estimate: float, exact: float, standard_error: float) -> float:
    """Return how many standard errors a Monte Carlo estimate lies from the exact value.

    A standard error of 0 (every draw agreed) gives 0 on exact agreement and infinity otherwise.
    """
    if not standard_error >= 0:
        raise InvalidClaim(f"standard error {standard_error} is not a non-negative number")
    difference = float(estimate) - float(exact)
    if standard_error == 0:
        return 0.0 if difference == 0 else math.copysign(math.inf, difference)
    return difference / float(standard_error)


def plain_number(name: str, value) -> int | float:
    """Return a Python int or float for any real scalar; refuse the rest by name."""
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidClaim(f"{name} is {value!r}: a recorded number must be one int or float")
    if math.isnan(value):
        raise InvalidClaim(f"{name} is NaN: a check that yields NaN has not been carried out")
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def format_number(value: float) -> str:
    """Write a number for reading: integers grouped, floats to four significant digits."""
    if isinstance(value, int):
        return f"{value:,}"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.4g}".replace("-", "−")


def number_html(value: float) -> str:
    """Write a number as `format_number` does, with powers of ten raised."""
    mantissa, _, exponent = format_number(value).partition("e")
    if not exponent:
        return mantissa
    power = int(exponent.replace("−", "-"))
    return f"{mantissa} × 10<sup>{str(power).replace('-', '−')}</sup>"


def label(name: str) -> str:
    """Turn an argument's name into words."""
    return name.replace("_", " ")


def markup(text: str) -> str:
    """Turn ``$math$`` and backquoted code into the HTML that the book's MathJax typesets."""
    parts = re.split(r"\$([^$]+)\$", text)
    parts[0::2] = (re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(t)) for t in parts[0::2])
    parts[1::2] = (
        rf'<span class="math notranslate nohighlight">\({html.escape(t)}\)</span>'
        for t in parts[1::2]
    )
    return "".join(parts)


def _plain_bool(id: str, value) -> bool:
    if isinstance(value, bool):
        return value
    if type(value).__name__ in {"bool", "bool_"} and hasattr(value, "item"):  # numpy's own bool
        return value.item()
    raise InvalidClaim(f"claim {id!r}: holds is {value!r}; reduce it to one bool, say with .all()")


def _display(claim: Claim) -> None:
    from IPython.display import display

    shown = {"text/plain": claim.to_text(), "text/html": claim.to_html()}
    display(shown, metadata={RECORD: claim.to_record()}, raw=True)
