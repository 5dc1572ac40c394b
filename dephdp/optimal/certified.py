"""The certificate of an optimal mechanism: its exact level, and how far from optimal it can be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dephdp.channel import Channel
from dephdp.errors import CertificationError
from dephdp.optimal.bound import lower_bound
from dephdp.optimal.problem import Multipliers, Problem


@dataclass(frozen=True, eq=False)
class OptimalMechanism:
    """A mechanism with both halves of its certificate.

    Attributes
    ----------
    channel : Channel
        Its exact privacy level is at most the budget, over all pairs of states.
    loss : float
        Its expected loss.
    lower_bound : float
        No mechanism private at the budget has a smaller expected loss.
    gap : float
        ``loss - lower_bound``, relative to the loss; see `Problem.relative_gap`.
    iterations : int
        Iterations of the engine.
    multipliers : Multipliers
        What proves the lower bound.
    problem : Problem
        The instance; with ``multipliers`` it lets anyone recompute the bound.
    status : str
        ``"optimal"``, ``"time_limit"`` or ``"stalled"``: why the engine stopped. The certificate
        holds in every case.
    """

    channel: Channel
    loss: float
    lower_bound: float
    gap: float
    iterations: int
    multipliers: Multipliers
    problem: Problem
    status: str

    def recompute_lower_bound(self) -> float:
        """Return the lower bound, computed anew from the multipliers and the problem alone.

        Returns
        -------
        float
        """
        return lower_bound(self.problem, self.multipliers)

    def __repr__(self):
        return (
            f"OptimalMechanism(states={self.channel.states}, outputs={self.channel.outputs}, "
            f"epsilon={self.problem.epsilon:g}, loss={self.loss:.10g}, "
            f"lower_bound={self.lower_bound:.10g}, gap={self.gap:.1e}, status={self.status!r})"
        )


def certified(problem: Problem, matrix, multipliers, iterations, status) -> OptimalMechanism:
    """Return the certified mechanism; every mechanism of `dephdp.optimal` passes through here.

    Parameters
    ----------
    problem : Problem
    matrix : array_like, shape (n, m)
        The channel matrix; it is published as it is, or not at all.
    multipliers : Multipliers
    iterations : int
    status : str

    Returns
    -------
    OptimalMechanism

    Raises
    ------
    InvalidChannel
        If the matrix is not row-stochastic.
    CertificationError
        If its level exceeds the budget, or its loss lies below the bound by more than rounding.
    """
    channel = Channel(matrix, problem.distances)
    channel.certify(problem.epsilon)
    loss = problem.expected_loss(channel.matrix)
    bound = lower_bound(problem, multipliers)
    off = np.abs(channel.matrix.sum(axis=1) - 1) @ np.abs(problem.weighted_loss).max(axis=1)
    if loss + off < bound:
        raise CertificationError(
            f"loss {loss!r} lies below the lower bound {bound!r}: one of them is wrong"
        )
    bound = min(bound, loss)  # they differ by rounding at most
    gap = problem.relative_gap(loss, bound)
    return OptimalMechanism(channel, loss, bound, gap, iterations, multipliers, problem, status)
