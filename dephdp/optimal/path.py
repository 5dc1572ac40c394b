"""The central path of the program restricted to some outputs, and how far to follow it."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from dephdp.optimal import kernels
from dephdp.optimal.blocks import Blocks, Step
from dephdp.optimal.lanes import Lanes
from dephdp.optimal.pairs import Neighbourhood
from dephdp.optimal.problem import Multipliers

_STALLED = 1e-4  # steps this short,
_PATIENCE = 5  # this many times in a row, lead nowhere
_ITERATIONS = 300  # of which a tenth usually does
_WHOLE = 1e-13  # how far from one the sums over the outputs may lie
_UNCLEAR, _DECIDED = 0.1, 3e-3  # between these relative gaps, outputs leave the program
_NEGLIGIBLE = 0.25  # largest entry of an output that leaves, times the number of those that matter


@dataclass(frozen=True)
class Tolerance:
    """How large a gap may be, in absolute terms.

    Attributes
    ----------
    relative : float
        Asked for, relative to the loss.
    offset : float
        What was subtracted from every loss.
    least : float
        Losses smaller than this (possible if losses have both signs) do not sharpen it further.
    """

    relative: float
    offset: float
    least: float

    def gap(self, loss: float) -> float:
        """Return the gap allowed at a (shifted) loss."""
        return self.relative * max(abs(loss + self.offset), self.least)

    def at(self, relative: float) -> Tolerance:
        """Return the same rule for another relative gap."""
        return Tolerance(relative, self.offset, self.least)


def effective_number(mass) -> float:
    """Return how many outputs carry mass: (sum of masses)^2 / sum of their squares."""
    return mass.sum() ** 2 / (mass**2).sum()


class Path:
    """The central path of the program restricted to some outputs, followed from its beginning.

    Only the rows sum_y z_y = 1 tie the outputs together. Eliminating each output's own normal
    matrix H_y leaves one n x n system, (sum_y H_y^-1) du = r, for the prices u of the states.

    Parameters
    ----------
    q : ndarray, shape (m, n)
        Weighted losses of the outputs, non-negative and not all zero.
    hood : Neighbourhood
    lists : list of ndarray
        Pairs that each output starts with.
    lanes : Lanes
    """

    def __init__(self, q, hood: Neighbourhood, lists, lanes: Lanes):
        m, n = q.shape
        self.scale = q.max()
        self.q = q / self.scale
        self.active = np.arange(m)
        self.price = np.full((1, n), -1.0)
        self.blocks = Blocks(self.q - self.price, hood, lists, 1 / m, lanes)
        self.iterations = 0
        self.stalled = False

    @property
    def channel(self) -> np.ndarray:
        """Return the iterate with its sums over the outputs made one, shape (m, n)."""
        return self.blocks.z / self.blocks.z.sum(axis=0)

    @property
    def loss(self) -> float:
        """Loss of the channel."""
        return self.scale * float((self.q * self.channel).sum())

    @property
    def bound(self) -> float:
        """Lower bound on the loss of the program restricted to the active outputs."""
        return float(self.prices().sum())

    def follow(self, tolerance: Tolerance, deadline=None, progress=None, drop=True):
        """Iterate until the gap is within the tolerance, the time is up or rounding wins.

        With `drop` set, outputs whose mass vanishes leave the program on the way.
        """
        short = 0
        while not self.stalled:
            if not self.blocks.factor(invert=True):
                self.stalled = True
                return
            loss, bound = self.loss, self.bound
            if progress is not None:
                progress(loss + tolerance.offset, bound + tolerance.offset)
            if loss - bound <= tolerance.gap(loss):
                self._make_whole()
                return
            if deadline is not None and time.monotonic() >= deadline:
                return
            step = self._step()
            if step is None:
                self.stalled = True
                return
            step.take()
            self.price += step.length[0, 1] * step.change
            self.iterations += 1
            short = short + 1 if step.length.max() < _STALLED else 0
            self.stalled = short == _PATIENCE or self.iterations == _ITERATIONS
            if drop and _DECIDED * loss <= loss - bound <= _UNCLEAR * loss:
                # The largest entry of an output that matters hardly falls below the reciprocal of
                # their number on the way.
                mass = self.blocks.z.max(axis=1)
                self._keep(np.flatnonzero(mass * effective_number(mass) > _NEGLIGIBLE))

    def _keep(self, kept):
        """Go on with the kept outputs, which share the mass of the others.

        That keeps the sums at one and every column in its cone, for cones are closed under sums.
        """
        if len(kept) < len(self.active):
            mass = self.blocks.z.sum(axis=0)
            self.blocks.keep(kept)
            self.blocks.z += (mass - self.blocks.z.sum(axis=0)) / len(kept)
            self.active, self.q = self.active[kept], self.q[kept]

    def _step(self):
        """Return the next step, or None where rounding has spoilt the system of the prices."""
        solve_prices = self._coupling()
        if solve_prices is None:
            return None
        blocks = self.blocks
        deficit = 1 - blocks.z.sum(axis=0)

        def direction(right):
            change = solve_prices(deficit - blocks.solve(right).sum(axis=0))
            return blocks.solve(right + change), change[None]

        return Step(
            blocks,
            self.q - self.price,
            direction,
            worst=lambda values: np.broadcast_to(values.max(axis=0), values.shape),
            total=lambda values: np.broadcast_to(values.sum(axis=0), values.shape),
        )

    def _coupling(self):
        """Factor the system (sum_y H_y^-1) du = r; return its solver, None if that fails."""
        n = self.blocks.z.shape[1]
        total, factors = self.blocks.inverse_sum(), np.empty(n * (n + 1) // 2)
        work = self.blocks.workspaces[0]
        if not kernels.factor(total, factors, work.panel, work.panel_rows, work.pivot, False):
            return None

        def solve(right):
            solution = np.empty(n)
            kernels.solve_factored(factors, right, solution)
            return solution

        return solve

    def _make_whole(self):
        """Remove what rounding left of sum_y z_y - 1, spread as the normal matrices say."""
        solve_prices = self._coupling()
        deficit = 1 - self.blocks.z.sum(axis=0)
        if solve_prices is not None and np.abs(deficit).max() > _WHOLE:
            dz = self.blocks.solve(np.tile(solve_prices(deficit), (len(self.active), 1)))
            if self.blocks.decrease(dz) < 0.5:
                self.blocks.z += dz

    def prices(self) -> np.ndarray:
        """Return the largest prices u with q_y - A'f_y >= u for every active output."""
        return self.scale * (self.q - self.blocks.pull).min(axis=0)

    def multipliers(self, outputs) -> Multipliers:
        """Return the multipliers of the listed rows, the active outputs numbered by `outputs`."""
        parts = (self.blocks.multipliers(k, y, self.scale) for k, y in enumerate(outputs))
        return Multipliers.concatenate(parts)
