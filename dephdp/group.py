"""A group of attributes: its finite list of states, and the arrays a design is made from."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dephdp.domain import Domain
from dephdp.errors import InvalidGroup
from dephdp.metric import check_distances, distance_matrix
from dephdp.validation import check_loss, check_prior


class RowIndex:
    """The distinct rows of a table of codes, numbered in lexicographic order.

    Parameters
    ----------
    rows : array_like of int, shape (m, columns)
        Nonnegative codes.

    Attributes
    ----------
    rows : ndarray of int, shape (n, columns)
        The distinct rows, increasing.
    counts : ndarray of int, shape (n,)
        How often each occurs.
    inverse : ndarray of int, shape (m,)
        The number of each row of the table.

    Notes
    -----
    Rows are found one column at a time: the number of a prefix and the next code together make one
    integer below n times the largest code, so that no number of columns overflows.
    """

    def __init__(self, rows):
        rows = np.asarray(rows, dtype=np.int64)
        self.rows, inverse, self.counts = np.unique(
            rows, axis=0, return_inverse=True, return_counts=True
        )
        self.inverse = inverse.reshape(len(rows))
        self._steps = []
        prefix = np.zeros(len(self.rows), dtype=np.int64)
        for column in self.rows.T:
            base = int(column.max()) + 1
            known, prefix = np.unique(prefix * base + column, return_inverse=True)
            self._steps.append((base, known))

    def find(self, rows):
        """Return the numbers of rows, -1 for a row that the table does not hold.

        Parameters
        ----------
        rows : array_like of int, shape (..., columns)
            Nonnegative codes.

        Returns
        -------
        ndarray of int, shape (...)
        """
        rows = np.asarray(rows)
        found = np.zeros(rows.shape[:-1], dtype=np.int64)
        for column, (base, known) in enumerate(self._steps):
            codes = rows[..., column]
            key = found * base + codes
            place = np.minimum(np.searchsorted(known, key), len(known) - 1)
            hit = (known[place] == key) & (found >= 0) & (codes < base)
            found = np.where(hit, place, -1)
        return found


def check_partition(parts, domain):
    """Refuse parts that are not a partition of a domain's attributes.

    Parameters
    ----------
    parts : sequence of sequence of str
        Names of attributes.
    domain : Domain
        Where they are declared.

    Raises
    ------
    InvalidGroup
        If an attribute is in no part, in two, or unknown.
    """
    named = [name for part in parts for name in part]
    if sorted(named) != sorted(domain.names):
        raise InvalidGroup(f"groups {list(parts)} are no partition of {list(domain.names)}")


@dataclass(frozen=True, eq=False)
class Group:
    """Attributes that are perturbed jointly, and the states that one mechanism maps among.

    Build one with :meth:`full` or :meth:`observed`.

    Parameters
    ----------
    domain : Domain
        Where the attributes are declared.
    names : tuple of str
        The attributes of the group.
    codes : array_like of int, shape (n, attributes of the group)
        The states: distinct rows of level codes, increasing, which is the order of
        ``domain.ravel``.

    Raises
    ------
    InvalidDomain
        If an attribute is unknown or repeated, or a code is outside its levels.
    InvalidGroup
        If there is no state, or the states are not distinct and increasing.

    Examples
    --------
    >>> from dephdp import Attribute
    >>> domain = Domain([Attribute.nominal("sex", "FM"), Attribute.ordinal("size", "SML")])
    >>> group = Group.observed(domain, ["sex", "size"], [[0, 2], [1, 0], [0, 2]])
    >>> group.codes.tolist(), group.prior([[0, 2], [1, 0], [0, 2]]).round(2).tolist()
    ([[0, 2], [1, 0]], [0.67, 0.33])
    """

    domain: Domain
    names: tuple[str, ...]
    codes: np.ndarray

    def __post_init__(self):
        names = (self.names,) if isinstance(self.names, str) else tuple(self.names)
        object.__setattr__(self, "names", names)
        codes = np.array(self.domain.check_codes(self.codes, names), dtype=np.int64)
        if codes.ndim != 2 or not len(codes):
            raise InvalidGroup(f"group {names} needs a nonempty table of states")
        if not np.array_equal(RowIndex(codes).rows, codes):
            raise InvalidGroup(f"group {names}: states must be distinct rows in increasing order")
        codes.flags.writeable = False
        object.__setattr__(self, "codes", codes)

    @classmethod
    def full(cls, domain, names, limit=10_000):
        """Take every combination of the declared levels as a state.

        Parameters
        ----------
        domain : Domain
            Where the attributes are declared.
        names : sequence of str
            The group.
        limit : int, optional
            The largest number of states to write down.

        Returns
        -------
        Group

        Raises
        ------
        InvalidGroup
            If there are more combinations than the limit.
        """
        names = (names,) if isinstance(names, str) else tuple(names)
        size = domain.size(names)
        if size > limit:
            raise InvalidGroup(
                f"group {names} has {size} combinations of levels, more than the limit of {limit}: "
                "split the group, use coarser levels, or take the observed combinations"
            )
        return cls(domain, names, domain.unravel(np.arange(size), names))

    @classmethod
    def observed(cls, domain, names, records):
        """Take the combinations that occur in a table of records as states.

        Parameters
        ----------
        domain : Domain
            Where the attributes are declared.
        names : sequence of str
            The group.
        records : array_like of int, shape (rows, attributes of the domain)
            Level codes of whole records, as ``domain.encode`` returns them.

        Returns
        -------
        Group

        Notes
        -----
        The list of states is public once a mechanism is used. Records that are to be protected
        must not decide it: take it from reference data, or use :meth:`full`.
        """
        columns = domain.check_codes(records)[..., domain.positions(names)]
        return cls(domain, names, RowIndex(columns).rows)

    def __repr__(self):
        return f"Group({', '.join(self.names)}: {self.size} states)"

    @property
    def size(self):
        """Number of states, n."""
        return len(self.codes)

    @cached_property
    def columns(self):
        """Positions of the group's attributes among those of the domain."""
        return self.domain.positions(self.names)

    @cached_property
    def _index(self):
        return RowIndex(self.codes)

    def states(self, records):
        """Return the state of each record.

        Parameters
        ----------
        records : array_like of int, shape (..., attributes of the domain)
            Level codes of whole records.

        Returns
        -------
        ndarray of int, shape (...)

        Raises
        ------
        InvalidGroup
            If a record's combination is none of the states; the message names the first.
        """
        found = self.find(records)
        missing = np.flatnonzero(found < 0)
        if missing.size:
            part = np.asarray(records)[..., self.columns].reshape(-1, len(self.names))[missing[0]]
            levels = [a.levels[c] for a, c in zip(self.domain.group(self.names), part, strict=True)]
            raise InvalidGroup(
                f"record {missing[0]}: {dict(zip(self.names, levels, strict=True))} is not a state "
                f"of its group ({missing.size} such records): use Group.full, or reference "
                "records that hold every combination"
            )
        return found

    def find(self, records):
        """Return the state of each record, -1 where its combination is none of the states.

        Parameters
        ----------
        records : array_like of int, shape (..., attributes of the domain)
            Level codes of whole records.

        Returns
        -------
        ndarray of int, shape (...)
        """
        return self._index.find(self.domain.check_codes(records)[..., self.columns])

    def plug(self, records, states):
        """Replace the group's part of records: Plug_k(x, y_k) = (y_k, x_-k).

        Parameters
        ----------
        records : array_like of int, shape (..., attributes of the domain)
            Level codes of whole records x.
        states : array_like of int, shape (...)
            States y_k of the group; broadcast against the records.

        Returns
        -------
        ndarray of int, shape (..., attributes of the domain)
        """
        records, states = np.asarray(records), np.asarray(states)
        shape = np.broadcast_shapes(records.shape[:-1], states.shape)
        plugged = np.array(np.broadcast_to(records, (*shape, records.shape[-1])))
        plugged[..., self.columns] = self.codes[states]
        return plugged

    def prior(self, records=None, pseudocount=0.0):
        """Return a distribution of the state.

        Parameters
        ----------
        records : array_like of int, shape (rows, attributes of the domain), optional
            Level codes of whole records, whose empirical distribution is returned. Without
            records: the uniform distribution over the states.
        pseudocount : float, optional
            Added to the count of every state, so that none has probability zero.

        Returns
        -------
        ndarray, shape (n,)

        Raises
        ------
        InvalidGroup
            If a record is none of the states, there is no record, or the pseudocount is negative.
        """
        if records is None:
            return np.full(self.size, 1 / self.size)
        if not (np.isfinite(pseudocount) and pseudocount >= 0):
            raise InvalidGroup(f"a pseudocount is finite and nonnegative, got {pseudocount!r}")
        counts = np.bincount(self.states(records), minlength=self.size) + pseudocount
        if not counts.sum() > 0:
            raise InvalidGroup(f"group {self.names}: no records to take an empirical prior from")
        return counts / counts.sum()

    def distances(self, p=2, weights=None):
        """Return the distances d_{G,p} between the states.

        Parameters
        ----------
        p : float, optional
            Exponent in [1, ∞].
        weights : mapping or sequence of float, optional
            As in :func:`dephdp.distance_matrix`.

        Returns
        -------
        ndarray, shape (n, n)
        """
        return distance_matrix(self.domain, self.names, p, weights, codes=self.codes)


@dataclass(frozen=True, eq=False)
class GroupProfile:
    """What Stages 3 and 4 need of a group: how likely, how far apart and how costly.

    Parameters
    ----------
    group : Group
        Its n states, which are also the outputs.
    prior : array_like, shape (n,)
        Distribution π_k of the state.
    distances : array_like, shape (n, n)
        Distances d_{G_k,p} between the states.
    loss : array_like, shape (n, n)
        Loss c_k(y_k | x_k) of reporting y_k in state x_k (Eq. 17 of DepHDP).

    Raises
    ------
    InvalidDistribution, InvalidMetric, InvalidLoss
        If an array does not fit the group.
    """

    group: Group
    prior: np.ndarray
    distances: np.ndarray
    loss: np.ndarray

    def __post_init__(self):
        n = self.group.size
        for name, array in (
            ("prior", check_prior(self.prior, n)),
            ("distances", check_distances(self.distances, n)),
            ("loss", check_loss(self.loss, (n, n))),
        ):
            array = np.array(array)
            array.flags.writeable = False
            object.__setattr__(self, name, array)
