"""Every printed number of the paper's tables beside ours, with a verdict that follows from a rule.

Where our values come from is in `book.sources`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from book.published import TABLES

KEYS = ("task", "case", "method", "score", "epsilon")
"""Columns that say which number a printed one is; all others hold printed numbers."""

TOLERANCE = 0.05  # relative difference that counts as agreement
ERRORS = 2.0  # standard errors that do so too,
LARGEST = 0.5  # up to this relative difference: what is known no better is not reproduced
CERTAIN = 4.0  # standard errors by which a printed number must lie below a bound

VERDICTS = (
    "reproduced",
    "reproduced under a stated reading",
    "not reproducible",
    "infeasible as stated",
    "not recomputed",
)


@dataclass(frozen=True)
class Source:
    """Where our values of a table come from.

    Parameters
    ----------
    values : callable
        Returns a table with the key columns, ``quantity`` and ``ours``; and, where there are any,
        ``error``, the standard error of the difference, ``bound``, below which no private
        mechanism of the row's kind can be, and ``bound_error``.
    chapters : tuple of str
        The chapters with the evidence.
    reading : bool, optional
        Whether the values rest on choices that the paper leaves open.
    """

    values: Callable[[], pd.DataFrame]
    chapters: tuple[str, ...]
    reading: bool = True


def tables():
    """Return the names of the paper's tables that are kept, in order."""
    return sorted(path.stem for path in TABLES.glob("table*.csv"))


def printed(table):
    """Return the numbers of a printed table, one a row.

    Parameters
    ----------
    table : str
        A file of ``book/published`` without its suffix.

    Returns
    -------
    pandas.DataFrame
        ``table``, the key columns, ``quantity``, ``published``, and ``rounding``: half a unit of
        the last printed digit, and nothing for a number printed as 0.
    """
    wide = pd.read_csv(TABLES / f"{table}.csv", comment="#", dtype=str)
    keys = [name for name in KEYS if name in wide]
    long = wide.melt(keys, var_name="quantity", value_name="text").dropna(subset="text")
    if "epsilon" in keys:
        long["epsilon"] = long["epsilon"].astype(float)
    long["published"] = long["text"].astype(float)
    long["rounding"] = np.where(long["published"] == 0, 0.0, long["text"].map(_half_unit))
    return long.drop(columns="text").assign(table=table)


def _half_unit(text):
    mantissa, _, exponent = text.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 0.5 * 10.0 ** (int(exponent or 0) - decimals)


def verdict(row):
    """Return the verdict on one printed number.

    Parameters
    ----------
    row : mapping
        ``published``, ``rounding``, ``ours``, ``error``, ``bound``, ``bound_error``, ``reading``;
        NaN where there is none.

    Returns
    -------
    str
        One of `VERDICTS`.
    """
    most = row["published"] + row["rounding"] + CERTAIN * np.nan_to_num(row["bound_error"])
    if most < row["bound"]:
        return "infeasible as stated"
    if np.isnan(row["ours"]):
        return "not recomputed"
    size = abs(row["published"])
    allowed = max(TOLERANCE * size, min(ERRORS * np.nan_to_num(row["error"]), LARGEST * size))
    if abs(row["ours"] - row["published"]) > allowed + row["rounding"]:
        return "not reproducible"
    return "reproduced under a stated reading" if row["reading"] else "reproduced"


def reproduction(sources):
    """Return every printed number with our value, the difference and the verdict.

    Parameters
    ----------
    sources : mapping of str to Source
        By table; a table without a source has no recomputed number yet.

    Returns
    -------
    pandas.DataFrame
        One row a number, in the order of the tables.

    Raises
    ------
    ValueError
        If a source has a value for what is not printed, or two for one number.
    """
    parts = []
    for table in tables():
        rows = printed(table)
        keys = [name for name in (*KEYS, "quantity") if name in rows]
        source = sources.get(table)
        values = source.values() if source else pd.DataFrame(columns=[*keys, "ours"])
        joined = rows.merge(values, on=keys, how="left", validate="one_to_one", indicator=True)
        if source and (joined["_merge"] == "both").sum() != len(values):
            raise ValueError(f"{table}: our values have keys that are not printed")
        joined = joined.drop(columns="_merge").assign(reading=source.reading if source else True)
        parts.append(joined)
    every = pd.concat(parts, ignore_index=True)
    for name in ("ours", "error", "bound", "bound_error"):
        every[name] = pd.to_numeric(every[name]) if name in every else np.nan
    every["difference"] = every["ours"] / every["published"].where(every["published"] != 0) - 1
    every["verdict"] = [verdict(row) for row in every.to_dict("records")]
    return every
