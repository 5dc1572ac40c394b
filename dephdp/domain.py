"""Attributes, their declared levels, and the finite domain they span."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from dephdp.errors import InvalidDomain, InvalidFrame

_LARGEST_INDEX = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Attribute:
    """One attribute of a record and the finite set of levels it may take.

    Build one with :meth:`nominal`, :meth:`ordinal` or :meth:`numeric`.

    Attributes
    ----------
    name : str
        The column it describes.
    kind : {"nominal", "ordinal", "numeric"}
        Decides the metric between levels.
    levels : tuple
        The levels, in code order. Numeric: their representatives, increasing (the midpoints of
        the bins, or the declared values).
    edges : tuple of float or None
        Bin edges of a binned numeric attribute.
    range : tuple of float or None
        Declared range [a, b] of a numeric attribute, the unit of its metric.
    """

    name: str
    kind: str
    levels: tuple
    edges: tuple[float, ...] | None = None
    range: tuple[float, float] | None = None

    def __post_init__(self):
        if self.kind not in ("nominal", "ordinal", "numeric"):
            raise InvalidDomain(f"attribute {self.name!r} has unknown kind {self.kind!r}")
        object.__setattr__(self, "levels", tuple(self.levels))
        if not self.levels:
            raise InvalidDomain(f"attribute {self.name!r} has no levels")
        if any(_is_missing(level) for level in self.levels):
            raise InvalidDomain(f"attribute {self.name!r} declares a missing value as a level")
        if len(set(self.levels)) != len(self.levels):
            repeated = next(level for level in self.levels if self.levels.count(level) > 1)
            raise InvalidDomain(f"attribute {self.name!r} declares level {repeated!r} twice")
        if self.kind == "numeric":
            self._check_numeric()

    def _check_numeric(self):
        if self.range is None:
            raise InvalidDomain(f"attribute {self.name!r}: a numeric attribute declares a range")
        low, high = self.range
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise InvalidDomain(f"attribute {self.name!r}: the range [{low}, {high}] is empty")
        for position, values in (("edges", self.edges), ("values", self.levels)):
            if values is not None and not all(a < b for a, b in pairwise(values)):
                raise InvalidDomain(f"attribute {self.name!r}: its {position} must increase")
        if not low <= self.levels[0] <= self.levels[-1] <= high:
            raise InvalidDomain(
                f"attribute {self.name!r}: its values leave the declared range [{low}, {high}]"
            )

    @classmethod
    def nominal(cls, name, levels):
        """Declare unordered levels, all at distance one.

        Parameters
        ----------
        name : str
            The column.
        levels : iterable
            Its levels, in code order.

        Returns
        -------
        Attribute
        """
        return cls(name, "nominal", tuple(levels))

    @classmethod
    def ordinal(cls, name, levels):
        """Declare ordered levels, at distance |rank difference| / (number of levels - 1).

        Parameters
        ----------
        name : str
            The column.
        levels : iterable
            Its levels, lowest first.

        Returns
        -------
        Attribute
        """
        return cls(name, "ordinal", tuple(levels))

    @classmethod
    def numeric(cls, name, *, edges=None, values=None, range=None):
        """Declare a numeric attribute by bin edges or by its values.

        Parameters
        ----------
        name : str
            The column.
        edges : sequence of float, optional
            Increasing bin edges. Bins are closed on the left, the last one on both sides; each is
            represented by its midpoint.
        values : sequence of float, optional
            The values it may take, as an alternative to ``edges``.
        range : tuple of float, optional
            Declared (a, b): distances are |u - v| / (b - a). The first and last edge or value by
            default.

        Returns
        -------
        Attribute
        """
        if (edges is None) == (values is None):
            raise InvalidDomain(f"attribute {name!r}: give either edges or values")
        points = _floats(name, edges if values is None else values)
        if not all(map(math.isfinite, points)):
            raise InvalidDomain(f"attribute {name!r}: edges and values must be finite numbers")
        if edges is None:
            points = tuple(sorted(points))
        if edges is not None and len(points) < 2:
            raise InvalidDomain(f"attribute {name!r}: a bin needs two edges")
        bounds = (points[0], points[-1]) if range is None else _floats(name, range)
        if len(bounds) != 2:
            raise InvalidDomain(f"attribute {name!r}: a range is a pair (a, b), got {bounds}")
        if edges is None:
            return cls(name, "numeric", points, None, bounds)
        midpoints = tuple(a + (b - a) / 2 for a, b in pairwise(points))
        return cls(name, "numeric", midpoints, points, bounds)

    @property
    def size(self):
        """Number of levels."""
        return len(self.levels)

    @cached_property
    def _codes(self):
        return {level: code for code, level in enumerate(self.levels)}


class Domain:
    """The product of a list of attributes: every record that could be reported.

    Parameters
    ----------
    attributes : iterable of Attribute
        In column order, with different names.

    Raises
    ------
    InvalidDomain
        If there is no attribute, or two have the same name.

    Examples
    --------
    >>> domain = Domain([Attribute.nominal("sex", ["F", "M"]), Attribute.ordinal("size", "SML")])
    >>> domain.size(), domain.names
    (6, ('sex', 'size'))
    >>> domain.unravel(4).tolist()
    [1, 1]
    """

    def __init__(self, attributes):
        self.attributes = tuple(attributes)
        if not self.attributes:
            raise InvalidDomain("a domain needs at least one attribute")
        for attribute in self.attributes:
            if not isinstance(attribute, Attribute):
                raise InvalidDomain(f"{attribute!r} is not an Attribute")
        self._position = {attribute.name: i for i, attribute in enumerate(self.attributes)}
        if len(self._position) != len(self.attributes):
            names = [attribute.name for attribute in self.attributes]
            repeated = next(name for name in names if names.count(name) > 1)
            raise InvalidDomain(f"attribute {repeated!r} is declared twice")

    @classmethod
    def from_frame(cls, frame, nominal=(), ordinal=None, numeric=None):
        """Declare a domain for the columns of a table.

        Parameters
        ----------
        frame : pandas.DataFrame
            Records, without missing values. Every column must be declared: select the columns
            first, ``frame[[...]]``.
        nominal : iterable of str, optional
            Columns of unordered levels: the categories of a categorical column, otherwise the
            observed values in sorted order.
        ordinal : mapping or iterable of str, optional
            Name → ordered levels; a bare name (or None for the levels) takes the categories of
            an ordered categorical column.
        numeric : mapping, optional
            Name → an int (that many bins of equal width between the observed extremes), or
            a pair (a, b) (the observed values, on the declared range [a, b]), or three or more
            increasing bin edges.

        Returns
        -------
        Domain
            Attributes in the order of the columns.

        Raises
        ------
        InvalidFrame
            If the table is empty, or has duplicate columns or missing values.
        InvalidDomain
            If a column is undeclared, declared twice or unknown, or a value lies outside.

        Notes
        -----
        Observed levels and extremes reveal that somebody has them. Where that matters, declare
        categories, edges or attributes from public knowledge.
        """
        declared = _declarations(nominal, ordinal, numeric)
        names = _check_frame(frame)
        unknown = [name for name in declared if name not in names]
        if unknown:
            raise InvalidDomain(f"declared columns {unknown} are not in the table, {names}")
        undeclared = [name for name in names if name not in declared]
        if undeclared:
            raise InvalidDomain(
                f"columns {undeclared} are not declared: declare them, or select the others first"
            )
        domain = cls(_attribute(frame[name], *declared[name]) for name in names)
        domain.encode(frame)
        return domain

    @classmethod
    def infer(cls, frame, bins=10):
        """Guess a declaration from the columns of a table.

        Parameters
        ----------
        frame : pandas.DataFrame
            Records, without missing values.
        bins : int, optional
            Numbers with more distinct values are cut into so many bins of equal width.

        Returns
        -------
        Domain
            Ordered categorical columns are ordinal, numbers numeric on the observed range, all
            other columns nominal.

        Raises
        ------
        InvalidFrame, InvalidDomain
            As `from_frame`.

        Notes
        -----
        A guess to start from: declare what you know about the columns, see `from_frame`, whose
        warning about observed levels holds here too.
        """
        _check_frame(frame)
        nominal, ordinal, numeric = [], [], {}
        for name in frame.columns:
            dtype = frame[name].dtype
            if getattr(dtype, "ordered", False):
                ordinal.append(name)
            elif dtype.kind in "iuf" and frame[name].nunique() > 1:
                few = frame[name].nunique() <= bins
                numeric[name] = (frame[name].min(), frame[name].max()) if few else bins
            else:
                nominal.append(name)
        return cls.from_frame(frame, nominal, ordinal, numeric)

    @property
    def names(self):
        """Names of the attributes, in order."""
        return tuple(attribute.name for attribute in self.attributes)

    @property
    def sizes(self):
        """Numbers of levels, in order."""
        return tuple(attribute.size for attribute in self.attributes)

    def __len__(self):
        return len(self.attributes)

    def __getitem__(self, name):
        return self.attributes[self.positions([name])[0]]

    def __repr__(self):
        inside = ", ".join(f"{a.name}: {a.kind} {a.size}" for a in self.attributes)
        return f"Domain({inside})"

    def __eq__(self, other):
        return isinstance(other, Domain) and self.attributes == other.attributes

    def __hash__(self):
        return hash(self.attributes)

    def positions(self, names=None):
        """Return the column positions of a group of attributes.

        Parameters
        ----------
        names : sequence of str, optional
            The group; all attributes by default.

        Returns
        -------
        list of int

        Raises
        ------
        InvalidDomain
            If the group is empty, or a name is unknown or repeated.
        """
        if names is None:
            return list(range(len(self)))
        names = [names] if isinstance(names, str) else list(names)
        if not names:
            raise InvalidDomain("a group needs at least one attribute")
        for name in names:
            if name not in self._position:
                raise InvalidDomain(f"{name!r} is not an attribute of {list(self.names)}")
            if names.count(name) > 1:
                raise InvalidDomain(f"attribute {name!r} occurs twice in the group")
        return [self._position[name] for name in names]

    def group(self, names=None):
        """Return the attributes of a group.

        Parameters
        ----------
        names : sequence of str, optional
            The group; all attributes by default.

        Returns
        -------
        list of Attribute
        """
        return [self.attributes[position] for position in self.positions(names)]

    def size(self, names=None):
        """Return the number of states of a group, as a Python int of any size.

        Parameters
        ----------
        names : sequence of str, optional
            The group; all attributes by default.

        Returns
        -------
        int
        """
        return math.prod(attribute.size for attribute in self.group(names))

    def encode(self, frame):
        """Return the level codes of a table of records.

        Parameters
        ----------
        frame : pandas.DataFrame
            Records. Columns that the domain does not declare are not read.

        Returns
        -------
        ndarray of int64, shape (rows, attributes)

        Raises
        ------
        InvalidFrame
            If the table is empty, or has duplicate columns, missing columns or missing values.
        InvalidDomain
            If a value lies outside the domain; the message names its row and column.
        """
        _check_frame(frame, self.names)
        columns = [_encode(attribute, frame[attribute.name]) for attribute in self.attributes]
        return np.stack(columns, axis=1)

    def decode(self, codes):
        """Return the records that level codes stand for.

        Parameters
        ----------
        codes : array_like of int, shape (rows, attributes)
            As :meth:`encode` returns them.

        Returns
        -------
        pandas.DataFrame
            Categorical columns for nominal and (ordered) ordinal attributes; the representatives
            of numeric ones.

        Raises
        ------
        InvalidDomain
            If a code lies outside its attribute's levels.
        """
        import pandas as pd

        codes = self._check_codes(codes, self.attributes)
        if codes.ndim != 2:
            raise InvalidDomain(f"codes must be (rows, attributes), got shape {codes.shape}")
        columns = {}
        for attribute, column in zip(self.attributes, codes.T, strict=True):
            if attribute.kind == "numeric":
                columns[attribute.name] = np.asarray(attribute.levels)[column]
            else:
                columns[attribute.name] = pd.Categorical.from_codes(
                    column, list(attribute.levels), ordered=attribute.kind == "ordinal"
                )
        return pd.DataFrame(columns)

    def ravel(self, codes, names=None):
        """Return the state index of codes, in row-major order (last attribute fastest).

        Parameters
        ----------
        codes : array_like of int, shape (..., attributes of the group)
            Codes of the group's attributes, in the group's order; of a full table of codes these
            are the columns ``domain.positions(names)``.
        names : sequence of str, optional
            The group; all attributes by default.

        Returns
        -------
        ndarray of int64, shape (...)

        Raises
        ------
        InvalidDomain
            If a code is outside its attribute, or the group has more than 2⁶³ - 1 states.
        """
        group = self.group(names)
        codes = self._check_codes(codes, group)
        sizes = self._check_indexable(group)
        return np.ravel_multi_index(tuple(np.moveaxis(codes, -1, 0)), sizes).astype(np.int64)

    def unravel(self, states, names=None):
        """Return the codes of state indices: the inverse of :meth:`ravel`.

        Parameters
        ----------
        states : array_like of int, shape (...)
            State indices of the group.
        names : sequence of str, optional
            The group; all attributes by default.

        Returns
        -------
        ndarray of int64, shape (..., attributes of the group)

        Raises
        ------
        InvalidDomain
            If an index is outside, or the group has more than 2⁶³ - 1 states.
        """
        group = self.group(names)
        sizes = self._check_indexable(group)
        states = np.asarray(states)
        count = math.prod(sizes)
        if not np.issubdtype(states.dtype, np.integer):
            raise InvalidDomain(f"states must be integers, got dtype {states.dtype}")
        outside = np.flatnonzero((states < 0) | (states >= count))
        if outside.size:
            raise InvalidDomain(
                f"state {states.flat[outside[0]]} at position {outside[0]} is outside "
                f"0, ..., {count - 1}"
            )
        return np.stack(np.unravel_index(states, sizes), axis=-1).astype(np.int64)

    def check_codes(self, codes, names=None):
        """Return level codes as an integer array, each inside its attribute's levels.

        Parameters
        ----------
        codes : array_like of int, shape (..., attributes of the group)
            Codes of the group's attributes, in the group's order.
        names : sequence of str, optional
            The group; all attributes by default.

        Returns
        -------
        ndarray of int, shape (..., attributes of the group)

        Raises
        ------
        InvalidDomain
            If a code lies outside its attribute's levels.
        """
        return self._check_codes(codes, self.group(names))

    def _check_codes(self, codes, group):
        codes = np.asarray(codes)
        if not np.issubdtype(codes.dtype, np.integer):
            raise InvalidDomain(f"codes must be integers, got dtype {codes.dtype}")
        if codes.ndim < 1 or codes.shape[-1] != len(group):
            raise InvalidDomain(f"codes of {len(group)} attributes have shape {codes.shape}")
        for column, attribute in enumerate(group):
            values = codes[..., column]
            outside = np.flatnonzero((values < 0) | (values >= attribute.size))
            if outside.size:
                raise InvalidDomain(
                    f"row {outside[0]}, attribute {attribute.name!r}: code "
                    f"{values.flat[outside[0]]} is outside 0, ..., {attribute.size - 1}"
                )
        return codes

    def _check_indexable(self, group):
        sizes = tuple(attribute.size for attribute in group)
        if math.prod(sizes) > _LARGEST_INDEX:
            raise InvalidDomain(
                f"a group of {math.prod(sizes)} states has no 64-bit index: split it, or use "
                "coarser bins"
            )
        return sizes


def _declarations(nominal, ordinal, numeric):
    """One (kind, declaration) a column name."""
    if isinstance(nominal, str):
        nominal = [nominal]
    if not isinstance(ordinal, Mapping):
        ordinal = dict.fromkeys([ordinal] if isinstance(ordinal, str) else ordinal or ())
    declared = {}
    for kind, items in (
        ("nominal", dict.fromkeys(nominal)),
        ("ordinal", ordinal),
        ("numeric", numeric or {}),
    ):
        for name, declaration in items.items():
            if name in declared:
                raise InvalidDomain(f"column {name!r} is declared twice")
            declared[name] = (kind, declaration)
    return declared


def _attribute(column, kind, declaration):
    if kind == "numeric":
        return _numeric_attribute(column, declaration)
    categories = getattr(column.dtype, "categories", None)
    if kind == "nominal":
        return Attribute.nominal(
            column.name, _observed(column) if categories is None else categories.tolist()
        )
    if declaration is None:
        if not getattr(column.dtype, "ordered", False):
            raise InvalidDomain(
                f"column {column.name!r} is not an ordered categorical: give its ordered levels"
            )
        declaration = categories.tolist()
    return Attribute.ordinal(column.name, declaration)


def _numeric_attribute(column, declaration):
    name = column.name
    if isinstance(declaration, int | np.integer) and not isinstance(declaration, bool):
        values = _numbers(column)
        if declaration < 1:
            raise InvalidDomain(f"column {name!r}: the number of bins must be positive")
        low, high = float(values.min()), float(values.max())
        if not low < high:
            raise InvalidDomain(f"column {name!r} is constant: declare its bin edges")
        return Attribute.numeric(name, edges=np.linspace(low, high, declaration + 1))
    if np.ndim(declaration) != 1:
        raise InvalidDomain(
            f"column {name!r}: declare a number of bins, a pair (a, b) or bin edges, "
            f"not {declaration!r}"
        )
    if len(declaration) == 2:
        return Attribute.numeric(name, values=np.unique(_numbers(column)), range=declaration)
    return Attribute.numeric(name, edges=declaration)


def _observed(column):
    values = column.unique().tolist()
    try:
        return sorted(values)
    except TypeError:
        raise InvalidDomain(
            f"column {column.name!r} mixes values that have no common order: declare its levels "
            "as the categories of a categorical column"
        ) from None


def _encode(attribute, column):
    """Codes of one column, through its distinct values: the rows are looked at once."""
    import pandas as pd

    if attribute.edges is not None:
        return _encode_bins(attribute, column)
    where, values = pd.factorize(column)
    codes = np.array([attribute._codes.get(value, -1) for value in values.tolist()], dtype=np.int64)
    encoded = codes[where]
    _refuse_outside(attribute, column, encoded < 0)
    return encoded


def _encode_bins(attribute, column):
    values = _numbers(column)
    edges = np.asarray(attribute.edges)
    _refuse_outside(attribute, column, ~((values >= edges[0]) & (values <= edges[-1])))
    return np.minimum(np.searchsorted(edges, values, side="right") - 1, attribute.size - 1)


def _refuse_outside(attribute, column, outside):
    rows = np.flatnonzero(outside)
    if not rows.size:
        return
    if attribute.kind == "numeric" and attribute.edges is not None:
        allowed = f"[{attribute.edges[0]}, {attribute.edges[-1]}]"
    else:
        shown = ", ".join(map(repr, attribute.levels[:6]))
        allowed = f"{{{shown}{', ...' if attribute.size > 6 else ''}}}"
    raise InvalidDomain(
        f"row {rows[0]} (label {column.index[rows[0]]!r}), column {attribute.name!r}: "
        f"{column.iloc[rows[0]]!r} is outside {allowed}"
        f"{f', and so are {rows.size - 1} more rows' if rows.size > 1 else ''}; "
        "extend the declaration or correct the value"
    )


def _check_frame(frame, needed=None):
    """Column names of a table that is fit to be encoded."""
    names = list(frame.columns)
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise InvalidFrame(f"column {repeated!r} occurs more than once: rename or drop one")
    if not len(frame) or not names:
        raise InvalidFrame(f"the table is empty: {len(frame)} rows, {len(names)} columns")
    for name in names if needed is None else needed:
        if name not in names:
            raise InvalidFrame(f"column {name!r} is missing from the table, {names}")
        missing = np.flatnonzero(frame[name].isna().to_numpy())
        if missing.size:
            raise InvalidFrame(
                f"row {missing[0]} (label {frame.index[missing[0]]!r}), column {name!r} is missing"
                f" ({missing.size} such rows): drop or impute them, or make missing a level"
            )
    return names


def _numbers(column):
    try:
        return column.to_numpy(dtype=float)
    except (TypeError, ValueError):
        raise InvalidDomain(f"column {column.name!r} does not hold numbers") from None


def _floats(name, values):
    try:
        return tuple(float(value) for value in values)
    except (TypeError, ValueError):
        raise InvalidDomain(f"attribute {name!r}: {values!r} are not numbers") from None


def _is_missing(level):
    return level is None or level != level  # NaN differs from itself
