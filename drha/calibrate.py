"""Choosing epsilon: the privacy losses at which the disclosure risk stays below a target.

The risk of a table is a function of epsilon that need not be monotone: noise hides homogeneous
cells and turns heterogeneous ones into homogeneous ones. A target may be met at no, one or
several epsilons, so the question has an answer with several parts: all epsilons at which the risk
equals the target, the largest epsilon such that no smaller one exceeds it, and the range of risks
that can be reached at all.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from drha.conventions import Ceil, Clip, Floor, RoundAndClip, Threshold
from drha.errors import InvalidNoise, InvalidQuestion, NoSafeEpsilon
from drha.noise import CountNoise, DiscreteGaussian, discrete_gaussian, gaussian, geometric, laplace
from drha.risk import check_noise, local_risk
from drha.table import FrequencyTable

Mechanism = Callable[[float], CountNoise]
Measure = Callable[[CountNoise], float]

MECHANISMS: dict[str, Callable[..., CountNoise]] = {
    "laplace": lambda epsilon, delta, sensitivity: laplace(epsilon, sensitivity=sensitivity),
    "geometric": lambda epsilon, delta, sensitivity: geometric(epsilon, sensitivity=sensitivity),
    "gaussian": partial(gaussian, calibration="analytic"),
    "gaussian-classical": partial(gaussian, calibration="classical"),
    "gaussian-pdp": partial(gaussian, calibration="pdp"),
    "discrete-gaussian": discrete_gaussian,
}
"""Count mechanisms by name, as functions of epsilon, delta and sensitivity."""

PURE = ("laplace", "geometric")  # no delta

KINDS = ("exact", "refined", "paper_bound")
AVERAGES = ("cells", "people", "worst")

POINTS_A_DECADE = 40
STEPS = 5_000  # of the proof that an interval is safe
FINEST_STEP = 1e-10  # relative: nearer to a root the interval bound cannot tell
TOLERANCE = 1e-13  # of roots, relative
VANISHING, ENDLESS = 1e-300, 1e100  # epsilons that stand for 0 and infinity


@dataclass(frozen=True, repr=False)
class EpsilonChoice:
    """Where the disclosure risk of a table meets a target; made by :func:`choose_epsilon`.

    Attributes
    ----------
    target : float
        The risk that must not be exceeded.
    roots : tuple of float
        Every epsilon found at which the risk equals the target, increasing; or jumps past it,
        where a calibration does (discrete Gaussian noise at large epsilon).
    safe : float
        The largest epsilon with risk at most the target on all of (0, epsilon]: 0 if there is
        none, infinity if the target is never exceeded.
    proven : float or None
        How far the safe interval is proved by interval bounds (see :func:`choose_epsilon`); None
        if only the grid vouches for it: for a measure given as a function, for conventions without
        a fixed cutoff, and for discrete Gaussian noise.
    reach : (float, float)
        Smallest and largest risk on the grid and in the limits. A target outside is never met.
    limits : (float, float) or None
        The risk as epsilon tends to 0 and to infinity; None for a measure given as a function.
    sandwich : (float, float) or None
        For tables of homogeneous cells and their exact or refined risk: the interval that holds
        the root whatever the sizes of the cells, from :func:`homogeneous_sandwich`.
    homogeneous : int or None
        Number of homogeneous cells, if a table was given.
    cells : int or None
        Number of cells, if a table was given.
    epsilons, risks : ndarray
        The risk on the searched grid.
    mechanism, measure : str
        What was asked.
    """

    target: float
    roots: tuple[float, ...]
    safe: float
    proven: float | None
    reach: tuple[float, float]
    limits: tuple[float, float] | None
    sandwich: tuple[float, float] | None
    homogeneous: int | None
    cells: int | None
    epsilons: np.ndarray = field(compare=False)
    risks: np.ndarray = field(compare=False)
    mechanism: str = ""
    measure: str = ""

    @property
    def reachable(self) -> bool:
        """Whether the target lies strictly inside the range of the risk."""
        return self.reach[0] < self.target < self.reach[1]

    @property
    def epsilon(self) -> float:
        """The choice: ``safe``, where disclosure risk can choose at all.

        It is ``proven`` instead, if that is known and positive: what no proof covers is left out.

        Raises
        ------
        NoSafeEpsilon
            If every epsilon exceeds the target, if none does, or if no cell is homogeneous, so
            that less noise always looks safer in the end.
        """
        objection = self._objection()
        if objection:
            raise NoSafeEpsilon(objection)
        return self.proven or self.safe

    def _objection(self) -> str | None:
        if self.homogeneous == 0:
            return (
                f"none of the {self.cells} cells is homogeneous: the risk falls to 0 as epsilon "
                "grows, so it would call the table without noise the safest; disclosure risk "
                "cannot choose epsilon here, use the privacy guarantee and the utility"
            )
        if self.safe == 0.0:
            return (
                f"the risk exceeds {self.target:g} for arbitrarily small epsilon (its range is "
                f"{_interval(self.reach)}); raise the target, or coarsen the table"
            )
        if self.safe == math.inf:
            return (
                f"the risk never exceeds {self.target:g} (its range is {_interval(self.reach)}), "
                "so the target does not restrict epsilon; use the privacy guarantee and the utility"
            )
        return None

    def __repr__(self) -> str:
        roots = ", ".join(f"{root:.6g}" for root in self.roots) or "none"
        safe = {0.0: "none", math.inf: "every epsilon"}.get(self.safe, f"(0, {self.safe:.6g}]")
        proof = {None: "seen on a grid", 0.0: "not proven", math.inf: "proven"}.get(
            self.proven, f"proven up to {self.proven or 0:.6g}"
        )
        lines = [
            f"EpsilonChoice: {self.measure} <= {self.target:g} under {self.mechanism}",
            f"  risk equals the target at   {roots}",
            f"  safe                        {safe}{'' if self.safe == 0.0 else f', {proof}'}",
            f"  range of the risk           {_interval(self.reach)}",
        ]
        if self.sandwich:
            low, high = self.sandwich
            where = "nowhere" if low == math.inf else f"between {low:.6g} and {high:.6g}"
            lines.append(f"  whatever the cell sizes     {where}")
        if self.cells is not None:
            lines.append(f"  homogeneous cells           {self.homogeneous} of {self.cells}")
        objection = self._objection()
        if objection:
            lines += textwrap.wrap(
                f"no choice: {objection}", 76, initial_indent="  ", subsequent_indent="    "
            )
        return "\n".join(lines)

    def plot(self, ax=None):
        """Draw the risk against epsilon, with the target, its roots and the safe interval.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib.axes.Axes
        """
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots()
        ax.plot(self.epsilons, self.risks, label=self.measure)
        ax.axhline(self.target, color="0.4", linewidth=1, linestyle="-")
        ax.plot(self.roots, [self.target] * len(self.roots), "ko", label="risk = target")
        if self.safe > 0.0:
            end = min(self.safe, self.epsilons[-1])
            ax.axvspan(self.epsilons[0], end, alpha=0.12, linewidth=0, label="safe")
        ax.set(xscale="log", xlabel=r"privacy loss $\epsilon$", ylabel="disclosure risk")
        ax.set(xlim=(self.epsilons[0], self.epsilons[-1]), ylim=(0, None))
        ax.legend()
        return ax


def choose_epsilon(
    table,
    target: float,
    mechanism: str | Mechanism = "laplace",
    *,
    delta: float | None = None,
    sensitivity: float | str = "add_remove",
    measure: str | Measure = "exact",
    over: str = "cells",
    between: tuple[float, float] = (1e-6, 1e3),
) -> EpsilonChoice:
    """Find every epsilon at which the disclosure risk meets a target, and the safe ones.

    Parameters
    ----------
    table : FrequencyTable, array_like of int of shape (cells, levels), or None
        The table to be released; may be None if ``measure`` is a function.
    target : float
        The largest disclosure risk that is accepted, strictly between 0 and 1.
    mechanism : str or callable
        A name in ``drha.calibrate.MECHANISMS``, or a function from epsilon to a count mechanism
        whose noise shrinks as epsilon grows, e.g. ``lambda e: drha.laplace(e, sensitivity=2)``.
    delta : float, optional
        For the named mechanisms that need it.
    sensitivity : float or {"add_remove", "substitution"}, default "add_remove"
        For the named mechanisms: what changes between neighbouring tables.
    measure : str or callable
        ``"exact"``, ``"refined"`` or ``"paper_bound"``, a kind of :func:`drha.local_risk`, or a
        function from a count mechanism to one number, e.g.
        ``lambda noise: drha.expected_risk(2, [0.5, 0.5], noise)``.
    over : {"cells", "people", "worst"}
        The local risk averaged over cells, averaged over people, or of the worst cell.
    between : (float, float)
        Range of epsilon to search. It is widened by itself when the limits of a named measure
        show that a root lies outside.

    Returns
    -------
    EpsilonChoice
        Its ``epsilon`` is the choice, where there is one.

    Raises
    ------
    InvalidQuestion
        If the target is not in (0, 1), a name is unknown or the range is not increasing.
    InvalidNoise
        If the mechanism does not return count mechanisms, or its noise grows with epsilon.
    InvalidCounts, InvalidTable
        If the table is not one.

    Notes
    -----
    Roots are bracketed on a logarithmic grid, 40 points a decade, whose local extremes near the
    target are refined, and solved by Brent's method.

    The safe interval of a named measure is proved, not sampled. Each measure is a sum of products
    of u(c) and s(c) with non-negative coefficients, and u(c) and s(c) are monotone in epsilon; so
    the measure evaluated at the larger of their values at the two ends of an interval bounds it on
    the whole interval. Steps from 0 to ``safe`` on each of which this bound is at most the target
    are the proof. It ends below the first root by a relative 1e-9 or so, and earlier where the
    risk almost touches the target. It needs noise that shrinks steadily as epsilon grows, which
    the discrete Gaussian calibrated to (epsilon, delta) does not above epsilon = 1 or so: there
    several sigmas have the same delta.

    Examples
    --------
    >>> import drha
    >>> round(drha.choose_epsilon([[2, 0]], 0.5).epsilon, 6)
    0.595282
    """
    target = _check_target(target)
    low, high = _check_range(between)
    name, build = resolve_mechanism(mechanism, delta, sensitivity)
    if callable(measure):
        risk, known = _checked(measure), False
        title = _name(measure, "risk")
        table = None if table is None else _as_table(table)
    else:
        table = _as_table(table)
        risk, known = dataset_risk(table, measure, over), True
        title = f"{measure} risk, {_OVER[over]}"

    if callable(mechanism):
        _check_decreasing(build, low, high)
    some = build(low)
    known = known and isinstance(some.convention, _FIXED)
    limits = None
    if known:
        ends = ((VANISHING, _Coin), (ENDLESS, _Exact))
        limits = tuple(risk(_limit(build, epsilon, end, some)) for epsilon, end in ends)
        low = _widen(lambda e: risk(build(e)), target, low, limits[0], 0.1)
        high = _widen(lambda e: risk(build(e)), target, high, limits[1], 10.0)
    points = 1 + math.ceil(POINTS_A_DECADE * math.log10(high / low))
    grid = np.linspace(math.log(low), math.log(high), points)
    risks = np.array([risk(build(e)) for e in np.exp(grid)])

    def excess(log_epsilon: float) -> float:
        return risk(build(math.exp(log_epsilon))) - target

    grid, values = _refine_extremes(excess, grid, risks - target)
    roots, rising = _roots(excess, grid, values)
    first = next((root for root, up in zip(roots, rising, strict=True) if up), math.inf)
    safe = 0.0 if values[0] > 0.0 else math.exp(_round_down(excess, first))
    proven = None
    if known and not isinstance(some, DiscreteGaussian):  # whose calibration jumps to and fro
        proven = _prove_safe(risk, build, target, low, high, safe) if safe else 0.0
    every = [*(values + target), *(limits or ())]
    levels = None if table is None else table.n_levels
    pure = known and bool(table.homogeneous.all()) and isinstance(some.convention, RoundAndClip)
    return EpsilonChoice(
        target=target,
        roots=tuple(math.exp(root) for root in roots),
        safe=safe,
        proven=proven,
        reach=(float(min(every)), float(max(every))),
        limits=limits,
        sandwich=homogeneous_sandwich(target, levels, build) if pure else None,
        homogeneous=None if table is None else int(table.homogeneous.sum()),
        cells=None if table is None else table.n_cells,
        epsilons=np.exp(grid),
        risks=values + target,
        mechanism=name,
        measure=title,
    )


def homogeneous_sandwich(
    target: float,
    levels: int,
    mechanism: str | Mechanism = "laplace",
    *,
    delta: float | None = None,
    sensitivity: float | str = "add_remove",
) -> tuple[float, float]:
    """Where the risk of homogeneous cells meets a target, whatever their sizes.

    Parameters
    ----------
    target : float
        Strictly between 0 and 1.
    levels : int
        Number K of sensitive levels, at least 1.
    mechanism : str or callable
        As in :func:`choose_epsilon`.
    delta, sensitivity
        As in :func:`choose_epsilon`.

    Returns
    -------
    (float, float)
        Lower and upper bound on the epsilon at which the average risk of homogeneous cells
        equals the target. (inf, inf) if no epsilon attains it whatever the sizes, because it is
        at most 2^-K, the limit of ever more noise.

    Raises
    ------
    InvalidQuestion
        If the target is not in (0, 1) or ``levels`` is not a positive whole number.

    Notes
    -----
    A cell of size n has risk A(n) = u(0)^(K-1) s(n), between u(0)^(K-1) s(1) (attained at n = 1)
    and u(0)^(K-1) (approached as n grows), and all three increase with epsilon. By symmetry
    s(1) = u(0), so the bounds solve u(0) = target^(1/(K-1)) and u(0) = target^(1/K). For Laplace
    noise they are max(0, -2 ln(2 (1 - target^(1/(K-1))))) and -2 ln(2 (1 - target^(1/K))).

    Examples
    --------
    >>> import drha
    >>> low, high = drha.homogeneous_sandwich(0.5, 2)
    >>> round(low, 4), round(high, 4)
    (0.0, 1.0696)
    """
    target = _check_target(target)
    if not isinstance(levels, (int, np.integer)) or levels < 1:
        raise InvalidQuestion(f"levels must be a whole number from 1 on, not {levels!r}")
    _, build = resolve_mechanism(mechanism, delta, sensitivity)
    least = float(_limit(build, VANISHING, _Coin, build(1.0)).log_vanishing(0))  # of log u(0)
    if math.log(target) <= levels * least:
        return math.inf, math.inf

    def where(power: int) -> float:
        """Epsilon at which u(0)^power is the target, 0 if it is larger throughout."""
        if math.log(target) <= power * least:
            return 0.0

        def excess(log_epsilon: float) -> float:
            log_zero = float(build(math.exp(log_epsilon)).log_vanishing(0))
            return power * log_zero - math.log(target)

        low, high = -1.0, 1.0
        while excess(low) > 0.0:
            low -= 1.0
        while excess(high) < 0.0:
            high += 1.0
        return math.exp(brentq(excess, low, high, xtol=TOLERANCE))

    return where(int(levels) - 1), where(int(levels))


def dataset_risk(table: FrequencyTable, measure: str = "exact", over: str = "cells") -> Measure:
    """Return one risk of a whole table as a function of the count mechanism.

    Parameters
    ----------
    table : FrequencyTable
    measure : {"exact", "refined", "paper_bound"}
        Kind of local risk.
    over : {"cells", "people", "worst"}
        Average over cells, average over people (each cell weighs as many as it has records), or
        largest risk of any cell.

    Returns
    -------
    callable
        Maps a count mechanism to a float. It evaluates the distinct shapes of cells only.
    """
    if measure not in KINDS:
        raise InvalidQuestion(f"measure {measure!r} is unknown; choose one of {KINDS}")
    if over not in AVERAGES:
        raise InvalidQuestion(f"over={over!r} is unknown; choose one of {AVERAGES}")
    shapes, shape = table.shapes
    if over == "worst":
        return lambda noise: float(local_risk(shapes, noise, measure).max())
    weights = np.bincount(shape, table.sizes if over == "people" else None).astype(float)
    weights /= weights.sum()
    return lambda noise: float(local_risk(shapes, noise, measure) @ weights)


def resolve_mechanism(
    mechanism: str | Mechanism,
    delta: float | None = None,
    sensitivity: float | str = "add_remove",
) -> tuple[str, Mechanism]:
    """Return the name of a mechanism and it as a function of epsilon alone.

    Raises
    ------
    InvalidQuestion
        If the name is unknown, or delta is missing, or given along with a function.
    """
    if callable(mechanism):
        if delta is not None or sensitivity != "add_remove":
            raise InvalidQuestion(
                "delta and sensitivity are for named mechanisms; a function carries its own"
            )

        def checked(epsilon: float) -> CountNoise:
            noise = mechanism(epsilon)
            check_noise(noise)
            return noise

        return _name(mechanism, "mechanism"), checked
    if mechanism not in MECHANISMS:
        raise InvalidQuestion(
            f"mechanism {mechanism!r} is unknown; choose one of {sorted(MECHANISMS)} or pass a "
            "function from epsilon to a count mechanism"
        )
    if mechanism not in PURE and delta is None:
        raise InvalidQuestion(f"mechanism {mechanism!r} needs delta, e.g. delta=1e-5")
    return mechanism, partial(MECHANISMS[mechanism], delta=delta, sensitivity=sensitivity)


# The ends of the scale, and bounds between two mechanisms.

_FIXED = (RoundAndClip, Clip, Floor, Ceil, Threshold)  # cutoffs that do not move with the noise


@dataclass(frozen=True)
class _End(CountNoise):
    """What noise tends to at an end of the scale; it only answers how often counts vanish."""

    lattice: bool = False

    @property
    def scale(self):
        raise InvalidNoise("the limit of ever more or less noise has no scale")

    def log_cdf(self, x):
        with np.errstate(divide="ignore"):
            return np.log(self.cdf(x))

    def log_rounded_mass(self, counts):
        raise InvalidNoise("the limit of ever more or less noise has no masses")

    def sample(self, shape, rng):
        raise InvalidNoise("the limit of ever more or less noise cannot be drawn")


class _Coin(_End):
    """The limit of ever more noise: each count vanishes by the toss of a fair coin."""

    def cdf(self, x):
        return np.full(np.shape(x), 0.5)[()]


class _Exact(_End):
    """The limit of ever less noise: counts are released as they are."""

    def cdf(self, x):
        return np.heaviside(x, 0.5)


def _limit(build: Mechanism, epsilon: float, end: type[_End], like: CountNoise) -> CountNoise:
    """Return the noise at an end of the scale, where it may stay finite: delta alone limits it."""
    try:
        return build(epsilon)
    except InvalidNoise:
        return end(lattice=like.lattice, convention=like.convention)


@dataclass(frozen=True)
class _Between(_Coin):
    """The largest u and the largest s of any mechanism between two.

    u and s no longer add up to 1, so this is no mechanism; but a measure that is increasing in
    both, evaluated here, is an upper bound of that measure.
    """

    one: CountNoise = None
    other: CountNoise = None

    def vanishing(self, counts):
        return np.maximum(self.one.vanishing(counts), self.other.vanishing(counts))

    def survival(self, counts):
        return np.maximum(self.one.survival(counts), self.other.survival(counts))


def _prove_safe(
    risk: Measure, build: Mechanism, target: float, low: float, high: float, safe: float
) -> float:
    """Largest x up to ``safe`` for which the risk is proved at most ``target`` on (0, x]."""
    like = build(low)
    kind = {"lattice": like.lattice, "convention": like.convention}
    left, end = _Coin(**kind), min(safe, high)
    reached, right, ratio = 0.0, min(low, end), 1.5
    for _ in range(STEPS):
        try:
            stronger = build(right)
        except InvalidNoise:  # too much noise for the package, and not even that is proved
            break
        if risk(_Between(one=left, other=stronger)) <= target:
            left, reached = stronger, right
            ratio = 1.0 + 2.0 * (ratio - 1.0)
        elif reached > 0.0:
            ratio = 1.0 + 0.5 * (ratio - 1.0)
        if reached == end or ratio - 1.0 < FINEST_STEP:
            break
        right = min(reached * ratio, end) if reached > 0.0 else right / 4.0
    if reached == end < safe and risk(_Between(one=left, other=_Exact(**kind))) <= target:
        return safe
    return reached


# Roots of a function on a grid of its logarithmic argument.


def _refine_extremes(excess, grid: np.ndarray, values: np.ndarray):
    """Insert local extremes that might cross zero between the points of the grid."""
    before, here, after = values[:-2], values[1:-1], values[2:]
    top = (here >= before) & (here >= after) & (here < 0.0)
    bottom = (here <= before) & (here <= after) & (here > 0.0)
    near = np.abs(here) <= np.abs(here - before) + np.abs(after - here)
    added, found = [], []
    for i in 1 + np.flatnonzero((top | bottom) & near):
        sign = 1.0 if values[i] > 0.0 else -1.0
        best = minimize_scalar(
            lambda x, sign=sign: sign * excess(x),
            bounds=(grid[i - 1], grid[i + 1]),
            method="bounded",
            options={"xatol": 1e-9},
        )
        added.append(best.x)
        found.append(sign * best.fun)
    grid, values = np.append(grid, added), np.append(values, found)
    order = np.argsort(grid)
    return grid[order], values[order]


def _roots(excess, grid: np.ndarray, values: np.ndarray) -> tuple[list[float], list[bool]]:
    """Roots between neighbours of opposite sign, and whether the function rises through each."""
    kept = np.flatnonzero(values != 0.0)
    roots, rising = [], []
    for i, j in pairwise(kept):
        if values[i] * values[j] < 0.0:
            roots.append(brentq(excess, grid[i], grid[j], xtol=TOLERANCE, rtol=TOLERANCE))
            rising.append(bool(values[j] > 0.0))
    return roots, rising


def _round_down(excess, root: float) -> float:
    """Move a rising root to where the function is not positive."""
    step = TOLERANCE
    while root < math.inf and excess(root) > 0.0:
        root, step = root - step, 2.0 * step
    return root


def _widen(risk_at, target: float, end: float, limit: float, factor: float) -> float:
    """Move an end of the range until the risk is on the same side of the target as its limit."""
    while abs(limit - target) > TOLERANCE and (limit - target) * (risk_at(end) - target) < 0.0:
        end *= factor
    return end


# Checks and words.

_OVER = {"cells": "average over cells", "people": "average over people", "worst": "worst cell"}


def _interval(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.6g} to {ends[1]:.6g}"


def _name(function: Callable, otherwise: str) -> str:
    return getattr(function, "__name__", otherwise).replace("<lambda>", otherwise)


def _as_table(table) -> FrequencyTable:
    return table if isinstance(table, FrequencyTable) else FrequencyTable.from_counts(table)


def _checked(measure: Measure) -> Measure:
    """Wrap a user's measure so that anything but one finite number is refused."""

    def risk(noise: CountNoise) -> float:
        value = np.asarray(measure(noise))
        if value.size != 1 or value.dtype.kind not in "iuf" or not np.isfinite(value).all():
            raise InvalidQuestion(
                f"the measure must return one finite number, not {value!r}, for {noise!r}"
            )
        return float(value.item())

    return risk


def _check_target(target) -> float:
    try:
        value = float(target)
    except (TypeError, ValueError) as error:
        raise InvalidQuestion(f"target must be a number, not {target!r}") from error
    if not 0.0 < value < 1.0:
        raise InvalidQuestion(f"target must lie strictly between 0 and 1, not {target!r}")
    return value


def _check_range(between) -> tuple[float, float]:
    try:
        low, high = map(float, between)
    except (TypeError, ValueError) as error:
        raise InvalidQuestion(f"between must be two numbers, not {between!r}") from error
    if not 0.0 < low < high < math.inf:
        raise InvalidQuestion(f"between must be increasing, positive and finite, not {between!r}")
    return low, high


def _check_decreasing(build: Mechanism, low: float, high: float) -> None:
    """Raise unless there is less noise at larger epsilon."""
    epsilons = np.geomspace(low, high, 20)
    grows = np.diff([build(e).scale for e in epsilons]) > 0.0
    if grows.any():
        i = int(np.argmax(grows))
        raise InvalidNoise(
            f"the noise grows between epsilon {epsilons[i]:.6g} and {epsilons[i + 1]:.6g}; the "
            "mechanism must add less noise as epsilon grows"
        )
