"""Command line: ``python -m drha audit data.csv --qid a,b --sensitive y --out report.html``."""

from __future__ import annotations

import argparse
import sys

import numpy as np

from drha.auditing import DEFAULT_EPSILONS, audit
from drha.calibrate import MECHANISMS
from drha.errors import DrhaError, InvalidQuestion


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
        _audit(arguments)
    except (DrhaError, OSError, UnicodeDecodeError) as error:
        print(f"drha: error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m drha",
        description="Disclosure risk from homogeneity attack in noisy frequency tables.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("audit", help="audit the records of a CSV file")
    command.add_argument("data", help="CSV file with a header, one row per record")
    command.add_argument(
        "--qid", required=True, type=_names, metavar="A,B", help="quasi-identifiers"
    )
    command.add_argument(
        "--sensitive", required=True, type=_names, metavar="Y", help="sensitive attributes"
    )
    command.add_argument(
        "--epsilon",
        type=parse_epsilons,
        default=DEFAULT_EPSILONS,
        metavar="GRID",
        help="START:STOP:NUMBER in equal ratios, START:STOP:NUMBER:linear in equal steps, or a "
        "list 0.1,0.5,1; by default 0.1:10:40",
    )
    command.add_argument(
        "--mechanism",
        type=_names,
        default=["laplace", "geometric"],
        metavar="M,...",
        help=f"any of {', '.join(MECHANISMS)}; by default laplace,geometric",
    )
    command.add_argument("--delta", type=float, help="for the Gaussian mechanisms")
    command.add_argument(
        "--neighbours",
        choices=["add_remove", "substitution"],
        default="add_remove",
        help="what changes between neighbouring tables; by default one record is added or removed",
    )
    command.add_argument(
        "--levels",
        action="append",
        default=[],
        type=_levels,
        metavar="Y=A,B",
        help="all possible levels of a sensitive attribute, if not all of them occur",
    )
    command.add_argument(
        "--missing",
        choices=["error", "drop"],
        default="error",
        help="what to do with records that have a missing value (an empty field)",
    )
    command.add_argument(
        "--target", type=float, help="largest accepted average risk; chooses epsilon for it"
    )
    command.add_argument("--out", metavar="HTML", help="write the report to this file")
    command.add_argument("--csv", metavar="CSV", help="write all computed values to this file")
    return parser


def _audit(arguments: argparse.Namespace) -> None:
    frame = _read(arguments.data)
    levels = {
        name: _typed(frame[name], texts) if name in frame else texts
        for name, texts in arguments.levels
    }
    result = audit(
        frame,
        arguments.qid,
        arguments.sensitive,
        mechanisms=arguments.mechanism,
        epsilons=arguments.epsilon,
        delta=arguments.delta,
        sensitivity=arguments.neighbours,
        levels=levels or None,
        missing=arguments.missing,
        target=arguments.target,
    )
    print(result)
    print(result.original.to_string(index=False))
    if result.choices is not None:
        print(result.choices.drop(columns="reason").to_string(index=False))
    if arguments.out:
        result.to_html(arguments.out)
        print(f"report: {arguments.out}")
    if arguments.csv:
        result.risks.to_csv(arguments.csv, index=False)
        print(f"values: {arguments.csv}")


def _read(path: str):
    """Read a CSV file; only an empty field is a missing value, and no row may be too long."""
    import warnings

    import pandas as pd

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(path, index_col=False, keep_default_na=False, na_values=[""])
    except (pd.errors.ParserError, pd.errors.EmptyDataError, pd.errors.ParserWarning) as error:
        raise InvalidQuestion(f"{path} is not a CSV file with a header: {error}") from error


def _typed(column, texts: list[str]) -> list:
    """Levels as values of the column's type."""
    import pandas as pd

    try:
        return pd.Series(texts).astype(column.dtype).tolist()
    except (TypeError, ValueError) as error:
        raise InvalidQuestion(
            f"levels {texts} are not of the type of column {column.name!r} ({column.dtype})"
        ) from error


def parse_epsilons(text: str) -> tuple[float, ...]:
    """Read a grid of epsilon: ``0.1:10:40``, ``1:5:9:linear`` or ``0.1,0.5,1``.

    Raises
    ------
    argparse.ArgumentTypeError
        If it is none of these.
    """
    form = f"{text!r} is not a grid: write START:STOP:NUMBER, START:STOP:NUMBER:linear or a list"
    try:
        if ":" not in text:
            values = [float(part) for part in text.split(",")]
        else:
            start, stop, number, *kind = text.split(":")
            if kind not in ([], ["log"], ["linear"]):
                raise ValueError
            space = np.linspace if kind == ["linear"] else np.geomspace
            values = space(float(start), float(stop), int(number)).tolist()
    except ValueError as error:
        raise argparse.ArgumentTypeError(form) from error
    if not values or not all(0.0 < value < np.inf for value in values):
        raise argparse.ArgumentTypeError(f"{text!r}: every epsilon must be positive and finite")
    return tuple(values)


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if "" in names:
        raise argparse.ArgumentTypeError(f"{text!r} has an empty name")
    return names


def _levels(text: str) -> tuple[str, list[str]]:
    name, equals, levels = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=LEVEL,LEVEL,...")
    return name.strip(), _names(levels)


if __name__ == "__main__":
    sys.exit(main())
