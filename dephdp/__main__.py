"""Command line: ``python -m dephdp design reference.csv --epsilon 4 --out design.npz``.

And then: ``python -m dephdp privatize design.npz records.csv --out reports.csv``.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import numpy as np

from dephdp.curves import FAMILIES
from dephdp.design import DepHDP
from dephdp.domain import Domain
from dephdp.errors import DephdpError, InvalidDomain, InvalidFrame

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>A design for private reports</title>
<style>
body {{ font: 16px/1.5 sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; font-size: 0.9rem; }}
th, td {{ padding: 0.2rem 0.6rem; text-align: right; border-bottom: 1px solid #ccc; }}
svg {{ max-width: 100%; height: auto; }}
</style>
</head>
<body>
<h1>A design for private reports</h1>
{body}
</body>
</html>
"""


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : list of str, optional
        Arguments; those of the process by default.

    Returns
    -------
    int
        0 on success, 2 after an error, which is told on the standard error.
    """
    arguments = _parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except (DephdpError, OSError, UnicodeDecodeError) as error:
        print(f"dephdp: error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dephdp",
        description="Private reports of records with many attributes, under a certificate.",
    )
    commands = parser.add_subparsers(required=True)

    command = commands.add_parser("design", help="make a mechanism from a reference table")
    command.set_defaults(run=_design)
    command.add_argument("reference", help="CSV file of reference records, with a header")
    command.add_argument("--epsilon", type=float, required=True, help="budget of a record")
    command.add_argument("--p", type=float, default=2, help="exponent of the record metric; 2")
    for kind in ("nominal", "ordinal", "numeric"):
        command.add_argument(
            f"--{kind}",
            action="append",
            default=[],
            metavar={"nominal": "A,B", "ordinal": "A=LOW,MID,HIGH", "numeric": "A=BINS"}[kind],
            help={
                "nominal": "columns of unordered levels",
                "ordinal": "a column and its levels, lowest first",
                "numeric": "a column and its number of bins, or its edges 0,18,65,120",
            }[kind],
        )
    command.add_argument(
        "--select",
        default="gain",
        help="where to optimise: gain, radial, mse, always or never; gain",
    )
    command.add_argument("--noise", default="tight+remap", help=f"one of {', '.join(FAMILIES)}")
    command.add_argument("--seed", type=int, help="of the surrogate's candidate pairs")
    command.add_argument("--out", required=True, metavar="NPZ", help="write the design here")
    command.add_argument("--report", metavar="HTML", help="write a report here")

    command = commands.add_parser("privatize", help="report records privately")
    command.set_defaults(run=_privatize)
    command.add_argument("design", help="file that `design` wrote")
    command.add_argument("records", help="CSV file of records, with a header")
    command.add_argument("--out", required=True, metavar="CSV", help="write the reports here")
    return parser


def _design(arguments):
    reference = _read(arguments.reference)
    options = {"select": arguments.select, "noise": arguments.noise}
    design = DepHDP(arguments.epsilon, arguments.p, domain=_domain(arguments, reference), **options)
    design.fit(reference, rng=np.random.default_rng(arguments.seed))
    design.save(arguments.out)
    print(design.report())
    print(f"design: {arguments.out}")
    if arguments.report:
        page = _PAGE.format(body=design.report().to_html())
        Path(arguments.report).write_text(page, encoding="utf-8")
        print(f"report: {arguments.report}")


def _privatize(arguments):
    design = DepHDP.load(arguments.design)
    # Never a seed: whoever knew it could undo the reports.
    reports = design.privatize(_read(arguments.records))
    reports.to_csv(arguments.out, index=False)
    print(design.certificate_)
    print(f"reports: {arguments.out}")


def _read(path):
    """Read a CSV file; only an empty field is a missing value."""
    import pandas as pd

    try:
        return pd.read_csv(path, index_col=False, keep_default_na=False, na_values=[""])
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise InvalidFrame(f"{path} is not a CSV file with a header: {error}") from error


def _domain(arguments, reference):
    """Return what is known of the declared columns; the types tell of the others."""
    declared = {name: ("nominal", None) for text in arguments.nominal for name in text.split(",")}
    for kind, texts in (("ordinal", arguments.ordinal), ("numeric", arguments.numeric)):
        for text in texts:
            name, separator, values = text.partition("=")
            if not separator:
                raise InvalidDomain(f"--{kind} {text!r}: write {name}=... with its levels or bins")
            declared[name] = (kind, _values(kind, name, values, reference))
    unknown = sorted(set(declared) - set(reference.columns))
    if unknown:
        raise InvalidDomain(f"columns {unknown} are not in the table, {list(reference.columns)}")
    guessed = [name for name in reference.columns if name not in declared]
    attributes = {a.name: a for a in Domain.infer(reference[guessed]).attributes} if guessed else {}
    for name, (kind, values) in declared.items():
        choice = [name] if kind == "nominal" else {name: values}
        attributes[name] = Domain.from_frame(reference[[name]], **{kind: choice}).attributes[0]
    return Domain(attributes[name] for name in reference.columns)


def _values(kind, name, text, reference):
    values = text.split(",")
    numbers = kind == "numeric" or (name in reference and reference[name].dtype.kind in "iuf")
    if not numbers:
        return values
    try:
        numeric = [float(value) for value in values]
    except ValueError:
        raise InvalidDomain(f"--{kind} {name}={text}: these are not numbers") from None
    if kind == "numeric" and len(numeric) == 1:
        return int(numeric[0]) if math.isfinite(numeric[0]) else numeric[0]
    return numeric


if __name__ == "__main__":
    sys.exit(main())
