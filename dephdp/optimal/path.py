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
        self.price = np.full(n, -1.0)
        self.blocks = Blocks(self.q - self.price, hood, lists, 1 / m, lanes)
        self.iterations = 0
        self.bound = -np.inf  # on the restricted program
        self.stalled = False

    @property
    def loss(self) -> float:
        """Loss of the iterate."""
        return self.scale * float((self.q * self.blocks.z).sum())

    def follow(self, tolerance: Tolerance, deadline=None, progress=None):
        """Iterate until the gap is within the tolerance, the time is up or rounding wins."""
        short = 0
        while True:
            if not self.blocks.factor(invert=True):
                self.stalled = True
                return
            bound = self.scale * float((self.q - self.blocks.pull).min(axis=0).sum())
            self.bound = max(self.bound, bound)
            if progress is not None:
                progress(self.loss + tolerance.offset, self.bound + tolerance.offset)
            if self.loss - bound <= tolerance.gap(self.loss):
                return
            if deadline is not None and time.monotonic() >= deadline:
                return
            step = self._step()
            if step is None:
                self.stalled = True
                return
            short = short + 1 if step.length.max() < _STALLED else 0
            if short == _PATIENCE:
                self.stalled = True
                return
            step.take()
            self.price = self.price + step.length[0, 1] * step.change
            self.iterations += 1

    def _step(self):
        blocks = self.blocks
        m, n = blocks.z.shape
        schur, work = np.empty(n * (n + 1) // 2), blocks.workspaces[0]
        total = blocks.inverse_sum()
        if not kernels.factor(total, schur, work.panel, work.panel_rows, work.pivot, False):
            return None
        deficit = 1 - blocks.z.sum(axis=0)

        def direction(right):
            change = np.empty(n)
            kernels.solve_factored(schur, deficit - blocks.solve(right).sum(axis=0), change)
            return blocks.solve(right + change), change

        return Step(
            blocks,
            self.q - self.price,
            direction,
            worst=lambda values: np.full(m, values.max()),
            total=lambda values: np.full(m, values.sum()),
        )

    def prices(self) -> np.ndarray:
        """Return the largest prices u with q_y - A'f_y >= u for every output of the path."""
        return self.scale * (self.q - self.blocks.pull).min(axis=0)

    def multipliers(self, outputs) -> Multipliers:
        """Return the multipliers of the listed rows, the path's outputs numbered by `outputs`."""
        parts = (self.blocks.multipliers(k, y, self.scale) for k, y in enumerate(outputs))
        return Multipliers.concatenate(parts)
