"""Cell counts as arrays: one check for everybody, and evaluation block by block."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from drha.errors import InvalidCounts

MAX_COUNT = 10**15  # whole numbers up to here, and their half-integer neighbours, are exact floats

BLOCK = 1 << 14  # cells handled at once: a few columns of this length stay in the cache
TABULATED = 1 << 16  # counts below this are looked up, larger ones are evaluated where they occur


def check_counts(counts) -> np.ndarray:
    """Return the counts as an integer array of the same shape.

    Parameters
    ----------
    counts : array_like
        Whole numbers between 0 and 10^15; floats are accepted when they are whole.

    Raises
    ------
    InvalidCounts
        If a count is negative, fractional, NaN, infinite, too large or not a number.
    """
    try:
        values = np.asarray(counts)
    except ValueError as error:
        raise InvalidCounts("counts must form one rectangular array of whole numbers") from error
    if values.dtype.kind not in "iuf":
        raise InvalidCounts(
            f"counts must be whole numbers, but the array holds {values.dtype}; "
            "count the records of each cell and level first"
        )
    if values.size == 0:
        return values.astype(np.int64)
    lowest, highest = values.min(), values.max()  # NaN wins both, so it fails the comparison below
    if not (lowest >= 0 and highest <= MAX_COUNT):
        _refuse(values, ~((values >= 0) & (values <= MAX_COUNT)))
    if values.dtype.kind == "f":
        whole = values.astype(np.int64)
        if not np.array_equal(whole, values):
            _refuse(values, whole != values)
        return whole
    return values


def _refuse(values: np.ndarray, wrong: np.ndarray) -> None:
    """Raise for the first wrong count, saying where it is."""
    where = np.unravel_index(np.argmax(wrong), values.shape)
    names = (
        ("cell", "level") if values.ndim == 2 else tuple(f"axis {i}" for i in range(values.ndim))
    )
    place = ", ".join(f"{name} {int(at)}" for name, at in zip(names, where, strict=True))
    raise InvalidCounts(
        f"the count {values[where]} {'at ' + place if place else 'given'} is not a whole number "
        f"between 0 and {MAX_COUNT:.0e} ({int(wrong.sum())} such counts); "
        "counts are numbers of records: recount them, do not round or clip"
    )


def check_cells(counts) -> np.ndarray:
    """Return checked counts whose last axis runs over at least one sensitive level."""
    cells = check_counts(counts)
    if cells.ndim == 0 or cells.shape[-1] == 0:
        raise InvalidCounts(
            f"counts of shape {cells.shape} have no axis of sensitive levels; "
            "pass an array of shape (levels,) or (cells, levels)"
        )
    return cells


def tabulate(function: Callable[[np.ndarray], np.ndarray], asked: np.ndarray):
    """Remember ``function`` on small counts, so that a table of cells costs look-ups only.

    Parameters
    ----------
    function : callable
        Maps an integer array to a float array of the same shape.
    asked : ndarray of int
        All counts that will be asked for.

    Returns
    -------
    callable
        Equal to ``function`` on integer arrays with entries in ``0..asked.max()``.
    """
    highest = int(asked.max(initial=0))
    last = min(highest, TABULATED, asked.size)
    table = function(np.arange(last + 1))
    if highest <= last:
        return table.__getitem__

    def value(counts: np.ndarray) -> np.ndarray:
        values = table[np.minimum(counts, last)]
        large = counts > last
        if large.any():
            values[large] = function(counts[large])
        return values

    return value


def map_cells(
    rule: Callable[[np.ndarray], np.ndarray], counts: np.ndarray, width: int | None = None
):
    """Apply ``rule`` to blocks of cells, so that memory beyond the result stays constant.

    Parameters
    ----------
    rule : callable
        Maps counts of shape (levels, block) to values of shape (block,) or (width, block).
    counts : ndarray of int, shape (..., levels)
    width : int, optional
        Number of values per cell; None for one value without an axis of its own.

    Returns
    -------
    ndarray of float, shape (...) or (..., width)
    """
    cells = counts.reshape(-1, counts.shape[-1])
    tail = () if width is None else (width,)
    result = np.empty((len(cells), *tail))
    for start in range(0, len(cells), BLOCK):
        block = np.ascontiguousarray(cells[start : start + BLOCK].T)
        result[start : start + BLOCK] = rule(block).T
    return result.reshape(counts.shape[:-1] + tail)[()]
