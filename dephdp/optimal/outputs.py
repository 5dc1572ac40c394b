"""Which outputs carry mass, and proofs that the others carry none.

At prices u, an output y is not missed if some f >= 0 has q_y - u - A'f >= 0: then no vector of its
privacy cone has a negative reduced cost. Two ways to find f, the cheap one first:

* Greedily, nearest pairs first: a multiplier f(j -> k) costs f at state k and brings E_jk f to
  state j, so f carries what is left over at some states to where the reduced cost is negative (a
  transportation problem with losses). That settles most outputs.
* By an interior point for the one output, min <q_y - u, v> over the v of its cone with sum n, whose
  multipliers are f. It ends as soon as either f proves that y is not missed or v that it is.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numba
import numpy as np

from dephdp.optimal.blocks import Blocks, Step
from dephdp.optimal.lanes import Lanes
from dephdp.optimal.pairs import Neighbourhood
from dephdp.optimal.path import Path, Tolerance, effective_number
from dephdp.optimal.problem import Multipliers, Problem

_MANY = 150  # states from which on a rough program proposes outputs
_CLUSTERS = 60  # its states
_ROUGH = 3e-2  # its gap
_ROUGH_STRETCH = 0.05, 0.5
_SURPLUS = 2  # outputs proposed for each that carries mass in it
_CROWDED = 0.75  # share of its states that carry mass, from which on it proposes nothing: then
_ROOM = 1 << 28  # whatever is best in some state is proposed, if so many numbers have room
_BATCH = 64  # outputs priced side by side, which bounds the memory of their factors
_ITERATIONS = 60  # of the pricing of an output
_HEADROOM = 1.2  # starting price of a vector is minus this, with costs scaled to at least -1


def choose_outputs(problem: Problem, q, hood: Neighbourhood, lanes: Lanes, start=None):
    """Propose the outputs that carry mass, and pairs for them to start with.

    Parameters
    ----------
    problem : Problem
    q : ndarray, shape (m, n)
        Weighted losses, non-negative.
    hood : Neighbourhood
    lanes : Lanes
    start : EngineResult, optional
        An answer at another budget, whose outputs and rows are proposed.

    Returns
    -------
    outputs : ndarray of int
    lists : dict
        Pair lists of some outputs.
    """
    if start is not None:
        outputs = np.flatnonzero(start.matrix.max(axis=0) > 1e-3)
        return outputs, _listed(start.multipliers, outputs, hood)
    if problem.states <= _MANY:
        return np.arange(len(q)), {}
    centres, label = _clusters(problem.distances, _CLUSTERS)
    rough = np.zeros((len(q), len(centres)))
    np.add.at(rough.T, label, q.T)
    distances = problem.distances[np.ix_(centres, centres)]
    rough_hood = Neighbourhood.build(distances, problem.epsilon, _ROUGH_STRETCH)
    path = Path(rough, rough_hood, [rough_hood.base] * len(q), lanes)
    path.follow(Tolerance(_ROUGH, 0.0, 0.0), drop=False)
    mass = path.blocks.z.max(axis=1)
    number = effective_number(mass)
    if number > _CROWDED * len(centres):  # it has too few states to tell
        best = np.unique(q[:, q.any(axis=0)].argmin(axis=0))
        if len(best) * problem.states**2 <= _ROOM:
            return best, {}
    count = int(np.ceil(_SURPLUS * number))
    return np.sort(np.argsort(-mass, kind="stable")[:count]), {}


def _listed(multipliers: Multipliers, outputs, hood: Neighbourhood) -> dict:
    """Turn the rows of some multipliers into pair lists, the spanner's pairs included."""
    n = hood.states
    high = np.maximum(multipliers.source, multipliers.target).astype(np.int64)
    keys = high * n + np.minimum(multipliers.source, multipliers.target)
    return {y: np.union1d(hood.base, keys[multipliers.output == y]) for y in outputs}


def _clusters(distances, count):
    """Return `count` states far from each other (Gonzalez), and the nearest of them to each."""
    finite = np.where(np.isfinite(distances), distances, 0.0)
    centres = [int(finite.sum(axis=1).argmin())]
    nearest = distances[centres[0]].copy()
    while len(centres) < count:
        centres.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, distances[centres[-1]])
    centres = np.array(centres)
    return centres, distances[:, centres].argmin(axis=1)


class Certificates:
    """Multipliers that prove of outputs that they are not missed; kept while they do.

    Parameters
    ----------
    q : ndarray, shape (m, n)
        Weighted losses.
    hood : Neighbourhood
    lanes : Lanes
    deadline : float, optional
        Moment of `time.monotonic` after which only the greedy way is tried.
    """

    def __init__(self, q, hood: Neighbourhood, lanes: Lanes, deadline=None):
        self.q, self.hood, self.lanes, self.deadline = q, hood, lanes, deadline
        self._kept: dict[int, Multipliers] = {}
        self._nearest = None

    def certify(self, outputs, prices, spare):
        """Look for certificates of some outputs.

        Parameters
        ----------
        outputs : ndarray of int
        prices : ndarray, shape (n,)
        spare : float
            How far below zero an entry of q_y - u - A'f may lie.

        Returns
        -------
        missing : ndarray of int
            Outputs without certificate, those with the lowest reduced cost first.
        reduced : ndarray, shape (n,)
            Minimum over the outputs of q_y - A'f_y, with the best f_y found.
        """
        lowest = np.full(len(prices), np.inf)
        open_ = []
        for y, entries in zip(outputs, self._quick(outputs, prices, spare), strict=True):
            if entries is None:
                open_.append(y)
            else:
                np.minimum(lowest, entries, out=lowest)
        missing, values = [], []
        for begin in range(0, len(open_), _BATCH):
            batch = np.array(open_[begin : begin + _BATCH])
            pricing = Pricing(self.q[batch] - prices, spare, self.hood, self.lanes)
            pricing.run(self.deadline)
            for y, found, entries, value in zip(
                batch, pricing.found, pricing.entries, pricing.value, strict=True
            ):
                self._kept[y] = replace(found, output=np.full(len(found), y, dtype=np.int32))
                np.minimum(lowest, prices + entries, out=lowest)
                if entries.min() < -spare:
                    missing.append(y)
                    values.append(value)
        return np.array(missing, dtype=int)[np.argsort(values)], lowest

    def multipliers(self, outputs) -> Multipliers:
        """Return the multipliers found last for some outputs."""
        return Multipliers.concatenate([self._kept[y] for y in outputs])

    def _quick(self, outputs, prices, spare) -> list:
        """Try the certificates kept, then the greedy way; None where neither serves."""
        entries = [None] * len(outputs)
        shares = self.lanes.shares(len(outputs), len(prices)) if len(outputs) else []

        def task(_, lo, hi):
            for k in range(lo, hi):
                entries[k] = self._reuse(outputs[k], prices, spare)
                if entries[k] is None:
                    entries[k] = self._greedy(outputs[k], prices, spare)

        if shares:
            self._order()
            self.lanes.run(task, shares)
        return entries

    def _reuse(self, y, prices, spare):
        kept = self._kept.get(y)
        if kept is None:
            return None
        entries = self.q[y].copy()
        np.subtract.at(entries, kept.target, kept.value)
        np.add.at(entries, kept.source, self.hood.decay[kept.source, kept.target] * kept.value)
        return entries if (entries - prices).min() >= -spare else None

    def _greedy(self, y, prices, spare):
        n = len(prices)
        source, target = np.empty((2, 2 * n), dtype=np.int32)
        value = np.empty(2 * n)
        entries = self.q[y] - prices + spare
        count = _transport(entries, self.hood.decay, self._order(), source, target, value)
        if count < 0:
            return None
        self._kept[y] = Multipliers(
            source[:count], target[:count], np.full(count, y, dtype=np.int32), value[:count]
        )
        return entries + prices - spare

    def _order(self) -> np.ndarray:
        """Return all ordered pairs of states, nearest first."""
        if self._nearest is None:
            order = np.argsort(-self.hood.decay, axis=None, kind="stable")
            self._nearest = np.stack(np.divmod(order, self.hood.states), axis=1).astype(np.int32)
        return self._nearest


@numba.njit(cache=True, nogil=True)
def _transport(left, decay, nearest, source, target, value):
    """Cover the negative entries of `left` from the positive ones, in place, nearest pairs first.

    Returns how many multipliers were written, at most two for each state, or -1 if the greedy
    order leaves an entry uncovered.
    """
    short = 0
    for j in range(len(left)):
        if left[j] < 0:
            short += 1
    count = 0
    for t in range(len(nearest)):
        if short == 0:
            return count
        j, k = nearest[t]
        if left[j] < 0 and left[k] > 0:
            e = decay[j, k]
            if e == 0:
                return -1
            needed = -left[j] / e
            f = min(left[k], needed)
            source[count], target[count], value[count] = j, k, f
            count += 1
            left[k] -= f
            if f == needed:
                left[j] = 0.0
                short -= 1
            else:
                left[j] += e * f
    return count if short == 0 else -1


class Pricing:
    """The vectors of least reduced cost of several outputs, by one interior point each.

    Parameters
    ----------
    costs : ndarray, shape (m, n)
        Reduced costs q_y - u, each with a negative entry.
    spare : float
        How far below zero the entries of costs - A'f may lie.

    Attributes
    ----------
    entries : ndarray, shape (m, n)
        costs - A'f with the multipliers found.
    value : ndarray, shape (m,)
        Mean reduced cost <costs, v> / n of the vectors found.
    found : list of Multipliers
        The multipliers f.
    """

    def __init__(self, costs, spare, hood: Neighbourhood, lanes: Lanes):
        m = len(costs)
        self.costs, self.spare = costs, spare
        # With costs of at least -1 a constant vector is near the central path, whatever they are.
        self.scale = np.maximum(-costs.min(axis=1), 0.02 * costs.max(axis=1))[:, None]
        self.open = np.arange(m)
        self.price = np.full((m, 1), -_HEADROOM)
        self.blocks = Blocks(costs / self.scale - self.price, hood, [hood.base] * m, 1.0, lanes)
        self.entries = np.empty_like(costs)
        self.value = np.empty(m)
        self.found = [Multipliers.none()] * m

    def run(self, deadline=None):
        """Iterate until every output is settled, or the time is up."""
        for iteration in range(_ITERATIONS + 1):
            last = iteration == _ITERATIONS or not self.blocks.factor(invert=False)
            last |= deadline is not None and time.monotonic() >= deadline
            self._settle(last)
            if not len(self.open):
                return
            self._step()

    def _settle(self, last):
        """Put aside the outputs that are certified or missed; all of them at last."""
        open_, blocks = self.open, self.blocks
        entries = self.costs[open_] - self.scale[open_] * blocks.pull
        value = (self.costs[open_] * blocks.z).mean(axis=1)
        lowest = entries.min(axis=1)
        certified = lowest >= -self.spare
        missed = (value < -self.spare) & (lowest > 2 * value)  # and their value is known to a half
        settled = np.flatnonzero(certified | missed | last)
        if not len(settled):
            return
        self.entries[open_[settled]], self.value[open_[settled]] = entries[settled], value[settled]
        for k in settled:
            y = open_[k]
            self.found[y] = blocks.multipliers(k, y, self.scale[y, 0])
        kept = np.setdiff1d(np.arange(len(open_)), settled)
        self.open = open_[kept]
        if len(kept):
            blocks.keep(kept)
            self.price = self.price[kept]

    def _step(self):
        blocks = self.blocks
        ones = blocks.solve(np.ones_like(blocks.z))

        def direction(right):
            dz = blocks.solve(right)
            change = -dz.sum(axis=1, keepdims=True) / ones.sum(axis=1, keepdims=True)
            return dz + change * ones, change

        step = Step(
            blocks,
            self.costs[self.open] / self.scale[self.open] - self.price,
            direction,
            worst=lambda values: values,
            total=lambda values: values,
            correctors=0,
        )
        step.take()
        self.price = self.price + step.length[:, 1:] * step.change
