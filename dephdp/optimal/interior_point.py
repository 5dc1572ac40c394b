"""The general engine: an interior point whose blocks are the outputs, for any finite metric.

Few outputs carry mass, so the central path is followed for a few of them (`dephdp.optimal.path`)
and the others are certified afterwards (`dephdp.optimal.outputs`); each output lists few rows
(`dephdp.optimal.pairs`). Iterates stay strictly inside all rows, listed or not, so the channel
that results needs no repair.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from dephdp.optimal import constant
from dephdp.optimal.lanes import Lanes
from dephdp.optimal.outputs import Certificates, choose_outputs
from dephdp.optimal.pairs import Neighbourhood
from dephdp.optimal.path import Path, Tolerance
from dephdp.optimal.problem import EngineResult, Multipliers, Problem
from dephdp.optimal.rounding import private

_FIRST_LOOK = 2e-3  # gap at which the first lower bound is proven
_DOUBT = 3e-2  # gap at which outputs left out on a guess are looked at for the first time
_ROUNDS = 30


def solve(problem: Problem, *, tol, deadline=None, progress=None, start=None) -> EngineResult:
    """Solve the optimal-mechanism problem on any finite metric.

    Parameters
    ----------
    problem : Problem
        Distances between different states have to be positive; infinity is allowed.
    tol : float
        Relative gap (loss - lower bound) / |loss| that is asked for.
    deadline : float, optional
        Moment of `time.monotonic` by which to return the best certified answer found.
    progress : callable, optional
        Called with (loss, lower bound) after every iteration; the bound covers only the outputs at
        hand and is therefore provisional.
    start : EngineResult, optional
        An answer for the same states and outputs at another budget: it tells which outputs and
        rows matter.

    Returns
    -------
    EngineResult

    Raises
    ------
    SolverError
        If rounding leaves no channel that is private at the budget.
    """
    q = np.ascontiguousarray(problem.weighted_loss.T)
    offset = q.min(axis=0)  # every channel has to pay that
    q = q - offset
    spread = float(q.max(axis=0).sum())
    if q.sum(axis=1).min() <= 1e-15 * spread:  # one output is best in every state
        return replace(constant.solve(problem), status="optimal")
    tolerance = Tolerance(tol, float(offset.sum()), 1e-6 * spread)
    hood = Neighbourhood.build(problem.distances, problem.epsilon)
    with Lanes() as lanes:
        return _Rounds(problem, q, hood, tolerance, lanes, deadline, progress).run(start)


class _Rounds:
    """Alternates between following the path for some outputs and certifying the others."""

    def __init__(self, problem, q, hood, tolerance, lanes, deadline, progress):
        self.problem, self.q, self.hood, self.lanes = problem, q, hood, lanes
        self.tolerance, self.deadline, self.progress = tolerance, deadline, progress
        self.certificates = Certificates(q, hood, lanes, deadline)
        self.iterations = 0
        self.best = None

    def run(self, start) -> EngineResult:
        """Go on until the gap is small enough, or nothing helps."""
        goal = self.tolerance.relative
        aim = max(goal, _FIRST_LOOK) if goal < 1e-4 else goal
        outputs, lists = choose_outputs(self.problem, self.q, self.hood, self.lanes, start)
        if len(outputs) < len(self.q):
            aim = max(aim, _DOUBT)
        path = self._path(outputs, lists)
        for turn in range(_ROUNDS):
            before = path.iterations
            path.follow(self.tolerance.at(0.5 * aim), self.deadline, self.progress, drop=turn == 0)
            self.iterations += path.iterations - before
            active = outputs[path.active]
            missing = self._certify(path, active, self.tolerance.at(0.25 * aim).gap(path.loss))
            if self.best.gap <= self.tolerance.gap(self.best.loss):
                return self.best.result(self.problem, self.iterations, "optimal")
            if self.deadline is not None and time.monotonic() >= self.deadline:
                return self.best.result(self.problem, self.iterations, "time_limit")
            if len(missing):
                lists.update(zip(active, path.blocks.lists(), strict=True))
                outputs = np.union1d(active, missing[: max(8, len(active) // 2)])
                path = self._path(outputs, lists)
            elif path.stalled and aim <= goal:
                break
            else:
                aim = min(goal, 0.3 * aim)
        return self.best.result(self.problem, self.iterations, "stalled")

    def _path(self, outputs, lists) -> Path:
        pairs = [lists.get(y, self.hood.base) for y in outputs]
        return Path(self.q[outputs], self.hood, pairs, self.lanes)

    def _certify(self, path, outputs, allowed) -> np.ndarray:
        """Bound all outputs at the path's prices; return those that are needed, worst first."""
        prices = path.prices()
        others = np.setdiff1d(np.arange(len(self.q)), outputs)
        missing, reduced = self.certificates.certify(others, prices, allowed / len(prices))
        answer = _Answer(
            loss=path.loss,
            gap=path.loss - float(np.minimum(prices, reduced).sum()),
            outputs=outputs,
            channel=path.channel,
            multipliers=Multipliers.concatenate(
                [path.multipliers(outputs), self.certificates.multipliers(others)]
            ),
        )
        if self.best is None or answer.gap < self.best.gap:
            self.best = answer
        return missing


@dataclass
class _Answer:
    """A channel on some outputs and multipliers for all of them."""

    loss: float
    gap: float
    outputs: np.ndarray
    channel: np.ndarray
    multipliers: Multipliers

    def result(self, problem, iterations, status) -> EngineResult:
        channel = private(self.channel.T, problem)
        matrix = np.zeros((problem.states, problem.outputs))
        matrix[:, self.outputs] = channel
        return EngineResult(matrix, self.multipliers, iterations, status)
