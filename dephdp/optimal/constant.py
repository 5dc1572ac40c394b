"""The report that ignores the state: optimal as the budget tends to zero."""

from __future__ import annotations

import numpy as np

from dephdp.optimal.problem import EngineResult, Multipliers, Problem


def solve(problem: Problem) -> EngineResult:
    """Report the output of least expected loss always, and bound what a small budget could gain.

    Parameters
    ----------
    problem : Problem
        With finite distances.

    Returns
    -------
    EngineResult
        A channel of level zero. Its multipliers prove a bound within a factor exp(-epsilon r) of
        its loss, if losses are at least zero, with r the radius of the metric.

    Notes
    -----
    Let l_x = min_y q_xy and c a state. A mechanism private at epsilon reports y in state x at
    least exp(-epsilon d(c, x)) times as often as in state c, so its loss is at least

        sum_x l_x + min_y sum_x exp(-epsilon d(c, x)) (q_xy - l_x).

    The rows from c to every x, with multipliers q_xy - l_x, say so. The best c is taken.
    """
    q = problem.weighted_loss
    excess = q - q.min(axis=1, keepdims=True)
    matrix = np.zeros(q.shape)
    matrix[:, q.sum(axis=0).argmin()] = 1
    bounds = (np.exp(-problem.epsilon * problem.distances) @ excess).min(axis=1)
    centre = int(bounds.argmax())
    excess[centre] = 0  # the state needs no row to itself
    x, y = np.nonzero(excess)
    star = Multipliers(np.full(len(x), centre), x, y, excess[x, y])
    return EngineResult(matrix, star, 0, "stalled")
