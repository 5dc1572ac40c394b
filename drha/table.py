"""Frequency tables: cells of quasi-identifiers against the levels of a sensitive attribute."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from drha.counts import check_counts
from drha.errors import InvalidCounts, InvalidFrame, InvalidTable

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class FrequencyTable:
    """Records counted by quasi-identifier cell and sensitive level; non-empty cells only.

    Build one with :meth:`from_frame` or :meth:`from_counts`.

    Attributes
    ----------
    counts : ndarray of int64, shape (cells, levels)
        Numbers of records, read-only; every row has at least one.
    levels : tuple
        The sensitive levels, one for each column, including declared ones that never occur.
    codes : dict of column name to ndarray of int, each of shape (cells,)
        For each quasi-identifier, the position of every cell's value in ``categories``.
    categories : dict of column name to ndarray
        The values of each quasi-identifier.
    sensitive : column name or None
        Name of the sensitive attribute.
    """

    counts: np.ndarray
    levels: tuple
    codes: Mapping
    categories: Mapping
    sensitive: object = None

    @classmethod
    def from_counts(cls, counts, *, levels: Sequence | None = None) -> FrequencyTable:
        """Take counts that are already tabulated; cells are labelled by their row number.

        Parameters
        ----------
        counts : array_like of int, shape (cells, levels)
        levels : sequence, optional
            Names of the sensitive levels; by default 0, ..., levels - 1.

        Returns
        -------
        FrequencyTable

        Raises
        ------
        InvalidCounts
            If a count is negative, fractional or not finite, or the array is not a matrix.
        InvalidTable
            If a cell has no records, or ``levels`` are repeated or too few or many.

        Examples
        --------
        >>> import drha
        >>> drha.FrequencyTable.from_counts([[3, 0], [2, 1]])
        FrequencyTable(2 cells x 2 levels, 6 records, 1 homogeneous cell)
        """
        counts = check_counts(counts)
        if counts.ndim != 2 or 0 in counts.shape:
            raise InvalidCounts(
                f"counts have shape {counts.shape}; a table needs (cells, levels), both positive"
            )
        empty = ~counts.any(axis=1)
        if empty.any():
            raise InvalidTable(
                f"cell {int(np.argmax(empty))} has no records ({int(empty.sum())} such cells); a "
                "frequency table holds non-empty cells: pass counts[counts.any(axis=1)]"
            )
        levels = _declared(range(counts.shape[1]) if levels is None else levels)
        if len(levels) != counts.shape[1]:
            raise InvalidTable(f"{len(levels)} levels are named for {counts.shape[1]} columns")
        number = _frozen(np.arange(len(counts)))
        return cls(_frozen(np.array(counts, np.int64)), levels, {"cell": number}, {"cell": number})

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        quasi_identifiers: Iterable,
        sensitive,
        *,
        levels: Sequence | None = None,
    ) -> FrequencyTable:
        """Count the records of a frame.

        Parameters
        ----------
        frame : pandas.DataFrame
            One row per record.
        quasi_identifiers : iterable of column names
            What the adversary knows of the target; at least one.
        sensitive : column name
            What the adversary wants to learn.
        levels : sequence, optional
            All possible sensitive levels, in order. By default the categories of a categorical
            column, else the observed values, sorted. A level that never occurs matters: its zero
            counts are sanitised too.

        Returns
        -------
        FrequencyTable
            Cells in lexicographic order of the quasi-identifiers; cells without records are
            never formed.

        Raises
        ------
        InvalidFrame
            If the frame is empty, repeats a column name, lacks a named column or has a missing,
            unhashable or unsortable value in one.
        InvalidTable
            If a column is used twice, or ``levels`` are repeated or miss an observed value.

        Notes
        -----
        Each column becomes whole-number codes and the codes of a row become one number; sorting
        these numbers and counting equal ones forms the cells that occur, and no others.
        """
        quasi_identifiers = _check_roles(quasi_identifiers, sensitive)
        _check_frame(frame, [*quasi_identifiers, sensitive])
        level_codes, levels = _sensitive_codes(frame[sensitive], levels)
        columns = {name: _codes(frame[name]) for name in quasi_identifiers}
        rows = [*(codes for codes, _ in columns.values()), level_codes]
        sizes = [*(len(values) for _, values in columns.values()), len(levels)]
        (*cell_codes, level), number = _tally(rows, sizes)
        starts = np.append(True, np.any([np.diff(codes) != 0 for codes in cell_codes], axis=0))
        counts = np.zeros((np.count_nonzero(starts), len(levels)), dtype=np.int64)
        counts[np.cumsum(starts) - 1, level] = number
        return cls(
            _frozen(counts),
            levels,
            dict(zip(columns, (_frozen(codes[starts]) for codes in cell_codes), strict=True)),
            {name: np.asarray(values) for name, (_, values) in columns.items()},
            sensitive,
        )

    def __len__(self) -> int:
        return len(self.counts)

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.array(self.counts, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        homogeneous = int(self.homogeneous.sum())
        of = "" if self.sensitive is None else f" of {self.sensitive!r}"
        return (
            f"FrequencyTable({len(self)} {_plural('cell', len(self))} x {len(self.levels)} levels"
            f"{of}, {self.n_records} records, {homogeneous} homogeneous "
            f"{_plural('cell', homogeneous)})"
        )

    @property
    def quasi_identifiers(self) -> tuple:
        """Names of the quasi-identifiers."""
        return tuple(self.codes)

    @property
    def n_cells(self) -> int:
        """Number of non-empty cells."""
        return self.counts.shape[0]

    @property
    def n_levels(self) -> int:
        """Number K of sensitive levels."""
        return self.counts.shape[1]

    @property
    def n_records(self) -> int:
        """Number of records."""
        return int(self.sizes.sum())

    @cached_property
    def labels(self) -> dict:
        """For each quasi-identifier, its value in every cell, shape (cells,)."""
        return {name: _frozen(self.categories[name][code]) for name, code in self.codes.items()}

    @cached_property
    def sizes(self) -> np.ndarray:
        """Records per cell, shape (cells,)."""
        return _frozen(self.counts.sum(axis=1))

    @cached_property
    def support_sizes(self) -> np.ndarray:
        """Number of levels that occur in each cell, shape (cells,)."""
        return _frozen(np.count_nonzero(self.counts, axis=1))

    @property
    def homogeneous(self) -> np.ndarray:
        """Mask of the cells whose records share one level, shape (cells,)."""
        return self.support_sizes == 1

    @cached_property
    def shapes(self) -> tuple[np.ndarray, np.ndarray]:
        """Distinct cells up to the order of their levels, and which of them each cell is.

        The local risk does not depend on the order of the levels, so whatever is computed for
        the shapes, shape (shapes, levels), holds for the cells by position, shape (cells,). A
        table has far fewer shapes than cells.
        """
        ordered = np.sort(self.counts, axis=1)
        shapes, shape = np.unique(ordered, axis=0, return_inverse=True)
        return _frozen(shapes), _frozen(shape.reshape(-1))

    def to_frame(self) -> pd.DataFrame:
        """Return the counts as a DataFrame: cells in the index, levels in the columns."""
        import pandas as pd

        index = pd.MultiIndex.from_arrays(list(self.labels.values()), names=self.quasi_identifiers)
        columns = pd.Index(self.levels, name=self.sensitive)
        return pd.DataFrame(self.counts, index=index, columns=columns)


def _plural(noun: str, number: int) -> str:
    return noun if number == 1 else noun + "s"


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def _check_roles(quasi_identifiers, sensitive) -> list:
    if isinstance(quasi_identifiers, str) or not isinstance(quasi_identifiers, Iterable):
        raise InvalidTable(
            f"quasi_identifiers must be a list of column names, not {quasi_identifiers!r}"
        )
    if not isinstance(sensitive, Hashable):
        raise InvalidTable(f"sensitive must be one column name, not {sensitive!r}")
    names = list(quasi_identifiers)
    if not names:
        raise InvalidTable("quasi_identifiers is empty; name at least one column")
    for name in names:
        if names.count(name) > 1:
            raise InvalidTable(f"column {name!r} is named twice among the quasi_identifiers")
        if name == sensitive:
            raise InvalidTable(
                f"column {name!r} is both a quasi-identifier and the sensitive attribute; "
                "give it one role"
            )
    return names


def _check_frame(frame, used: list) -> None:
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise InvalidFrame(f"frame must be a pandas DataFrame, not {type(frame).__name__}")
    if frame.columns.nlevels > 1:
        raise InvalidFrame("the frame has more than one header row; flatten its columns first")
    repeated = frame.columns[frame.columns.duplicated()]
    if len(repeated):
        raise InvalidFrame(f"column {repeated[0]!r} occurs more than once; rename the columns")
    absent = [name for name in used if name not in frame.columns]
    if absent:
        raise InvalidFrame(f"column {absent[0]!r} is not in the frame {list(frame.columns)!r}")
    if len(frame) == 0:
        raise InvalidFrame("the frame has no rows; there are no records to count")
    for name in used:
        missing = frame[name].isna().to_numpy()
        if missing.any():
            row = int(np.argmax(missing))
            raise InvalidFrame(
                f"column {name!r} has a missing value in row {row} (index {frame.index[row]!r}), "
                f"{int(missing.sum())} in all; drop these rows or give them a level of their own"
            )


def _declared(levels: Sequence) -> tuple:
    """Levels as a tuple, each named once."""
    if isinstance(levels, str) or not isinstance(levels, Iterable):
        raise InvalidTable(f"levels must be a list of sensitive levels, not {levels!r}")
    levels = tuple(levels)
    for i, level in enumerate(levels):
        if level in levels[:i]:
            raise InvalidTable(f"sensitive level {level!r} is named twice")
    return levels


def _codes(column: pd.Series) -> tuple[np.ndarray, pd.Index]:
    """Whole-number codes of a column without missing values, and the value of each code."""
    import pandas as pd

    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.codes.to_numpy(np.int64), column.cat.categories
    try:
        codes, values = pd.factorize(column, sort=True)
    except TypeError as error:
        raise InvalidFrame(
            f"the values of column {column.name!r} cannot be sorted or hashed ({error}); "
            "convert the column to one type or to a categorical"
        ) from error
    return codes.astype(np.int64, copy=False), values


def _sensitive_codes(column: pd.Series, levels: Sequence | None) -> tuple[np.ndarray, tuple]:
    codes, values = _codes(column)
    observed = values.tolist()
    if levels is None:
        return codes, tuple(observed)
    levels = _declared(levels)
    place = {level: i for i, level in enumerate(levels)}
    codes = np.array([place.get(value, -1) for value in observed], dtype=np.int64)[codes]
    outside = codes < 0
    if outside.any():
        row = int(np.argmax(outside))
        raise InvalidTable(
            f"column {column.name!r} has {column.iloc[row]!r} in row {row} (index "
            f"{column.index[row]!r}), which is not one of the declared levels {levels!r}"
        )
    return codes, levels


def _tally(columns: list[np.ndarray], sizes: list[int]) -> tuple[list[np.ndarray], np.ndarray]:
    """Count equal rows of codes.

    Returns the codes of the distinct rows, column by column and in lexicographic order, and how
    often each occurs.
    """
    # One number for each row, with the codes as its digits. Before the digits overflow, the
    # numbers so far are replaced by their ranks, which a row can be read back from.
    key, span, ranks = np.zeros(len(columns[0]), dtype=np.int64), 1, {}
    for i, (codes, size) in enumerate(zip(columns, sizes, strict=True)):
        if span > np.iinfo(np.int64).max // size:
            ranks[i], key = np.unique(key, return_inverse=True)
            span = len(ranks[i])
        key = key * size + codes
        span *= size
    key, number = np.unique(key, return_counts=True)
    digits = []
    for i, size in reversed(list(enumerate(sizes))):
        key, digit = np.divmod(key, size)
        digits.append(digit)
        if i in ranks:
            key = ranks[i][key]
    return digits[::-1], number
