"""The optimal-mechanism problem, its dual multipliers, and what an engine returns.

Minimise the expected loss ``sum_xy prior[x] loss[x, y] z[x, y]`` over the channels ``z`` from
``n`` states to ``m`` outputs with ``z[j, y] >= exp(-epsilon d(i, j)) z[i, y]`` for every ordered
pair of states and every output.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dephdp.errors import InvalidLoss
from dephdp.metric import check_distances
from dephdp.validation import check_epsilon, check_loss, check_prior


@dataclass(frozen=True, eq=False)
class Problem:
    """One instance of the optimal-mechanism problem, validated and immutable.

    Parameters
    ----------
    prior : array_like, shape (n,)
        Probability of each state; zeros are allowed (such states are still protected).
    loss : array_like, shape (n, m)
        ``loss[x, y]``: finite loss of output ``y`` when the state is ``x``, of either sign.
    distances : array_like, shape (n, n)
        Symmetric, non-negative, zero on the diagonal; infinity means "no constraint". The triangle
        inequality costs ``n**3`` and is checked where problems enter, not here.
    epsilon : float
        Privacy budget per unit of distance, positive and finite.

    Raises
    ------
    InvalidDistribution, InvalidLoss, InvalidMetric, InvalidBudget
        Naming the first offending entry.
    """

    prior: np.ndarray
    loss: np.ndarray
    distances: np.ndarray
    epsilon: float

    def __post_init__(self):
        distances = check_distances(self.distances)
        loss = check_loss(self.loss, (len(distances), _count_outputs(self.loss)))
        prior = check_prior(self.prior, len(distances))
        for name, array in (("prior", prior), ("loss", loss), ("distances", distances)):
            object.__setattr__(self, name, _frozen(array))
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))

    @property
    def states(self) -> int:
        """Number of states ``n``."""
        return self.loss.shape[0]

    @property
    def outputs(self) -> int:
        """Number of outputs ``m``."""
        return self.loss.shape[1]

    @cached_property
    def weighted_loss(self) -> np.ndarray:
        """``q[x, y] = prior[x] * loss[x, y]``, shape (n, m)."""
        return _frozen(self.prior[:, None] * self.loss)

    def expected_loss(self, matrix) -> float:
        """Return the loss ``sum_xy q[x, y] z[x, y]`` expected of a matrix of shape (n, m)."""
        return float(np.einsum("xy,xy->", self.weighted_loss, np.asarray(matrix)))

    def relative_gap(self, loss, lower_bound) -> float:
        """Return the distance of a loss from a lower bound, relative to the loss.

        Parameters
        ----------
        loss, lower_bound : float

        Returns
        -------
        float
            The difference divided by the largest of: the size of the loss; its excess over an
            oracle's, which knows the state (losses of both signs may cancel); 1e-8 of the worst
            loss possible (smaller losses count as zero).
        """
        oracle, worst = self._extremes
        scale = max(abs(loss), loss - oracle, 1e-8 * worst)
        return float((loss - lower_bound) / scale) if scale > 0 else 0.0

    @cached_property
    def _extremes(self):
        """Loss of an oracle, and the largest size that a loss can have."""
        weighted = self.weighted_loss
        return weighted.min(axis=1).sum(), np.abs(weighted).max(axis=1).sum()


@dataclass(frozen=True, eq=False)
class Multipliers:
    """Sparse non-negative multipliers of the privacy rows.

    Entry ``k`` belongs to the row ``z[target, output] >= exp(-epsilon d) z[source, output]`` with
    ``d = distances[source, target]``. Rows that are not listed have multiplier zero; a row listed
    twice has the sum of its values.

    Parameters
    ----------
    source, target, output : array_like of int, shape (nnz,)
    value : array_like of float, shape (nnz,)
        Non-negative and finite.
    """

    source: np.ndarray
    target: np.ndarray
    output: np.ndarray
    value: np.ndarray

    def __post_init__(self):
        for name in ("source", "target", "output"):
            index = np.ascontiguousarray(getattr(self, name))
            if index.dtype not in (np.int32, np.int64):
                index = index.astype(np.int64, casting="safe" if index.size else "unsafe")
            object.__setattr__(self, name, index)
        object.__setattr__(self, "value", np.ascontiguousarray(self.value, dtype=float))
        if len({getattr(self, n).shape for n in ("source", "target", "output", "value")}) != 1:
            raise ValueError("source, target, output and value must be vectors of one length")
        if self.value.ndim != 1 or not (np.isfinite(self.value) & (self.value >= 0)).all():
            raise ValueError("multipliers must be a vector of finite, non-negative numbers")

    @classmethod
    def none(cls) -> Multipliers:
        """No multipliers: every privacy row has multiplier zero."""
        empty = np.empty(0, dtype=np.int64)
        return cls(empty, empty, empty, np.empty(0))

    @classmethod
    def concatenate(cls, parts) -> Multipliers:
        """Multipliers of the union of the rows of ``parts``."""
        parts = [cls.none(), *parts]
        return cls(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("source", "target", "output", "value")
            )
        )

    def __len__(self) -> int:
        return len(self.value)


@dataclass(frozen=True, eq=False)
class EngineResult:
    """What an engine hands to the door.

    Parameters
    ----------
    matrix : ndarray, shape (n, m)
        A channel whose rows sum to one up to rounding, private at the problem's epsilon.
    multipliers : Multipliers
        Their `dephdp.optimal.bound.lower_bound` proves how good the channel is.
    iterations : int
        Iterations of the engine's own kind.
    status : str
        ``"optimal"`` (the tolerance was met), ``"time_limit"`` (best certified answer so far) or
        ``"stalled"`` (rounding allows no further progress).
    """

    matrix: np.ndarray
    multipliers: Multipliers
    iterations: int
    status: str


def _frozen(values) -> np.ndarray:
    """Return a private read-only copy of ``values`` as contiguous doubles."""
    array = np.array(values, dtype=float, order="C")
    array.setflags(write=False)
    return array


def _count_outputs(loss) -> int:
    """Return the number of columns that a loss brings along."""
    try:
        shape = np.shape(loss)
    except ValueError:
        shape = ()  # rows of different lengths
    if len(shape) != 2 or shape[1] == 0:
        raise InvalidLoss(f"loss must be a (states, outputs) matrix, got shape {shape}")
    return shape[1]
