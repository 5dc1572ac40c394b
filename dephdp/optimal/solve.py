"""The door: optimal mechanisms for any finite metric, each with its certificate."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse.csgraph import connected_components
from tqdm import tqdm

from dephdp.errors import DephdpError, SolverError
from dephdp.metric import check_metric, shortest_path_closure
from dephdp.optimal import columns, constant, interior_point, tree_engine
from dephdp.optimal.bound import lower_bound
from dephdp.optimal.certified import OptimalMechanism, certified
from dephdp.optimal.problem import EngineResult, Multipliers, Problem
from dephdp.optimal.trees import Tree, tree_of
from dephdp.validation import check_epsilon

_MANY = 150  # states from which on columns may be the way to go
_SHARE = 0.8  # of the tolerance for the engines; the rest is for the rounding of the bound


def optimal_mechanism(
    prior, loss, distances, epsilon, *, tol=1e-6, time_limit=None, progress=False, closure=False
) -> OptimalMechanism:
    """Return a mechanism of least expected loss among those private at a budget.

    Parameters
    ----------
    prior : array_like, shape (n,)
        Probability of each state. States of probability zero are protected like all others.
    loss : array_like, shape (n, m)
        Loss of reporting each of the m outputs in each of the n states.
    distances : array_like, shape (n, n)
        An extended pseudo-metric between the states. States at distance zero get the same row;
        nothing is asked between states at infinite distance.
    epsilon : float
        Budget per unit of distance.
    tol : float, optional
        Relative gap between the loss and the lower bound at which to stop.
    time_limit : float, optional
        Seconds after which to stop with the best certified answer so far.
    progress : bool, optional
        Show a progress bar.
    closure : bool, optional
        Replace the distances by their shortest paths, which ask for exactly the same privacy,
        instead of refusing those that break the triangle inequality.

    Returns
    -------
    OptimalMechanism
        ``.channel``, ``.loss``, ``.lower_bound``, ``.gap``, ``.iterations``, ``.multipliers``; the
        gap may exceed ``tol`` if the time was up or rounding allowed no more, see ``.status``.

    Raises
    ------
    InvalidDistribution, InvalidLoss, InvalidMetric, InvalidBudget
        If an argument is not what it must be.
    CertificationError, SolverError
        If no mechanism could be certified.

    See Also
    --------
    dephdp.optimal_mechanism_lp : the linear program itself, for small n.

    Notes
    -----
    Minimises sum_xy prior[x] loss[x, y] z[x, y] over the channels z with
    z[x, y] <= exp(epsilon d(x, x')) z[x', y] for all x, x', y. States at distance zero are merged,
    and states at infinite distance separated, both exactly. Tree metrics (lines, trees, taxonomies,
    the discrete metric) go to `dephdp.optimal.tree_engine`, all others to
    `dephdp.optimal.interior_point`; but with many states, a coarse tolerance and few states that
    each output serves, to `dephdp.optimal.columns`. The answer depends on nothing but the
    arguments, unless a time limit stops it.

    Examples
    --------
    >>> import numpy as np
    >>> two = 1 - np.eye(2)
    >>> mechanism = optimal_mechanism([0.5, 0.5], two, two, np.log(3))
    >>> bool(np.isclose(mechanism.loss, 0.25))  # randomised response
    True
    >>> mechanism.channel.privacy_level() <= np.log(3)
    True
    """
    curve = optimal_curve(
        prior,
        loss,
        distances,
        [epsilon],
        tol=tol,
        time_limit=time_limit,
        progress=progress,
        closure=closure,
    )
    return curve[0]


def optimal_curve(
    prior, loss, distances, epsilons, *, tol=1e-6, time_limit=None, progress=False, closure=False
) -> list[OptimalMechanism]:
    """Return optimal mechanisms along a grid of budgets, each started from the one before.

    Parameters
    ----------
    prior, loss, distances
        As in `optimal_mechanism`.
    epsilons : array_like
        Budgets, in any order.
    tol, progress, closure
        As in `optimal_mechanism`.
    time_limit : float, optional
        Seconds for each budget.

    Returns
    -------
    list of OptimalMechanism
        In the order of ``epsilons``. A smaller budget's mechanism may be used for a larger one, so
        that losses never increase with the budget.

    Raises
    ------
    InvalidDistribution, InvalidLoss, InvalidMetric, InvalidBudget
        If an argument is not what it must be.
    CertificationError, SolverError
        If no mechanism could be certified.
    """
    budgets = [check_epsilon(epsilon) for epsilon in np.atleast_1d(np.asarray(epsilons))]
    _check_positive(tol, "tol")
    if time_limit is not None:
        _check_positive(time_limit, "time_limit")
    if not budgets:
        return []
    order = np.argsort(budgets, kind="stable")
    problem = Problem(prior, loss, distances, budgets[order[0]])
    metric = problem.distances
    metric = shortest_path_closure(metric) if closure else check_metric(metric)
    parts = _split(metric)
    curve: list = [None] * len(budgets)
    before = None
    starts = [None] * len(parts)
    with tqdm(total=len(budgets), disable=not progress, desc="optimal mechanism") as bar:
        options = _Options(tol, time_limit, _Report(bar) if progress else None)
        problems = [Problem(prior, loss, metric, budgets[k]) for k in order]
        known = [part.descend(problems[::-1], options) for part in parts]
        for place, (k, problem) in enumerate(zip(order, problems, strict=True)):
            starts = [
                part.solve(problem, options, start, found.pop(len(order) - 1 - place, None))
                for part, start, found in zip(parts, starts, known, strict=True)
            ]
            mechanism = _assemble(problem, parts, starts, tol)
            if before is not None and before.loss < mechanism.loss:
                mechanism = certified(
                    problem,
                    before.channel.matrix,
                    mechanism.multipliers,
                    mechanism.iterations,
                    mechanism.status,
                )
            curve[k] = before = mechanism
            bar.update()
    return curve


class _Report:
    """Shows an engine's progress on a bar."""

    def __init__(self, bar):
        self.bar, self.iteration = bar, 0

    def __call__(self, loss, bound):
        self.iteration += 1
        self.bar.set_postfix(iteration=self.iteration, loss=f"{loss:.6g}", bound=f"{bound:.6g}")


@dataclass(frozen=True)
class _Options:
    """What the engines are asked for."""

    tol: float
    time_limit: float | None
    report: _Report | None

    def fresh(self) -> dict:
        """Return an engine's arguments, the time counted from now."""
        limit = self.time_limit
        deadline = None if limit is None else time.monotonic() + limit
        return {"tol": _SHARE * self.tol, "deadline": deadline, "progress": self.report}


@dataclass(frozen=True, eq=False)
class _Part:
    """States at finite distances from one another, those at distance zero merged.

    Parameters
    ----------
    members : list of ndarray
        For each merged state, the states that share its row.
    distances : ndarray, shape (k, k)
        Between the merged states; positive off the diagonal, symmetric.
    tree : Tree or None
        The tree that these distances are measured on, if there is one.
    """

    members: list
    distances: np.ndarray
    tree: Tree | None

    @property
    def states(self):
        """All states of the part."""
        return np.concatenate(self.members)

    def merged(self, problem) -> Problem | None:
        """Return the problem restricted to this part, None if nothing is at stake there."""
        prior = np.array([problem.prior[group].sum() for group in self.members])
        weight = prior.sum()
        if weight == 0:
            return None
        weighted = np.array([problem.weighted_loss[group].sum(axis=0) for group in self.members])
        loss = weighted / np.where(prior > 0, prior, 1)[:, None]
        return Problem(prior / weight, loss, self.distances, problem.epsilon)

    def descend(self, problems, options) -> dict:
        """Solve problems of falling budgets by columns, as far down as columns are the way to go.

        Returns
        -------
        dict
            An answer for each place among the problems that was reached; the last one may not be
            within the tolerance.
        """
        found, start = {}, None
        if self.tree is not None or options.tol < columns.FINEST or len(self.members) < _MANY:
            return found
        for place, problem in enumerate(problems):
            merged = self.merged(problem)
            if merged is None or _gap(merged, constant.solve(merged)) <= _SHARE * options.tol:
                break  # the same holds at smaller budgets
            if start is None and not columns.promising(merged):
                break
            try:
                start = columns.solve(merged, **options.fresh(), start=start)
            except SolverError:  # rounding: what is left is the interior point's
                break
            found[place] = start
            if start.status != "optimal":
                break
        return found

    def solve(self, problem, options, start, known) -> EngineResult:
        """Solve the problem restricted to this part; what is known of it may be good enough."""
        merged = self.merged(problem)
        if merged is None:
            matrix = np.zeros((len(self.members), problem.outputs))
            matrix[:, 0] = 1
            return EngineResult(matrix, Multipliers.none(), 0, "optimal")
        if known is not None and known.status == "optimal":
            return known
        ignorant = constant.solve(merged)
        if _gap(merged, ignorant) <= _SHARE * options.tol:
            return replace(ignorant, status="optimal")
        if self.tree is not None:
            found = tree_engine.solve(merged, self.tree, **options.fresh(), start=start)
        else:
            found = interior_point.solve(merged, **options.fresh(), start=start)
        if found.status != "optimal":
            found = _better(merged, found, ignorant)
            found = found if known is None else _better(merged, found, known)
        return found

    def multipliers(self, result, problem) -> list:
        """Return multipliers of the whole problem's rows that prove what the engine proved.

        Those between merged states scale with the part's prior. Within a merged state, the row
        from its first state r to another x gets q_x - min q_x: that moves the part of x's weighted
        loss that depends on the output over to r.
        """
        first = np.array([group[0] for group in self.members])
        found = result.multipliers
        weight = problem.prior[self.states].sum()
        parts = [
            Multipliers(
                first[found.source], first[found.target], found.output, weight * found.value
            )
        ]
        for group in (group for group in self.members if len(group) > 1):
            excess = problem.weighted_loss[group[1:]]
            excess = excess - excess.min(axis=1, keepdims=True)
            row, output = np.nonzero(excess)
            parts.append(
                Multipliers(
                    np.full(len(row), group[0]), group[1:][row], output, excess[row, output]
                )
            )
        return parts


def _gap(problem, result) -> float:
    loss = problem.expected_loss(result.matrix)
    return problem.relative_gap(loss, lower_bound(problem, result.multipliers))


def _better(problem, found, ignorant) -> EngineResult:
    """Take the smaller loss and the larger bound of two results; all else is the first one's."""
    if problem.expected_loss(ignorant.matrix) < problem.expected_loss(found.matrix):
        found = replace(found, matrix=ignorant.matrix)
    if lower_bound(problem, ignorant.multipliers) > lower_bound(problem, found.multipliers):
        found = replace(found, multipliers=ignorant.multipliers)
    return found


def _split(distances) -> list:
    """Split the states at infinite distances, and merge those at distance zero."""
    distances = np.minimum(distances, distances.T)  # they may differ by rounding
    _, component = connected_components(np.isfinite(distances), directed=False)
    parts = []
    for label in range(component.max() + 1):
        inside = np.flatnonzero(component == label)
        between = distances[np.ix_(inside, inside)]
        count, group = connected_components(between == 0, directed=False)
        members = [inside[group == k] for k in range(count)]
        if count < len(inside):
            starts = np.argsort(group, kind="stable")
            cuts = np.searchsorted(group[starts], np.arange(count))
            between = np.minimum.reduceat(between[starts], cuts, axis=0)
            between = np.minimum.reduceat(between[:, starts], cuts, axis=1)
        parts.append(_Part(members, between, tree_of(between)))
    return parts


def _assemble(problem, parts, results, tol) -> OptimalMechanism:
    """Put the parts' answers together and certify the whole."""
    matrix = np.zeros((problem.states, problem.outputs))
    multipliers = []
    for part, result in zip(parts, results, strict=True):
        for group, row in zip(part.members, result.matrix, strict=True):
            matrix[group] = row
        multipliers += part.multipliers(result, problem)
    mechanism = certified(
        problem,
        matrix,
        Multipliers.concatenate(multipliers),
        sum(result.iterations for result in results),
        "optimal",
    )
    if mechanism.gap <= tol:
        return mechanism
    late = any(result.status == "time_limit" for result in results)
    return replace(mechanism, status="time_limit" if late else "stalled")


def _check_positive(value, name):
    try:
        good = math.isfinite(value) and value > 0
    except TypeError:
        good = False
    if not good:
        raise DephdpError(f"{name} must be a positive number, got {value!r}")
