"""Stage 4, lower level: what each group loses at each budget, and the mechanisms behind it."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from tqdm import tqdm

from dephdp.channel import Channel
from dephdp.errors import DephdpError, InfeasibleMechanism, InvalidBudget
from dephdp.exponents import settle
from dephdp.mechanisms.exponential import exponential_mechanism
from dephdp.mechanisms.remap import bayes_remap
from dephdp.mechanisms.tight import tight_constraints_mechanism
from dephdp.metric import check_distances
from dephdp.optimal.benders import halves
from dephdp.optimal.solve import optimal_curve, optimal_mechanism
from dephdp.validation import check_grid, check_loss, check_prior

_REMAP = "+remap"
_PART = 60  # states in a part whose optimal mechanism takes a fraction of a second
_SAME = 1e-9  # a budget this little short of a sample, relatively, is that sample's up to rounding


def _exponential(distances, epsilon):
    return exponential_mechanism(distances, epsilon)


def _calibrated(distances, epsilon):
    return exponential_mechanism(distances, epsilon, calibrated=True)


def _tight(distances, epsilon):
    try:
        return tight_constraints_mechanism(distances, epsilon)
    except InfeasibleMechanism:
        return _calibrated(distances, epsilon)


_NOISE = {"exponential": _exponential, "calibrated": _calibrated, "tight": _tight}

FAMILIES = (*_NOISE, *(name + _REMAP for name in _NOISE), "optimal")
"""Families of mechanisms, one for each budget.

``exponential`` has the exponent ε/2, ``calibrated`` the one of exact level ε, ``tight`` is the
tight-constraints mechanism where it exists and ``calibrated`` elsewhere; ``+remap`` adds the
Bayesian remap; ``optimal`` is the certified optimal mechanism.
"""


@dataclass(frozen=True, eq=False)
class LossCurve:
    """The loss-budget curve of one group and one family, and its mechanisms.

    Between its samples the curve is a step function: a budget is worth the best sample that it
    can pay for. Build one with :func:`loss_curve`.

    Attributes
    ----------
    family : str
        One of `FAMILIES`.
    prior : ndarray, shape (n,)
        Distribution of the state.
    loss : ndarray, shape (n, m)
        Loss of reporting y in state x.
    distances : ndarray, shape (n, n)
        Distances between the states.
    budgets : ndarray, shape (points,)
        The samples, increasing.
    measured : ndarray, shape (points,)
        Expected loss of the family's mechanism at each budget; it may rise.
    lower_bounds : ndarray, shape (points,)
        Non-increasing. For ``optimal``, no mechanism private at the budget has a smaller loss, of
        whatever family. For the others, the losses themselves: no member at a sampled budget up to
        this one has a smaller loss.
    matrices : tuple of ndarray or None
        The channels of ``optimal``; the others are built when asked for.
    """

    family: str
    prior: np.ndarray
    loss: np.ndarray
    distances: np.ndarray
    budgets: np.ndarray
    measured: np.ndarray
    lower_bounds: np.ndarray
    matrices: tuple | None = None

    @cached_property
    def losses(self):
        """The least loss at each budget or below it, shape (points,): never increasing."""
        return np.minimum.accumulate(self.measured)

    @cached_property
    def sources(self):
        """Index of the sample whose mechanism attains each of the losses, shape (points,)."""
        new = np.append(True, self.losses[1:] < self.losses[:-1])
        return np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))

    @property
    def gaps(self):
        """Losses minus lower bounds, relative to the losses, shape (points,)."""
        excess = self.losses - self.lower_bounds
        return np.divide(excess, np.abs(self.losses), out=np.zeros(excess.shape), where=excess > 0)

    def losses_at(self, budgets):
        """Return the loss at any budgets: that of the best sample up to each.

        Parameters
        ----------
        budgets : array_like
            At or above the first sample.

        Returns
        -------
        ndarray, in the shape of ``budgets``

        Raises
        ------
        InvalidBudget
            If a budget lies below the first sample.
        """
        return self.losses[self._index(budgets)]

    def lower_bounds_at(self, budgets):
        """Return the lower bound at any budgets: that of the next sample at or above each.

        Parameters
        ----------
        budgets : array_like
            Up to the last sample.

        Returns
        -------
        ndarray, in the shape of ``budgets``

        Raises
        ------
        InvalidBudget
            If a budget lies above the last sample.
        """
        budgets = np.asarray(budgets, dtype=float)
        index = np.searchsorted(self.budgets, budgets * (1 - _SAME))
        if (index == len(self.budgets)).any():
            raise InvalidBudget(
                f"the curve is sampled up to {self.budgets[-1]:g}, not to {budgets.max():g}"
            )
        return self.lower_bounds[index]

    def mechanism(self, epsilon):
        """Return the mechanism behind the loss at a budget.

        Parameters
        ----------
        epsilon : float
            Budget, at or above the first sample.

        Returns
        -------
        Channel
            Its level is at most ``epsilon``. Where ``epsilon`` falls short of a sample by a
            relative billionth or less, a trace of the channel's average row pays for that.

        Raises
        ------
        InvalidBudget
            If the budget lies below the first sample.
        """
        channel = self._channel(int(self.sources[self._index(epsilon)]))
        if channel.privacy_level() <= epsilon:
            return channel
        average = channel.matrix.mean(axis=0)

        def mix(weight):
            return weight * channel.matrix + (1 - weight) * average

        return Channel(settle(mix, 1.0, epsilon, self.distances), self.distances)

    def _index(self, budgets):
        budgets = np.asarray(budgets, dtype=float)
        if not (budgets >= self.budgets[0] * (1 - _SAME)).all():
            raise InvalidBudget(
                f"the curve is sampled from {self.budgets[0]:g} on, not at {budgets.min():g}"
            )
        return np.searchsorted(self.budgets, budgets * (1 + _SAME), side="right") - 1

    def _channel(self, sample):
        if self.matrices is not None:
            return Channel(self.matrices[sample], self.distances)
        return _noise(self.family, self.prior, self.loss, self.distances, self.budgets[sample])


def loss_curve(
    prior, loss, distances, budgets, family, *, tol=1e-2, time_limit=None, progress=False
):
    """Return the loss-budget curve of one group for a family of mechanisms.

    Parameters
    ----------
    prior : array_like, shape (n,)
        Distribution of the state.
    loss : array_like, shape (n, m)
        Loss of reporting y in state x; noise without remap needs m = n, outputs being states.
    distances : array_like, shape (n, n)
        A metric between the states.
    budgets : array_like, shape (points,)
        Increasing. Zero stands for a report that does not depend on the state: uniform for noise,
        the best constant for ``optimal`` and after a remap.
    family : str
        One of `FAMILIES`.
    tol : float, optional
        Relative gap at which each optimal mechanism may stop.
    time_limit : float, optional
        Seconds for each optimal mechanism.
    progress : bool, optional
        Show a progress bar over the optimal mechanisms.

    Returns
    -------
    LossCurve

    Raises
    ------
    InvalidDistribution, InvalidLoss, InvalidMetric, InvalidBudget
        If an argument is not what it must be.
    DephdpError
        If there is no such family.

    See Also
    --------
    loss_curves : many at once, in parallel.

    Notes
    -----
    Where an optimal mechanism does not reach ``tol``, the remapped tight-constraints mechanism
    takes its place if that loses less, and the bound is raised to `partition_bound` if that is
    higher: a time limit loses time, not the certificate.

    Examples
    --------
    >>> import numpy as np
    >>> coin = 1 - np.eye(2)
    >>> curve = loss_curve([0.9, 0.1], coin, coin, [0, 1, 3], "optimal", tol=1e-9)
    >>> curve.losses.round(4)
    array([0.1   , 0.1   , 0.0474])
    """
    if family not in FAMILIES:
        raise DephdpError(f"there is no family {family!r}: choose one of {', '.join(FAMILIES)}")
    budgets, distances = check_grid(budgets), check_distances(distances)
    prior = check_prior(prior, len(distances))
    outputs = np.shape(loss)[1] if np.ndim(loss) == 2 else len(distances)
    loss = check_loss(loss, (len(distances), outputs))
    if family == "optimal":
        options = {"tol": tol, "time_limit": time_limit, "progress": progress}
        return _optimal_curve(prior, loss, distances, budgets, options)
    channels = (_noise(family, prior, loss, distances, epsilon) for epsilon in budgets)
    measured = np.array([channel.expected_loss(prior, loss) for channel in channels])
    losses = np.minimum.accumulate(measured)
    return LossCurve(family, prior, loss, distances, budgets, measured, losses)


def loss_curves(profiles, families, budgets, *, tol=1e-2, time_limit=None, jobs=1, progress=False):
    """Return the loss-budget curves of many groups, evaluated in parallel.

    Parameters
    ----------
    profiles : sequence
        One a curve, with attributes ``prior``, ``loss`` and ``distances``.
    families : str or sequence of str
        One family for all, or one a profile.
    budgets : array_like, shape (points,)
        Common to all.
    tol, time_limit
        As in `loss_curve`.
    jobs : int, optional
        Processes; -1 for as many as there are cores.
    progress : bool, optional
        Show a progress bar over the curves.

    Returns
    -------
    list of LossCurve
        In the order of the profiles; the same whatever the number of jobs, unless a time limit
        stops an optimal mechanism.

    Raises
    ------
    DephdpError
        If the numbers of profiles and families differ, or as `loss_curve`.
    """
    from joblib import Parallel, delayed

    profiles = list(profiles)
    families = [families] * len(profiles) if isinstance(families, str) else list(families)
    if len(families) != len(profiles):
        raise DephdpError(f"there are {len(profiles)} profiles but {len(families)} families")
    tasks = (
        delayed(loss_curve)(
            profile.prior,
            profile.loss,
            profile.distances,
            budgets,
            family,
            tol=tol,
            time_limit=time_limit,
        )
        for profile, family in zip(profiles, families, strict=True)
    )
    curves = Parallel(n_jobs=jobs, return_as="generator")(tasks)
    return list(tqdm(curves, total=len(profiles), disable=not progress, desc="loss curves"))


def partition_bound(prior, loss, distances, epsilon, *, size=20, tol=1e-2):
    """Return a lower bound on the loss of every private mechanism, from parts of the states.

    Parameters
    ----------
    prior, loss, distances, epsilon
        As in :func:`dephdp.optimal_mechanism`.
    size : int, optional
        The largest number of states in a part: larger parts give better bounds and take longer.
    tol : float, optional
        Relative gap at which the mechanism of each part may stop.

    Returns
    -------
    float

    Raises
    ------
    InvalidDistribution, InvalidLoss, InvalidMetric, InvalidBudget
        If an argument is not what it must be.

    Notes
    -----
    A mechanism private on all states is private on each part, so its loss is at least the sum of
    the parts' optimal losses, weighted by their probabilities. Within a part, an output whose loss
    another one undercuts in every state can be replaced by that one, which leaves few outputs.
    Two partitions are tried. States are halved between two far apart, again and again, so that a
    part holds near states, whose constraints are the tight ones; and near states are dealt out to
    different parts, so that no one report suits a part. The higher bound is returned.
    """
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise DephdpError(f"the size of a part must be a positive integer, got {size!r}")
    distances = check_distances(distances)
    prior = check_prior(prior, len(distances))
    outputs = np.shape(loss)[1] if np.ndim(loss) == 2 else len(distances)
    loss = check_loss(loss, (len(distances), outputs))
    near = _parts(distances, size)
    order = np.concatenate(near)
    dealt = [np.sort(order[k :: len(near)]) for k in range(len(near))]
    partitions = (near, dealt) if len(near) > 1 else (near,)
    return max(_sum_of_parts(prior, loss, distances, epsilon, parts, tol) for parts in partitions)


def _sum_of_parts(prior, loss, distances, epsilon, parts, tol):
    """Sum the lower bounds of the parts, weighted by their probabilities."""
    total = []
    for part in parts:
        weight = prior[part].sum()
        if weight == 0:
            continue
        share = prior[part] / weight
        columns = _undominated(loss[part][share > 0])
        square = distances[np.ix_(part, part)]
        best = optimal_mechanism(
            share / share.sum(), loss[np.ix_(part, columns)], square, epsilon, tol=tol
        )
        total.append(weight * best.lower_bound)
    return math.fsum(total)


def _noise(family, prior, loss, distances, epsilon):
    base = family.removesuffix(_REMAP)
    n = len(distances)
    if epsilon == 0:
        channel = Channel(np.full((n, n), 1 / n), distances)
    else:
        channel = _NOISE[base](distances, epsilon)
    return bayes_remap(channel, prior, loss) if family.endswith(_REMAP) else channel


def _optimal_curve(prior, loss, distances, budgets, options):
    positive = budgets[budgets > 0]
    mechanisms = optimal_curve(prior, loss, distances, positive, **options)
    measured, bounds, matrices = [], [], []
    for epsilon, mechanism in zip(positive, mechanisms, strict=True):
        best, bound = mechanism.channel, mechanism.lower_bound
        if mechanism.gap > options["tol"]:  # stopped by the time limit or by rounding
            closed_form = _noise("tight+remap", prior, loss, distances, epsilon)
            best = min((best, closed_form), key=lambda c: c.expected_loss(prior, loss))
            parts = partition_bound(prior, loss, distances, epsilon, size=_PART)
            bound = max(bound, min(parts, best.expected_loss(prior, loss)))
        measured.append(best.expected_loss(prior, loss))
        bounds.append(min(bound, measured[-1]))
        matrices.append(best.matrix)
    if len(positive) < len(budgets):
        constants = prior @ loss
        report = int(constants.argmin())
        measured.insert(0, constants[report])
        bounds.insert(0, constants[report])
        constant = np.zeros(loss.shape)
        constant[:, report] = 1
        matrices.insert(0, constant)
    # What no mechanism beats at a budget, none beats at a smaller one.
    bounds = np.maximum.accumulate(bounds[::-1])[::-1]
    measured = np.array(measured)
    return LossCurve("optimal", prior, loss, distances, budgets, measured, bounds, tuple(matrices))


def _parts(distances, size):
    """Halve the states until no part is larger than the size."""
    pending, parts = [np.arange(len(distances))], []
    while pending:
        part = pending.pop()
        if len(part) <= size:
            parts.append(part)
            continue
        labels = halves(distances[np.ix_(part, part)])
        pending += [part[labels == 0], part[labels == 1]]
    return parts


def _undominated(loss):
    """Return the columns that no other column undercuts in every row; of equal ones the first."""
    _, columns = np.unique(loss, axis=1, return_index=True)
    columns = np.sort(columns)
    distinct = loss[:, columns]
    below = (distinct[:, :, None] <= distinct[:, None, :]).all(axis=0)
    np.fill_diagonal(below, False)
    return columns[~below.any(axis=0)]
