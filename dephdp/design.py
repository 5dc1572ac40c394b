"""DepHDP end to end: from a reference table to a certified design, and from records to reports.

The four stages, in order: group the attributes that depend on each other; measure what perturbing
each group costs the task; choose for each group whether noise is adequate or an optimised mechanism
pays; divide the record's budget among the groups (Liu, Oluwole and Qiu, 2026).
"""

from dataclasses import dataclass

import numpy as np

from dephdp.adequacy import mse_likeness, prefer_optimal, radial_fit, relative_gain
from dephdp.allocation import allocate_budget, envelope_allocation, even_allocation
from dephdp.composition import compose_budget, product_privacy_level, split_budget
from dephdp.curves import FAMILIES, loss_curve, loss_curves
from dephdp.domain import Domain
from dephdp.errors import (
    CertificationError,
    DephdpError,
    InvalidBudget,
    InvalidDomain,
    InvalidTask,
)
from dephdp.group import Group, check_partition
from dephdp.grouping import group_attributes
from dephdp.losses import estimated_loss, profile_group
from dephdp.product_rule import allocate_by_product_rule
from dephdp.surrogate import Surrogate, calibration_pairs, fit_surrogate, pilot_channels
from dephdp.tasks import FrequencyEstimation, Task
from dephdp.validation import check_epsilon, check_exponent

_SCORES = {"mse": mse_likeness, "radial": radial_fit}
_THRESHOLDS = {"gain": 0.02, "mse": 0.3, "radial": 0.3}
_ALLOCATIONS = ("exact", "envelope", "even")
_FIRST = 1e-3  # the smallest positive budget of a curve, as a share of epsilon, at the least


@dataclass(frozen=True)
class RecordCertificate:
    """What was verified about the mechanism of a whole record.

    Attributes
    ----------
    level : float
        Exact privacy level of the product of the groups' channels, over all pairs of records.
    composed : float
        ‖ε‖_q of the groups' exact levels: what Theorem 1 promises of them.
    epsilon : float
        The budget.
    p : float
        Exponent of the record metric.
    group_levels : tuple of float
        Exact privacy level of each group's channel.
    """

    level: float
    composed: float
    epsilon: float
    p: float
    group_levels: tuple[float, ...]

    @classmethod
    def compute(cls, channels, epsilon, p):
        """Compute the certificate of independent channels, whether or not they meet the budget.

        Parameters
        ----------
        channels : sequence of Channel
            One a group.
        epsilon : float
            Budget of the record.
        p : float
            Exponent of the record metric.

        Returns
        -------
        RecordCertificate
        """
        levels = tuple(channel.privacy_level() for channel in channels)
        level = product_privacy_level(channels, p)
        return cls(level, compose_budget(levels, p), epsilon, p, levels)

    @property
    def holds(self):
        """Whether the exact level is at most epsilon."""
        return self.level <= self.epsilon

    def __str__(self):
        verdict = "holds" if self.holds else "FAILS"
        return (
            f"record-level privacy {self.level:.10g} against epsilon {self.epsilon:.10g} "
            f"(p = {self.p:g}): {verdict}; the groups' levels compose to {self.composed:.10g}"
        )


class DepHDP:
    """Heterogeneous mechanism design for multi-attribute metric differential privacy.

    Parameters
    ----------
    epsilon : float
        Budget of a whole record, per unit of distance d_p.
    p : float, optional
        Exponent of the record metric, in [1, ∞].
    domain : Domain, optional
        The attributes and their levels. By default read off the reference table, see
        `Domain.infer`.
    task : callable, optional
        Makes the task from the domain and the reference codes, ``task(domain, codes) -> Task``;
        `FrequencyEstimation` by default.
    weights : mapping of str to float, optional
        Positive weight of each attribute in the record metric; one by default.
    groups : sequence of sequence of str, optional
        A partition of the attributes, instead of Stage 1.
    fitting : float, optional
        Share of the reference, in (0, 1], from which the configuration is made: the groups, the
        surrogate and the choice of mechanisms. Below one, priors, losses and budgets are those of
        the other records, as in the paper's split variants.
    tau_group : float, optional
        Stage 1: attributes whose normalised mutual information exceeds it are linked.
    estimator : {"permutation", "miller-madow", "plug-in"}, optional
        Stage 1: see `normalized_mutual_information`.
    states : {"full", "observed"}, optional
        States of a group: all combinations of levels, or those in the reference table.
    prior : {"empirical", "uniform"}, optional
        Distribution of a group's states for which its mechanism is designed.
    pairs : int or None, optional
        Stage 2: candidate pairs for the surrogate; None takes the groups' losses as they are,
        with coefficients one.
    contexts : int or None, optional
        Stage 2: reference records drawn for each pair of a group's states to estimate its loss;
        None takes them all. Tasks with a closed form need neither.
    select : {"gain", "radial", "mse", "always", "never"}, optional
        Stage 3: which groups get the optimal mechanism. Those where its certified gain over the
        noise, at an even split of the budget, exceeds the threshold; or those whose score is at
        most the threshold (rule 24); or all; or none. Groups with more than ``tau_dim`` states
        get noise.
    threshold : float, optional
        τ_dpn, or the certified gain asked for: 0.3 for scores and 0.02 for gains by default.
    tau_dim : int, optional
        Largest number of states of an optimised group; also the largest that Stage 1 makes.
    noise : str, optional
        Family of the other groups' mechanisms: see `dephdp.curves.FAMILIES`.
    allocation : {"exact", "envelope", "even"}, optional
        Stage 4: the dynamic programme, the paper's envelopes, or an even split.
    composition : {"theorem", "exact"}, optional
        Stage 4: the budgets that Theorem 1 admits, or all that are safe for the distances that
        occur in the groups, see `allocate_by_product_rule`.
    points : int, optional
        Samples of each loss-budget curve, from 0 to ε.
    tol : float, optional
        Relative gap at which each optimal mechanism may stop.
    time_limit : float, optional
        Seconds for each optimal mechanism.
    jobs : int, optional
        Processes for the curves; -1 for as many as there are cores.
    progress : bool, optional
        Show progress bars.

    Attributes
    ----------
    domain_ : Domain
    grouping_ : Grouping or None
        Outcome of Stage 1; None if the groups were given.
    groups_ : tuple of Group
    profiles_ : tuple of GroupProfile
        Outcome of Stage 2, with ``surrogate_``.
    surrogate_ : Surrogate
    scores_ : ndarray, shape (groups,)
        What Stage 3 compares with the threshold; NaN where it compares nothing.
    families_ : tuple of str
        Outcome of Stage 3.
    curves_ : tuple of LossCurve
        Loss-budget curves of the groups.
    allocation_ : Allocation
        Outcome of Stage 4.
    channels_ : tuple of Channel
        The mechanism of each group.
    certificate_ : RecordCertificate
    loss_ : float
        β_0 + Σ_k β_k 𝓛_k: the surrogate of the expected loss of a report.
    loss_error_ : float
        Its standard error, given the surrogate, if ``contexts`` are drawn; otherwise 0.
    lower_bound_ : float
        No budgets and mechanisms of the groups' families have a smaller one: of the optimal
        family, no mechanisms whatever.

    Notes
    -----
    ``fit`` looks at the reference table only, and what is published of the design (domain, groups,
    channels) depends on it. Take a reference whose members agreed to that, not the records that
    are to be protected.

    With ``contexts`` the mechanisms are made for estimated losses, and so look better on them than
    they are. Therefore ``loss_`` is estimated anew, with contexts that the design has not seen:
    given the design it is unbiased. The bound is that of the estimated problem. The mean of a
    minimum is at most the minimum of the means, so its expectation is at most the least loss; it
    is not a bound for certain.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> people = pd.DataFrame({"sex": rng.choice(list("FM"), 500), "flag": rng.random(500) < 0.2})
    >>> design = DepHDP(epsilon=2.0).fit(people, rng=rng)
    >>> design.certificate_.holds, design.privatize(people[:3], rng=rng).shape
    (True, (3, 2))
    """

    def __init__(
        self,
        epsilon,
        p=2,
        *,
        domain=None,
        task=FrequencyEstimation,
        weights=None,
        groups=None,
        fitting=1.0,
        tau_group=0.1,
        estimator="permutation",
        states="full",
        prior="empirical",
        pairs=2000,
        contexts=None,
        select="gain",
        threshold=None,
        tau_dim=300,
        noise="tight+remap",
        allocation="exact",
        composition="theorem",
        points=51,
        tol=0.01,
        time_limit=None,
        jobs=1,
        progress=False,
    ):
        self.epsilon = check_epsilon(epsilon)
        self.p = check_exponent(p)
        self.domain, self.task, self.weights, self.groups = domain, task, weights, groups
        self.fitting = fitting
        if not 0 < fitting <= 1:
            raise DephdpError(f"fitting must lie in (0, 1], got {fitting!r}")
        self.tau_group, self.estimator = tau_group, estimator
        self.states = _one_of("states", states, ("full", "observed"))
        self.prior = _one_of("prior", prior, ("empirical", "uniform"))
        self.pairs, self.contexts = pairs, contexts
        self.select = _one_of("select", select, ("gain", *_SCORES, "always", "never"))
        self.threshold = _THRESHOLDS.get(select) if threshold is None else threshold
        self.tau_dim = tau_dim
        self.noise = _one_of("noise", noise, FAMILIES)
        self.allocation = _one_of("allocation", allocation, _ALLOCATIONS)
        self.composition = _one_of("composition", composition, ("theorem", "exact"))
        if composition == "exact" and allocation != "exact":
            raise DephdpError("composition='exact' needs allocation='exact'")
        self.points, self.tol, self.time_limit = points, tol, time_limit
        self.jobs, self.progress = jobs, progress

    def __repr__(self):
        return f"DepHDP(epsilon={self.epsilon:g}, p={self.p:g})"

    # -- fitting --------------------------------------------------------------------------------

    def fit(self, reference, rng=None):
        """Design the mechanism from a reference table: the four stages, in order.

        Parameters
        ----------
        reference : pandas.DataFrame
            Records like those to be protected.
        rng : numpy.random.Generator, optional
            Draws the surrogate's candidate pairs, the fitting part and the contexts; a fresh one
            by default.

        Returns
        -------
        DepHDP
            Itself.

        Raises
        ------
        InvalidFrame, InvalidDomain, InvalidGroup, InvalidTask, InvalidLoss, InvalidBudget
            If the table or an option is not what it must be.
        CertificationError
            If the composed mechanism exceeds the budget; nothing is kept then.
        """
        rng = _generator(rng)
        domain, codes = self._read(reference)
        first, rest = self._split(codes, rng)
        grouping, groups = self._group(domain, first)
        task = self._task(domain, first)
        profiles = self._profile(task, groups, rng)
        surrogate = self._fit_surrogate(task, groups, rng)
        scores, families = self._select(profiles)
        if rest is not first:
            groups = self._states(domain, [group.names for group in groups], rest)
            task = self._task(domain, rest)
            profiles = self._profile(task, groups, rng)
        grid = self._grid(len(groups))
        curves = self._curves(profiles, families, grid)
        allocation, channels = self._allocate(curves, surrogate.coefficients, grid)
        certificate = RecordCertificate.compute(channels, self.epsilon, self.p)
        if not certificate.holds:
            raise CertificationError(f"{certificate}: please report this design as a defect")
        loss, error = surrogate.intercept + allocation.loss, 0.0
        if self.contexts is not None:
            loss, error = self._fresh_loss(task, profiles, channels, surrogate, rng)

        self.domain_, self.grouping_, self.groups_ = domain, grouping, groups
        self.profiles_, self.surrogate_ = profiles, surrogate
        self.scores_, self.families_, self.curves_ = scores, families, curves
        self.allocation_, self.channels_ = allocation, channels
        self.certificate_ = certificate
        self.loss_, self.loss_error_ = loss, error
        self.lower_bound_ = surrogate.intercept + allocation.lower_bound
        return self

    def _read(self, reference):
        domain = Domain.infer(reference) if self.domain is None else self.domain
        unknown = sorted(set(self.weights or ()) - set(domain.names))
        if unknown:
            raise InvalidDomain(f"weights are given for {unknown}, not among {domain.names}")
        return domain, domain.encode(reference)

    def _split(self, codes, rng):
        """Return the part that is configured from, and the part that is designed for."""
        if self.fitting == 1:
            return codes, codes
        cut = round(self.fitting * len(codes))
        if not 0 < cut < len(codes):
            raise DephdpError(
                f"a share of {self.fitting:g} leaves no record on one side of {len(codes)}"
            )
        order = rng.permutation(len(codes))
        return codes[np.sort(order[:cut])], codes[np.sort(order[cut:])]

    def _group(self, domain, codes):
        """Stage 1."""
        if self.groups is None:
            observed = self.states == "observed"
            options = {"estimator": self.estimator, "limit": self.tau_dim, "observed": observed}
            grouping = group_attributes(domain, codes, self.tau_group, **options)
            parts = grouping.groups
        else:
            parts = [(part,) if isinstance(part, str) else tuple(part) for part in self.groups]
            check_partition(parts, domain)
            grouping = None
        return grouping, self._states(domain, parts, codes)

    def _states(self, domain, parts, codes):
        if self.states == "full":
            return tuple(Group.full(domain, part) for part in parts)
        return tuple(Group.observed(domain, part, codes) for part in parts)

    def _task(self, domain, codes) -> Task:
        task = self.task(domain, codes)
        if not isinstance(task, Task):
            raise InvalidTask(f"task(domain, codes) must return a Task, got {task!r}")
        return task

    def _profile(self, task, groups, rng):
        """Stage 2: prior, distances and losses within each group."""
        drawn = {"contexts": self.contexts, "rng": rng}
        return tuple(
            profile_group(task, group, self.p, self._weights(group), self.prior, **drawn)
            for group in groups
        )

    def _fresh_loss(self, task, profiles, channels, surrogate, rng):
        """Estimate the surrogate loss from contexts not seen before, with its standard error."""
        means, variances = [], []
        for profile, channel in zip(profiles, channels, strict=True):
            loss, error = estimated_loss(task, profile.group, self.contexts, rng)
            joint = profile.prior[:, None] * channel.matrix
            means.append((joint * loss).sum())
            variances.append(((joint * error) ** 2).sum())
        error = np.sqrt(surrogate.coefficients**2 @ variances)
        return float(surrogate.predict(means)), float(error)

    def _weights(self, named):
        """Return the weights of a group's or a domain's attributes, None if all are one."""
        return self.weights and {name: self.weights.get(name, 1.0) for name in named.names}

    def _fit_surrogate(self, task, groups, rng):
        """Stage 2: how the groups' losses add up."""
        if self.pairs is None:
            return Surrogate(0.0, np.ones(len(groups)), np.nan, np.nan)
        channels = pilot_channels(groups, self.epsilon, self.p, self._weights(task.domain))
        drawn = calibration_pairs(task, groups, channels, self.pairs, rng)
        return fit_surrogate(drawn.record_losses, drawn.group_losses, rng)

    def _select(self, profiles):
        """Stage 3: noise or an optimised mechanism, group by group."""
        sizes = np.array([profile.group.size for profile in profiles])
        scores = np.full(len(profiles), np.nan)
        if self.select in _SCORES:
            score = _SCORES[self.select]
            scores = np.array([score(profile.loss, profile.distances) for profile in profiles])
            chosen = prefer_optimal(sizes, scores, largest=self.tau_dim, threshold=self.threshold)
        elif self.select == "gain":
            small = np.flatnonzero((sizes <= self.tau_dim) & (sizes > 1))
            scores[small] = [self._gain(profiles[k], len(profiles)) for k in small]
            chosen = scores > self.threshold
        else:
            chosen = np.full(len(profiles), self.select == "always") & (sizes <= self.tau_dim)
        return scores, tuple("optimal" if use else self.noise for use in chosen)

    def _gain(self, profile, groups):
        """Return the certified gain of the optimal mechanism at an even share of the budget."""
        share = split_budget(self.epsilon, groups, self.p)[:1]
        arguments = profile.prior, profile.loss, profile.distances, share
        noise = loss_curve(*arguments, self.noise)
        best = loss_curve(*arguments, "optimal", tol=self.tol, time_limit=self.time_limit)
        return float(relative_gain(noise.losses, best.losses)[0])

    def _grid(self, groups):
        """Sample budgets evenly from 0 to ε; the even share too, unless envelopes forbid it."""
        if self.points < 2:
            raise InvalidBudget(f"a curve needs at least two samples, got points={self.points!r}")
        grid = np.linspace(0, self.epsilon, self.points)
        if self.allocation == "envelope":
            return grid
        share = split_budget(self.epsilon, groups, self.p)[0]
        return np.union1d(grid[np.abs(grid - share) > _FIRST * self.epsilon], share)

    def _curves(self, profiles, families, grid):
        """Stage 4, lower level."""
        options = {"tol": self.tol, "time_limit": self.time_limit}
        curves = loss_curves(
            profiles, families, grid, **options, jobs=self.jobs, progress=self.progress
        )
        return tuple(curves)

    def _allocate(self, curves, coefficients, grid):
        """Stage 4, upper level."""
        scaled = list(zip(coefficients, curves, strict=True))
        losses = np.array([b * curve.losses for b, curve in scaled])
        bounds = np.array([b * curve.lower_bounds for b, curve in scaled])
        arguments = grid, losses, self.epsilon
        if self.composition == "exact":
            distances = [curve.distances for curve in curves]
            allocation = allocate_by_product_rule(
                *arguments, distances, self.p, lower_bounds=bounds
            )
        elif self.allocation == "exact":
            allocation = allocate_budget(*arguments, self.p, lower_bounds=bounds)
        elif self.allocation == "envelope":
            allocation = envelope_allocation(*arguments, self.p)
        else:
            allocation = even_allocation(*arguments, self.p)
        return allocation, tuple(
            curve.mechanism(budget)
            for curve, budget in zip(curves, allocation.budgets, strict=True)
        )

    # -- using ----------------------------------------------------------------------------------

    def privatize(self, frame, rng=None):
        """Return one private report for each record.

        Parameters
        ----------
        frame : pandas.DataFrame
            Records to protect; columns that the domain does not declare are left out.
        rng : numpy.random.Generator, optional
            By default seeded by the operating system, as real people need it.

        Returns
        -------
        pandas.DataFrame
            The same index; columns in the order of the domain.

        Raises
        ------
        InvalidFrame, InvalidDomain, InvalidGroup
            If a record is incomplete, or outside the declared domain or states.
        """
        self._check_fitted()
        codes = self.domain_.encode(frame)
        reports = self.domain_.decode(self.privatize_codes(codes, rng))
        return reports.set_axis(frame.index)

    def privatize_codes(self, codes, rng=None):
        """Return private reports as level codes: `privatize` without the table.

        Parameters
        ----------
        codes : array_like of int, shape (rows, attributes)
            Level codes, as ``domain_.encode`` returns them.
        rng : numpy.random.Generator, optional
            By default seeded by the operating system.

        Returns
        -------
        ndarray of int64, shape (rows, attributes)
        """
        self._check_fitted()
        codes = np.asarray(codes)
        reports = np.empty(codes.shape, dtype=np.int64)
        streams = _generator(rng).spawn(len(self.groups_))  # independent randomness for each group
        for group, channel, stream in zip(self.groups_, self.channels_, streams, strict=True):
            drawn = channel.sample(group.states(codes), stream)
            reports[:, group.columns] = group.codes[drawn]
        return reports

    def evaluate(self, frame, rng=None):
        """Return the surrogate loss of the design, mechanisms and all, on another table.

        Parameters
        ----------
        frame : pandas.DataFrame
            Records of the same domain, such as the part of a split that was not used to fit.
        rng : numpy.random.Generator, optional
            Draws contexts, if the design has that option.

        Returns
        -------
        float
            β_0 + Σ_k β_k 𝓛_k with the priors and losses of this table.

        Raises
        ------
        InvalidFrame, InvalidDomain, InvalidGroup
            If a record is outside the domain or the states.
        """
        self._check_fitted()
        task = self._task(self.domain_, self.domain_.encode(frame))
        profiles = self._profile(task, self.groups_, _generator(rng))
        losses = [
            channel.expected_loss(profile.prior, profile.loss)
            for channel, profile in zip(self.channels_, profiles, strict=True)
        ]
        return float(self.surrogate_.predict(losses))

    def report(self):
        """Return a summary of the design, with a table and pictures.

        Returns
        -------
        DesignReport
        """
        from dephdp.report import DesignReport

        self._check_fitted()
        return DesignReport(self)

    def save(self, path):
        """Write what a client needs to one file: domain, states, samplers and certificate.

        Parameters
        ----------
        path : str or os.PathLike
            An ``.npz`` file, which `dephdp.client` reads with numpy alone. No record of the
            reference table is in it.
        """
        from dephdp.archive import write

        self._check_fitted()
        write(self, path)

    @staticmethod
    def load(path):
        """Read a saved design.

        Parameters
        ----------
        path : str or os.PathLike
            File written by `save`.

        Returns
        -------
        SavedDesign
            With ``privatize``, ``domain_``, ``groups_``, ``channels_`` and ``certificate_``,
            recomputed from what the file holds.

        Raises
        ------
        CertificationError
            If the channels in the file do not meet the budget that it states.
        """
        from dephdp.archive import read

        return read(path)

    def _check_fitted(self):
        if not hasattr(self, "channels_"):
            raise DephdpError("the design is not fitted yet: call fit(reference) first")


def _one_of(name, value, known):
    if value not in known:
        raise DephdpError(f"{name} must be one of {', '.join(known)}; got {value!r}")
    return value


def _generator(rng):
    if rng is None:
        return np.random.default_rng()
    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng must be a numpy.random.Generator, got {type(rng).__name__}")
    return rng
