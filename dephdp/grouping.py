"""Stage 1: how strongly attributes depend on each other, and the groups they form."""

import math
from dataclasses import dataclass
from itertools import combinations

import numba
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from dephdp.errors import InvalidDomain, InvalidGroup
from dephdp.group import RowIndex

ESTIMATORS = ("permutation", "miller-madow", "plug-in")
RULES = ("equal-frequency", "equal-width")


def normalized_mutual_information(codes, estimator="permutation"):
    """Return the normalised mutual information 2 I(X_i; X_j) / (H(X_i) + H(X_j)) of all pairs.

    Parameters
    ----------
    codes : array_like of int, shape (records, attributes)
        Level codes.
    estimator : {"permutation", "miller-madow", "plug-in"}, optional
        "plug-in": the entropies of the empirical distribution, as in Stage 1 of DepHDP.
        "miller-madow": each entropy raised by (occupied cells - 1) / (2 records).
        "permutation": the plug-in value I set against its mean I0 over all permutations of
        a column, (I - I0) / (1 - I0).

    Returns
    -------
    ndarray, shape (attributes, attributes)
        Symmetric, at most 1; 1 on the diagonal, except that a constant attribute has 0 with every
        attribute, itself included. Corrected estimates may be negative: for independent attributes
        they scatter around zero. Plug-in values lie in [0, 1].

    Raises
    ------
    InvalidGroup
        If there is no record or attribute, or for an unknown estimator.

    See Also
    --------
    permuted_information : the whole distribution that the mean I0 summarises.

    Notes
    -----
    The plug-in mutual information of independent attributes is positive: (r - 1)(s - 1) / (2 n) on
    average to first order, for r and s levels and n records. The Miller-Madow correction removes
    this first order if every cell is occupied; with few records per cell it falls short. The
    permutation mean is exact for any number of records: under permutation a cell of margins a and
    b holds a hypergeometric count. The result is the adjusted mutual information of Vinh, Epps and
    Bailey (2010) with the mean of the two entropies as its upper end.

    Entropies are in nats; their ratio has no unit.
    """
    if estimator not in ESTIMATORS:
        raise InvalidGroup(f"estimator {estimator!r} is not one of {ESTIMATORS}")
    codes = _check_table(codes)
    entropies, cells = _entropies(codes)
    if estimator == "miller-madow":
        return _ratio(entropies + (cells - 1) / (2 * len(codes)))
    plain = np.maximum(_ratio(entropies), 0.0)  # rounding only: plug-in values are not negative
    if estimator == "plug-in":
        return plain
    chance = _divide(2 * _chance_information(codes), _margins(entropies))
    adjusted = _divide(plain - chance, 1 - chance)
    np.fill_diagonal(adjusted, np.diag(plain))
    return adjusted


def permuted_information(codes, permutations, rng):
    """Return plug-in normalised mutual information after permuting every column independently.

    Parameters
    ----------
    codes : array_like of int, shape (records, attributes)
        Level codes.
    permutations : int
        How often.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ndarray, shape (permutations, attributes, attributes)
        Draws from the distribution that each pair's value has when only the margins are kept.

    Raises
    ------
    InvalidGroup
        If there is no record or attribute, or no permutation is asked for.
    TypeError
        If ``rng`` is not a Generator.
    """
    codes = _check_table(codes)
    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng must be a numpy.random.Generator, got {type(rng).__name__}")
    if permutations < 1:
        raise InvalidGroup(f"permutations must be positive, got {permutations!r}")
    draws = (rng.permuted(codes, axis=0) for _ in range(permutations))
    return np.stack([np.maximum(_ratio(_entropies(draw)[0]), 0.0) for draw in draws])


def bin_edges(values, bins, rule="equal-frequency"):
    """Return edges that cut a numeric column into bins, closed on the left.

    Parameters
    ----------
    values : array_like of float, shape (records,)
        The column.
    bins : int
        How many bins, at most.
    rule : {"equal-frequency", "equal-width"}, optional
        "equal-frequency": a value goes where its mid-rank falls, so that equal values stay
        together and a frequent value fills a bin of its own; with many ties fewer bins are left.

    Returns
    -------
    ndarray, shape (at most bins + 1,)
        Increasing edges from the smallest to the largest value, as
        :meth:`dephdp.Attribute.numeric` takes them.

    Raises
    ------
    InvalidDomain
        If the column is empty, constant or not finite, or bins or rule are not what they must be.
    """
    values = np.asarray(values, dtype=float)
    if rule not in RULES:
        raise InvalidDomain(f"rule {rule!r} is not one of {RULES}")
    if bins < 1:
        raise InvalidDomain(f"the number of bins must be positive, got {bins!r}")
    if values.ndim != 1 or not values.size or not np.isfinite(values).all():
        raise InvalidDomain("bins need a nonempty column of finite numbers")
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) == 1:
        raise InvalidDomain(f"a column with the one value {distinct[0]} cannot be cut into bins")
    if rule == "equal-width":
        return np.linspace(distinct[0], distinct[-1], bins + 1)
    middle = np.cumsum(counts) - counts / 2
    bin_of = np.floor(bins * middle / len(values))
    starts = distinct[1:][np.diff(bin_of) > 0]
    last = starts[-1:] == distinct[-1:]  # the largest value alone: the bin needs a width
    ends = [np.nextafter(distinct[-1], np.inf)] if last.any() else distinct[-1:]
    return np.concatenate([distinct[:1], starts, ends])


def discretize(values, bins, rule="equal-frequency"):
    """Return the bin of each value of a numeric column.

    Parameters
    ----------
    values : array_like of float, shape (records,)
        The column.
    bins : int
        How many bins, at most.
    rule : {"equal-frequency", "equal-width"}, optional
        As in :func:`bin_edges`.

    Returns
    -------
    ndarray of int, shape (records,)
        All 0 for a constant column.

    Raises
    ------
    InvalidDomain
        As :func:`bin_edges`.
    """
    values = np.asarray(values, dtype=float)
    if values.size and (values == values.flat[0]).all():
        return np.zeros(values.shape, dtype=np.int64)
    edges = bin_edges(values, bins, rule)
    return np.minimum(np.searchsorted(edges, values, side="right") - 1, len(edges) - 2)


def connected_groups(dependence, tau=0.1):
    """Return the connected components of the graph whose edges have dependence above tau.

    Parameters
    ----------
    dependence : array_like, shape (attributes, attributes)
        Symmetric.
    tau : float, optional
        Threshold; an edge needs more.

    Returns
    -------
    list of tuple of int
        The positions of each group's attributes, increasing; groups in the order of their smallest.

    Raises
    ------
    InvalidGroup
        If the matrix is not square, symmetric and finite, or tau is NaN.
    """
    dependence = _check_dependence(dependence)
    if np.isnan(tau):
        raise InvalidGroup("tau is NaN")
    _, label = connected_components(dependence > tau, directed=False)
    groups = [tuple(np.flatnonzero(label == k).tolist()) for k in range(label.max() + 1)]
    return sorted(groups)


def split_group(dependence, group, fits):
    """Cut a group at its weakest links until every part fits.

    Parameters
    ----------
    dependence : array_like, shape (attributes, attributes)
        Symmetric.
    group : sequence of int
        Positions of the group's attributes.
    fits : callable
        Whether a tuple of positions is small enough.

    Returns
    -------
    list of tuple of int
        The parts, in the order of their smallest positions.

    Raises
    ------
    InvalidGroup
        If a single attribute does not fit.

    Notes
    -----
    A group that does not fit is replaced by its components at the smallest threshold at which it
    falls apart, the weakest link of its maximum spanning tree; each part that does not fit is cut
    again. So the parts are components of the same graph at a higher threshold (single linkage),
    and no group that fits is touched.
    """
    group = tuple(group)
    if fits(group):
        return [group]
    if len(group) == 1:
        raise InvalidGroup(
            f"attribute {group[0]} alone exceeds the limit on states: use coarser levels"
        )
    inside = _check_dependence(dependence)[np.ix_(group, group)]
    # Costs must be positive to count as links; the lightest tree of costs is the strongest.
    tree = minimum_spanning_tree(1 + inside.max() - inside).tocoo()
    parts = connected_groups(inside, inside[tree.row, tree.col].min())
    found = [split_group(dependence, [group[i] for i in part], fits) for part in parts]
    return sorted(part for parts in found for part in parts)


@dataclass(frozen=True, eq=False)
class Grouping:
    """The outcome of Stage 1.

    Attributes
    ----------
    names : tuple of str
        The attributes.
    dependence : ndarray, shape (attributes, attributes)
        Normalised mutual information.
    tau : float
        The threshold above which two attributes are linked.
    groups : tuple of tuple of str
        The partition into groups, ordered by their first attributes.
    """

    names: tuple[str, ...]
    dependence: np.ndarray
    tau: float
    groups: tuple[tuple[str, ...], ...]

    def draw(self, ax=None):
        """Draw the dependence graph: attributes on a circle, group by group.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib.axes.Axes

        Notes
        -----
        A line is as thick as the dependence is strong. Links above tau are solid; the strongest
        ones below, from tau / 2 on, are dotted. Groups of several attributes have a colour each;
        single attributes are grey.
        """
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(5.2, 5.2))[1] if ax is None else ax
        order = [name for group in self.groups for name in group]
        angle = np.pi / 2 - 2 * np.pi * np.arange(len(order)) / len(order)
        place = dict(zip(order, np.stack([np.cos(angle), np.sin(angle)], axis=1), strict=True))
        for i, j in np.argwhere(np.triu(self.dependence > self.tau / 2, 1)):
            ends = np.array([place[self.names[i]], place[self.names[j]]])
            strength = self.dependence[i, j]
            strong = {"color": "0.35", "linewidth": 1 + 6 * strength, "linestyle": "-"}
            weak = {"color": "0.6", "linewidth": 0.9, "linestyle": ":"}
            ax.plot(*ends.T, zorder=1, **(strong if strength > self.tau else weak))
        joint = [group for group in self.groups if len(group) > 1]
        for group in self.groups:
            points = np.array([place[name] for name in group])
            colour = f"C{joint.index(group)}" if group in joint else "0.75"
            ax.scatter(*points.T, s=90, zorder=2, color=colour, edgecolor="white")
        for name, (x, y) in place.items():
            side = "center" if abs(x) < 0.1 else "left" if x > 0 else "right"
            height = "center" if abs(y) < 0.9 else "bottom" if y > 0 else "top"
            text = name.replace("_", " ")
            ax.text(1.1 * x, 1.1 * y, text, horizontalalignment=side, verticalalignment=height)
        ax.set(xlim=(-1.75, 1.75), ylim=(-1.25, 1.25), aspect="equal")
        ax.axis("off")
        return ax


def group_attributes(
    domain,
    records,
    tau=0.1,
    *,
    estimator="permutation",
    bins=10,
    rule="equal-frequency",
    limit=None,
    observed=False,
    oversized="split",
):
    """Group the attributes of a domain by dependence: Stage 1 of DepHDP in one call.

    Parameters
    ----------
    domain : Domain
        The attributes.
    records : array_like of int, shape (records, attributes)
        Level codes of reference records, as ``domain.encode`` returns them.
    tau : float, optional
        Two attributes are linked if their normalised mutual information exceeds it.
    estimator : {"permutation", "miller-madow", "plug-in"}, optional
        See :func:`normalized_mutual_information`; the paper's is "plug-in".
    bins : int, optional
        Numeric attributes with more levels are cut into so many bins to estimate dependence.
    rule : {"equal-frequency", "equal-width"}, optional
        How; see :func:`bin_edges`.
    limit : int, optional
        The largest number of states that a group may have; unlimited by default.
    observed : bool, optional
        Whether the limit counts the combinations observed in the records, instead of all
        combinations of declared levels.
    oversized : {"split", "refuse"}, optional
        What happens to a group beyond the limit: it is cut at its weakest links, see
        :func:`split_group`, or an error is raised.

    Returns
    -------
    Grouping

    Raises
    ------
    InvalidDomain
        If the records do not fit the domain.
    InvalidGroup
        If a group exceeds the limit and is to be refused, or a single attribute does, or an option
        is unknown.
    """
    if oversized not in ("split", "refuse"):
        raise InvalidGroup(f"oversized is 'split' or 'refuse', got {oversized!r}")
    records = _check_table(domain.check_codes(records))
    dependence = normalized_mutual_information(_coarsened(domain, records, bins, rule), estimator)

    def states(group):
        if observed:
            return len(RowIndex(records[:, group]).rows)
        return domain.size([domain.names[i] for i in group])

    def fits(group):
        return limit is None or states(group) <= limit

    def refuse(group):
        raise InvalidGroup(
            f"group {tuple(domain.names[i] for i in group)} has {states(group)} states, more than "
            f"the limit of {limit}: raise tau or the limit, or use coarser levels"
        )

    for position in range(len(domain)):
        if not fits((position,)):
            refuse((position,))
    parts = []
    for group in connected_groups(dependence, tau):
        if oversized == "refuse" and not fits(group):
            refuse(group)
        parts += split_group(dependence, group, fits)
    groups = tuple(tuple(domain.names[i] for i in part) for part in sorted(parts))
    return Grouping(domain.names, dependence, float(tau), groups)


def _coarsened(domain, records, bins, rule):
    """Codes in which every numeric attribute has at most so many levels."""
    columns = []
    for attribute, column in zip(domain.attributes, records.T, strict=True):
        if attribute.kind == "numeric" and attribute.size > bins:
            column = discretize(np.asarray(attribute.levels)[column], bins, rule)
        columns.append(column)
    return np.stack(columns, axis=1)


def _entropies(codes):
    """Joint entropies H(X_i, X_j) in nats, and the number of cells that are occupied.

    The diagonal holds the marginal entropies. All contingency tables are blocks of one sparse
    matrix, the Gram matrix of the indicator columns of the levels.
    """
    count, attributes = codes.shape
    levels = [np.unique(column, return_inverse=True) for column in codes.T]
    starts = np.cumsum([0, *(len(found) for found, _ in levels)])
    indicator = np.stack([start + code for start, (_, code) in zip(starts, levels, strict=False)])
    ones = np.ones(indicator.size)
    pointers = np.arange(0, indicator.size + 1, attributes)
    table = csr_array((ones, indicator.T.ravel(), pointers), shape=(count, starts[-1]))
    cells = (table.T @ table).tocoo()
    owner = np.repeat(np.arange(attributes), np.diff(starts))
    block = owner[cells.row] * attributes + owner[cells.col]
    blocks = attributes**2
    weighted = np.bincount(block, cells.data * np.log(cells.data), blocks)
    entropies = (np.log(count) - weighted / count).reshape(attributes, attributes)
    occupied = np.bincount(block, minlength=blocks).reshape(attributes, attributes)
    entropies[occupied == 1] = 0.0
    return entropies, occupied


def _margins(joint):
    """H_i + H_j from joint entropies, with the marginal ones on their diagonal."""
    return np.diag(joint)[:, None] + np.diag(joint)


def _ratio(joint):
    total = _margins(joint)
    return _divide(2 * (total - joint), total)


def _divide(part, whole):
    """Divide, with 0 / 0 = 0: nothing can depend on what does not vary."""
    return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)


def _chance_information(codes):
    """Mean plug-in mutual information over all permutations of a column, for every pair."""
    margins = [np.unique(column, return_counts=True)[1] for column in codes.T]
    margins = [np.unique(counts, return_counts=True) for counts in margins]
    chance = np.zeros((len(margins), len(margins)))
    for i, j in combinations(range(len(margins)), 2):
        chance[i, j] = chance[j, i] = _mean_information(*margins[i], *margins[j], len(codes))
    return chance


@numba.njit(cache=True)
def _mean_information(rows, row_copies, columns, column_copies, n):
    """Mean of Σ (k / n) ln(n k / (a b)) over cells of margins a, b with hypergeometric counts k.

    Each distribution is summed from its mode outwards, relative to the mode, until its terms
    vanish, and divided by its own sum: no factorial is needed, and nothing under- or overflows.
    """
    total = 0.0
    for i in range(len(rows)):
        a = rows[i]
        for j in range(len(columns)):
            b = columns[j]
            mode = max((a + 1) * (b + 1) // (n + 2), a + b - n)
            mass, mean = 0.0, 0.0
            for step in (1, -1):
                k, p = mode, 1.0
                while p > 1e-18:
                    if step == 1 or k != mode:
                        mass += p
                        if k > 0:
                            mean += p * k * math.log(n * k / (a * b))
                    if step == 1:
                        p *= (a - k) * (b - k) / ((k + 1.0) * (n - a - b + k + 1.0))
                    else:
                        p *= k * (n - a - b + k) / ((a - k + 1.0) * (b - k + 1.0))
                    k += step
            total += row_copies[i] * column_copies[j] * mean / mass
    return total / n


def _check_table(codes):
    codes = np.asarray(codes)
    if codes.ndim != 2 or 0 in codes.shape:
        raise InvalidGroup(f"dependence needs a (records, attributes) table, got {codes.shape}")
    if not np.issubdtype(codes.dtype, np.integer):
        raise InvalidGroup(f"dependence is of level codes, integers, not {codes.dtype}")
    return codes


def _check_dependence(dependence):
    dependence = np.asarray(dependence, dtype=float)
    if dependence.ndim != 2 or dependence.shape[0] != dependence.shape[1] or not dependence.size:
        raise InvalidGroup(f"dependence must be a square matrix, got shape {dependence.shape}")
    if not np.isfinite(dependence).all():
        raise InvalidGroup("dependence must be finite")
    if not np.allclose(dependence, dependence.T, rtol=0, atol=1e-12):
        raise InvalidGroup("dependence must be symmetric")
    return dependence
