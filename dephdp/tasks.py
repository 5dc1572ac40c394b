"""Stage 2: downstream tasks, and what they lose when one record is replaced by another.

A task is a statistic U and a discrepancy γ: replacing the record x by y costs γ(U(x), U(y))
(Eq. 16 and 18 of DepHDP). U describes a record, or a whole reference population in which one
record is x. In the second case it matters whose place x takes, so every task is asked for the
``rows`` of the reference whose records leave.
"""

import numba
import numpy as np

from dephdp.errors import InvalidLoss, InvalidTask
from dephdp.group import RowIndex


class Task:
    """A downstream task on records like those of a reference table.

    Subclasses implement ``_losses(rows, before, after)``, vectorised like :meth:`losses`.

    Parameters
    ----------
    domain : Domain
        The attributes of a record.
    reference : array_like of int, shape (N, L)
        Level codes of reference records, as ``domain.encode`` returns them.

    Raises
    ------
    InvalidDomain, InvalidTask
        If a code is outside its levels, or there is no record.
    """

    def __init__(self, domain, reference):
        reference = np.array(domain.check_codes(reference), dtype=np.int64)
        if reference.ndim != 2 or not len(reference):
            raise InvalidTask(f"a task needs a nonempty reference, got shape {reference.shape}")
        reference.flags.writeable = False
        self.domain, self.reference = domain, reference

    def __repr__(self):
        return f"{type(self).__name__}({len(self.reference)} records of {self.domain.names})"

    def losses(self, rows, before, after):
        """Return the loss of reporting ``after`` where the record is ``before``.

        Parameters
        ----------
        rows : array_like of int, shape (...)
            Rows of the reference: that record leaves, and ``before`` or ``after`` takes its place.
        before, after : array_like of int, shape (..., L)
            Level codes of whole records x and y. The shapes broadcast.

        Returns
        -------
        ndarray, shape (...)
            γ(U(x), U(y)), finite and nonnegative.

        Raises
        ------
        InvalidDomain, InvalidTask
            If a code or a row is out of range.
        InvalidLoss
            If the task returns a loss that is negative or not finite.
        """
        rows = np.asarray(rows)
        if not np.issubdtype(rows.dtype, np.integer):
            raise InvalidTask(f"rows must be integers, got dtype {rows.dtype}")
        if rows.size and not (rows.min() >= 0 and rows.max() < len(self.reference)):
            raise InvalidTask(f"rows must lie in 0, ..., {len(self.reference) - 1}")
        before, after = self.domain.check_codes(before), self.domain.check_codes(after)
        shape = np.broadcast_shapes(rows.shape, before.shape[:-1], after.shape[:-1])
        losses = np.broadcast_to(self._losses(rows, before, after), shape)
        usable = np.isfinite(losses) & (losses >= 0)
        if not usable.all():
            at = tuple(np.argwhere(~usable)[0])
            x, y = (np.broadcast_to(z, (*shape, len(self.domain)))[at] for z in (before, after))
            raise InvalidLoss(
                f"{self!r}: the loss of reporting codes {y.tolist()} for {x.tolist()} is "
                f"{losses[at]!r}; a task's losses must be finite and nonnegative"
            )
        return losses

    def closed_form(self, group):
        """Return the within-group loss matrix if a formula gives it, otherwise None.

        Parameters
        ----------
        group : Group
            Its n states.

        Returns
        -------
        ndarray, shape (n, n), or None
        """
        return None


class RecordTask(Task):
    """A task whose statistic describes one record, given by two functions.

    Parameters
    ----------
    domain : Domain
        The attributes of a record.
    reference : array_like of int, shape (N, L)
        Level codes of reference records.
    statistic : callable
        U: level codes (m, L) to statistics (m, ...).
    discrepancy : callable
        γ: two arrays of statistics (m, ...) to losses (m,).

    Examples
    --------
    >>> from dephdp import Attribute, Domain
    >>> domain = Domain([Attribute.ordinal("a", range(3)), Attribute.ordinal("b", range(3))])
    >>> task = RecordTask(domain, [[0, 2]], lambda x: x.sum(axis=1), lambda u, v: abs(u - v))
    >>> task.losses(0, [0, 2], [[1, 1], [2, 2]]).tolist()
    [0, 2]
    """

    def __init__(self, domain, reference, statistic, discrepancy):
        super().__init__(domain, reference)
        self.statistic, self.discrepancy = statistic, discrepancy

    def _losses(self, rows, before, after):
        shape = np.broadcast_shapes(rows.shape, before.shape[:-1], after.shape[:-1])
        u, v = self._statistics(before, shape), self._statistics(after, shape)
        losses = np.asarray(self.discrepancy(u, v))
        if losses.shape != (len(u),):
            raise InvalidTask(
                f"the discrepancy returned shape {losses.shape} for {len(u)} pairs: "
                "it must return one loss a pair"
            )
        return losses.reshape(shape)

    def _statistics(self, records, shape):
        flat = records.reshape(-1, records.shape[-1])
        found = np.asarray(self.statistic(flat))
        if found.shape[:1] != (len(flat),):
            raise InvalidTask(
                f"the statistic returned shape {found.shape} for {len(flat)} records: "
                "its first axis must be the records"
            )
        rest = found.shape[1:]
        spread = np.broadcast_to(found.reshape((*records.shape[:-1], *rest)), (*shape, *rest))
        return spread.reshape(-1, *rest)


class PopulationTask(Task):
    """A task whose statistic describes a whole table, given by two functions.

    It is evaluated on one table a pair, so it is slow; the classes below are fast.

    Parameters
    ----------
    domain : Domain
        The attributes of a record.
    reference : array_like of int, shape (N, L)
        Level codes of reference records.
    statistic : callable
        U: a table of level codes (N, L) to anything.
    discrepancy : callable
        γ: two such statistics to one loss.
    """

    def __init__(self, domain, reference, statistic, discrepancy):
        super().__init__(domain, reference)
        self.statistic, self.discrepancy = statistic, discrepancy

    def _losses(self, rows, before, after):
        shape = np.broadcast_shapes(rows.shape, before.shape[:-1], after.shape[:-1])
        width = self.reference.shape[1]
        rows = np.broadcast_to(rows, shape).ravel()
        before, after = (
            np.broadcast_to(z, (*shape, width)).reshape(-1, width) for z in (before, after)
        )
        known = {}

        def population(row, record):
            key = (row, record.tobytes())
            if key not in known:
                table = self.reference.copy()
                table[row] = record
                known[key] = self.statistic(table)
            return known[key]

        losses = [
            self.discrepancy(population(row, x), population(row, y))
            for row, x, y in zip(rows, before, after, strict=True)
        ]
        return np.array(losses, dtype=float).reshape(shape)


class FrequencyEstimation(Task):
    """Estimating the marginal frequencies: scale · Σ_ℓ ‖p'_ℓ - p_ℓ‖², in squared frequencies.

    Parameters
    ----------
    domain : Domain
        The attributes of a record.
    reference : array_like of int, shape (N, L)
        Level codes of reference records.
    scale : float, optional
        Positive factor, 10⁵ as in the case study of DepHDP.

    Notes
    -----
    Replacing one record moves 1 / N from one level to another in every attribute that changes, and
    ‖p'_ℓ - p_ℓ‖² = 2 / N² there. So the loss is 2 scale / N² times the Hamming distance of x and y,
    whatever the table holds.
    """

    def __init__(self, domain, reference, scale=1e5):
        super().__init__(domain, reference)
        self.scale = _positive(scale, "scale")

    @property
    def loss_of_one_attribute(self):
        """The loss when one attribute changes, 2 scale / N²."""
        return 2 * self.scale / len(self.reference) ** 2

    def _losses(self, rows, before, after):
        return self.loss_of_one_attribute * (before != after).sum(axis=-1)

    def closed_form(self, group):
        """Return 2 scale / N² times the Hamming distances of the group's states.

        Parameters
        ----------
        group : Group
            Its n states.

        Returns
        -------
        ndarray, shape (n, n)
        """
        changed = np.zeros((group.size, group.size))
        for column in group.codes.T:
            changed += column[:, None] != column
        return self.loss_of_one_attribute * changed


class EntropyEstimation(Task):
    """Estimating marginal entropies, a joint entropy and their gap, the total correlation.

    Parameters
    ----------
    domain : Domain
        The attributes of a record.
    reference : array_like of int, shape (N, L)
        Level codes of reference records.
    weights : tuple of float, optional
        Nonnegative weights of the marginal entropies, the joint entropy and the total correlation.
    blocks : sequence of sequence of str, optional
        Disjoint groups of attributes; each has its own joint entropy and total correlation, and
        their losses add up. One block of all attributes by default.
    scale : float, optional
        Positive factor.
    base : float, optional
        Base of the logarithm: 2 for bits.

    Notes
    -----
    For a block B, with Δ the change from one table to the other,

        scale · (w_1 mean over ℓ in B of |ΔH_ℓ| + w_2 |ΔH_B| + w_3 |Δ(Σ_ℓ H_ℓ - H_B)|).

    A table of N records whose cells hold n_v has H = ln N - Σ_v n_v ln n_v / N. Let m_v count the
    other N - 1 records. With z in the remaining place only the cell of z differs, so

        H(z) = constant - g(m_z) / N,   g(m) = (m + 1) ln(m + 1) - m ln m:

    one look-up a record instead of a pass over the table.
    """

    def __init__(
        self, domain, reference, weights=(0.3, 0.4, 0.3), *, blocks=None, scale=1000.0, base=2.0
    ):
        super().__init__(domain, reference)
        self.weights = np.asarray(weights, dtype=float)
        if self.weights.shape != (3,) or not (self.weights >= 0).all():
            raise InvalidTask(f"three nonnegative weights are needed, got {weights!r}")
        if not (np.isfinite(self.weights).all() and self.weights.any()):
            raise InvalidTask(f"weights must be finite and not all zero, got {weights!r}")
        if not (np.isfinite(base) and base > 1):
            raise InvalidTask(f"the base of a logarithm is finite and above one, got {base!r}")
        blocks = [domain.names] if blocks is None else list(blocks)
        self.blocks = [domain.positions(names) for names in blocks]
        named = [position for block in self.blocks for position in block]
        if not named or len(set(named)) != len(named):
            raise InvalidTask("blocks must be disjoint, and there must be one")
        self.scale, self.base = _positive(scale, "scale"), base
        count = len(self.reference)
        powers = np.arange(count + 1.0)
        powers[1:] *= np.log(powers[1:])
        # entropy with z added to m equal records, up to what does not depend on z
        self._entropy_of = -np.diff(powers) / (count * np.log(base))
        self._marginals = [
            np.bincount(column, minlength=size)
            for column, size in zip(self.reference.T, domain.sizes, strict=True)
        ]
        self._joints = [RowIndex(self.reference[:, block]) for block in self.blocks]

    def _losses(self, rows, before, after):
        left = self.reference[rows]
        total = 0.0
        for block, joint in zip(self.blocks, self._joints, strict=True):
            changed = [i for i in block if (before[..., i] != after[..., i]).any()]
            if not changed:
                continue
            marginal_sum, marginal_change = 0.0, 0.0
            for i in changed:
                change = self._marginal(i, left, after) - self._marginal(i, left, before)
                marginal_sum = marginal_sum + change
                marginal_change = marginal_change + np.abs(change)
            joint_change = self._joint(block, joint, left, after) - self._joint(
                block, joint, left, before
            )
            first, second, third = self.weights
            total = total + (
                first * marginal_change / len(block)
                + second * np.abs(joint_change)
                + third * np.abs(marginal_sum - joint_change)
            )
        return self.scale * total

    def _marginal(self, attribute, left, record):
        level = record[..., attribute]
        others = self._marginals[attribute][level] - (left[..., attribute] == level)
        return self._entropy_of[others]

    def _joint(self, block, joint, left, record):
        cell = joint.find(record[..., block])
        others = np.where(cell >= 0, joint.counts[cell], 0)
        others = others - (left[..., block] == record[..., block]).all(axis=-1)
        return self._entropy_of[others]


class Crowdsourcing(Task):
    """Labelling items by majority vote: scale · Σ |label' - label| / Σ label'.

    An item's record gives scores s_c; its true label for score c is the score's place between the
    smallest and the largest of the table, mapped to 1, ..., levels: round(1 + (levels - 1)
    (s - min) / (max - min)), halves upwards. Workers vote, the majority is the item's label. As
    one record changes, its own label does, and everybody's when it is the smallest or largest.

    Parameters
    ----------
    domain : Domain
        The attributes of a record.
    reference : array_like of int, shape (N, L)
        Level codes of the items.
    scores : callable
        Level codes (m, L) to finite scores (m, C); see :func:`wine_quality_scores`.
    levels : int, optional
        How many labels there are, at least 2.
    workers : int, optional
        How many workers there are.
    votes : int, optional
        How many of them vote on an item.
    reliability : float or array_like, shape (workers,), optional
        Probability that a worker's vote is the true label; otherwise it is any other label, with
        equal chances.
    scale : float, optional
        Positive factor.
    rng : numpy.random.Generator, optional
        Draws who votes on what and who errs, once; needed if a worker is not fully reliable.

    Notes
    -----
    If two labels have equally many votes the smaller wins. Where all scores are equal, every true
    label is 1. The draws are kept while records change, so that the loss is caused by the change
    and not by fresh votes: every item has a fixed map from true labels to voted ones.
    """

    def __init__(
        self,
        domain,
        reference,
        scores,
        *,
        levels=5,
        workers=15,
        votes=5,
        reliability=1.0,
        scale=1e4,
        rng=None,
    ):
        super().__init__(domain, reference)
        self.scores, self.scale = scores, _positive(scale, "scale")
        if levels < 2 or not 1 <= votes <= workers:
            raise InvalidTask(
                f"levels >= 2 and 1 <= votes <= workers are needed, got {levels} levels, "
                f"{votes} votes, {workers} workers"
            )
        reliability = np.broadcast_to(np.asarray(reliability, dtype=float), (workers,))
        if not ((reliability >= 0) & (reliability <= 1)).all():
            raise InvalidTask("a reliability is a probability")
        self.levels = levels
        self._scores = self._scored(self.reference)
        count, dimensions = self._scores.shape
        self._voted = np.tile(np.arange(levels), (count, dimensions, 1))
        if (reliability < 1).any():
            if not isinstance(rng, np.random.Generator):
                raise TypeError("workers that err need rng, a numpy.random.Generator")
            self._voted = _majorities(self._voted, votes, reliability, rng)
        ordered = np.sort(self._scores, axis=0)
        smallest, largest = self._scores == ordered[0], self._scores == ordered[-1]
        second = min(1, count - 1)  # a table of one record has no other: it is replaced outright
        self._low = np.where(smallest, ordered[second], ordered[0])
        self._high = np.where(largest, ordered[-1 - second], ordered[-1])

    def _scored(self, records):
        found = np.asarray(self.scores(records.reshape(-1, records.shape[-1])), dtype=float)
        if found.ndim != 2 or len(found) != np.prod(records.shape[:-1]):
            raise InvalidTask(f"scores must be (records, scores), got shape {found.shape}")
        if not np.isfinite(found).all():
            raise InvalidTask("scores must be finite")
        return found.reshape(*records.shape[:-1], -1)

    def _losses(self, rows, before, after):
        shape = np.broadcast_shapes(rows.shape, before.shape[:-1], after.shape[:-1])
        dimensions = self._scores.shape[1]
        x, y = (
            np.broadcast_to(self._scored(z), (*shape, dimensions)).reshape(-1, dimensions)
            for z in (before, after)
        )
        rows = np.broadcast_to(rows, shape).ravel()
        changes = _label_changes(
            rows, x, y, self._scores, self._low, self._high, self._voted, self.levels
        )
        return (self.scale * changes).reshape(shape)


def wine_quality_scores(domain):
    """Return the function that scores a red wine five times, for :class:`Crowdsourcing`.

    Parameters
    ----------
    domain : Domain
        Numeric attributes named as in :func:`dephdp.datasets.load_wine_red`; those present count.

    Returns
    -------
    callable
        Level codes (m, L) to scores (m, 5): the sum of all features; the mean acidity; the mean of
        sugar and alcohol; minus the larger of the two sulfur dioxides; the mean of chlorides,
        density and sulphates.

    Raises
    ------
    InvalidTask
        If a score has none of its features among the attributes.
    """
    parts = (
        ("fixed_acidity", "volatile_acidity", "citric_acid"),
        ("residual_sugar", "alcohol"),
        ("free_sulfur_dioxide", "total_sulfur_dioxide"),
        ("chlorides", "density", "sulphates"),
    )
    present = [[i for i, name in enumerate(domain.names) if name in part] for part in parts]
    if not all(present):
        missing = next(part for part, found in zip(parts, present, strict=True) if not found)
        raise InvalidTask(f"none of {missing} is an attribute of {domain.names}")
    acidity, taste, sulfur, minerals = present
    features = [i for i, name in enumerate(domain.names) if name != "quality"]
    levels = [np.asarray(attribute.levels, dtype=float) for attribute in domain.attributes]

    def scores(codes):
        values = np.stack([level[column] for level, column in zip(levels, codes.T, strict=True)], 1)
        return np.stack(
            [
                values[:, features].sum(axis=1),
                values[:, acidity].mean(axis=1),
                values[:, taste].mean(axis=1),
                -values[:, sulfur].max(axis=1),
                values[:, minerals].mean(axis=1),
            ],
            axis=1,
        )

    return scores


def _majorities(truth, votes, reliability, rng):
    """Draw the voters once; return the voted label for every item, score and true label."""
    count, dimensions, levels = truth.shape
    workers = len(reliability)
    voters = rng.permuted(np.tile(np.arange(workers), (count, 1)), axis=1)[:, :votes]
    shape = (count, dimensions, votes)
    right = rng.random(shape) < reliability[voters][:, None]
    error = np.where(right, 0, rng.integers(1, levels, shape))
    ballots = (truth[..., None] + error[:, :, None]) % levels
    tally = (ballots[..., None] == np.arange(levels)).sum(axis=3)
    return tally.argmax(axis=-1)


@numba.njit(cache=True)
def _label_changes(rows, x, y, scores, low, high, voted, levels):
    """Return Σ |label' - label| / Σ label' for each pair, labels counted from one."""
    count, dimensions = scores.shape
    result = np.empty(len(rows))
    for pair in range(len(rows)):
        row = rows[pair]
        moved, total = 0, 0
        for c in range(dimensions):
            u, v = x[pair, c], y[pair, c]
            low_x, high_x = min(low[row, c], u), max(high[row, c], u)
            low_y, high_y = min(low[row, c], v), max(high[row, c], v)
            if count == 1:
                low_x, high_x, low_y, high_y = u, u, v, v
            for item in range(count):
                s, t = scores[item, c], scores[item, c]
                if item == row:
                    s, t = u, v
                new = voted[item, c, _label(t, low_y, high_y, levels)]
                total += new + 1
                if item == row or low_x != low_y or high_x != high_y:
                    moved += abs(new - voted[item, c, _label(s, low_x, high_x, levels)])
        result[pair] = moved / total
    return result


@numba.njit(cache=True)
def _label(score, low, high, levels):
    """Return the true label, counted from zero."""
    if high <= low:
        return 0
    return int(np.floor((levels - 1) * (score - low) / (high - low) + 0.5))


def _positive(value, name):
    if not (np.isfinite(value) and value > 0):
        raise InvalidTask(f"{name} must be finite and positive, got {value!r}")
    return float(value)
