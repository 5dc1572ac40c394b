"""The blocks of the interior point, one an output, and the Newton steps that they take.

Output y has a vector z_y > 0 strictly inside its privacy cone, with slacks s = A z_y > 0 of the
rows it lists, and multipliers f > 0 of those rows. Its part of the optimality conditions is

    A'f_y + price = cost_y        and        s f = mu w  for every row, mu -> 0,

where the price is shared (all outputs together have to sum to one in every state) or the output's
own (a single vector of given sum). Linearised, and with df = (aim - f ds) / s eliminated,

    H_y dz_y = A'(aim/s) - residual_y + change of price,      H_y = A' diag(f/s) A.

The weights w are, up to a floor, the leverage scores of the rows, which sum to n however many
rows there are: central paths weighted so do not notice near copies of a row (Lee and Sidford,
"Path finding methods for linear programming", FOCS 2014), and rows that are nearly implied by
others are the rule here. With equal weights twice as many iterations are needed.
"""

from __future__ import annotations

import numpy as np

from dephdp.optimal import kernels
from dephdp.optimal.kernels import Workspace
from dephdp.optimal.lanes import Lanes
from dephdp.optimal.pairs import Neighbourhood, pair_keys
from dephdp.optimal.problem import Multipliers

FLOOR = 1e-2  # least weight of a row
CORRECTORS = 3  # Gondzio's correctors at most
REACH = 0.2  # how much longer a step they try for
GAIN = 0.02  # and the gain that makes one worth its solve
BACKOFF = 0.99  # fraction of the step to the boundary
# A new row starts with this fraction of its product s f: that disturbs the dual residual little,
# and small products grow readily.
NEWCOMER = 1e-3
_FOUND = 1 << 16  # pairs that a thread can report in one scan


class Blocks:
    """Iterates of some outputs and the linear algebra of one Newton step.

    Parameters
    ----------
    reduced : ndarray, shape (m, n)
        cost - price > 0 at the start, row by row of the outputs.
    neighbourhood : Neighbourhood
    lists : list of ndarray
        Pairs that each output starts with; see `Neighbourhood.rows`.
    height : float
        Starting value of z: constant vectors are well inside every cone.
    lanes : Lanes
    """

    def __init__(self, reduced, neighbourhood: Neighbourhood, lists, height, lanes: Lanes):
        self.neighbourhood = neighbourhood
        self.lanes = lanes
        self.rows = neighbourhood.rows(lists)
        self.z = np.full(reduced.shape, float(height))
        self._allocate()
        self._start(reduced)

    def __len__(self) -> int:
        return len(self.z)

    def _allocate(self):
        """Make room for what is computed anew in every iteration."""
        m, n = self.z.shape
        self.factors = np.empty((m, n * (n + 1) // 2))
        self.pull = np.empty((m, n))
        self.gap = np.empty(m)
        self._share()
        self._allocate_rows()

    def _share(self):
        """Share the blocks among the threads."""
        self.shares = self.lanes.shares(*self.z.shape)
        self.workspaces = [Workspace.for_states(self.z.shape[1]) for _ in self.shares]
        self._found = [np.empty((_FOUND, 3), dtype=np.int32) for _ in self.shares]

    def _allocate_rows(self):
        self.aim = np.empty((len(self.rows.other), 2))
        self._other_aim = np.empty_like(self.aim)

    def _start(self, reduced):
        weight = np.maximum(self.rows.decay, FLOOR)
        self.f = np.empty((len(weight), 2))
        self.weight = np.repeat(weight[:, None], 2, axis=1)

        def task(k, lo, hi):
            return kernels.start_blocks(
                lo, hi, self.rows, reduced, weight, self.factors[lo], self.f, self.workspaces[k]
            )

        self.lanes.run(task, self.shares)

    def _each(self, kernel, *arguments):
        return self.lanes.run(lambda _, lo, hi: kernel(lo, hi, *arguments), self.shares)

    @property
    def iterate(self):
        """What the kernels need to know of the iterate."""
        return self.rows, self.z, self.f

    # -- one Newton step, in the order of use ---------------------------------------------------

    def factor(self, invert: bool) -> bool:
        """Factor the normal matrices, refresh `pull` = A'f and `gap` = <f, s>; say if it worked.

        With `invert` set, the weights are updated and `inverse_sum` becomes available.
        """

        def task(k, lo, hi):
            return kernels.factor_blocks(
                lo,
                hi,
                *self.iterate,
                self.weight,
                FLOOR,
                self.factors,
                self.pull,
                self.gap,
                self.workspaces[k],
                invert,
            )

        return all(self.lanes.run(task, self.shares))

    def inverse_sum(self) -> np.ndarray:
        """Return the lower triangle of the sum of the inverse normal matrices."""
        return sum(work.total for work in self.workspaces)

    def solve(self, right) -> np.ndarray:
        """Return H_y^-1 right_y of each block."""
        out = np.empty_like(right)
        self._each(kernels.solve_blocks, self.factors, right, out)
        return out

    def affine(self, dz) -> np.ndarray:
        """Measure the affine step; see `kernels.affine_blocks`."""
        out = np.empty((len(self), 4))
        self._each(kernels.affine_blocks, *self.iterate, dz, out)
        return out

    def aim_at(self, dz, target, residual) -> np.ndarray:
        """Set `aim` for the products target w, given the affine step; return the right side."""
        right = np.empty_like(self.z)
        self._each(
            kernels.aim_blocks, *self.iterate, self.weight, dz, target, residual, self.aim, right
        )
        return right

    def correct(self, dz, reach, target, residual) -> np.ndarray:
        """Propose a corrected aim; return the right side. `accept` makes it the aim."""
        right = np.empty_like(self.z)
        self._each(
            kernels.correct_blocks,
            *self.iterate,
            self.weight,
            dz,
            self.aim,
            reach,
            target,
            residual,
            self._other_aim,
            right,
        )
        return right

    def accept(self):
        """Make the aim proposed last the aim."""
        self.aim, self._other_aim = self._other_aim, self.aim

    def ratios(self, dz, proposed: bool) -> np.ndarray:
        """Return the largest relative decreases of s and f over a step, shape (m, 2)."""
        out = np.empty((len(self), 2))
        aim = self._other_aim if proposed else self.aim
        self._each(kernels.ratio_blocks, *self.iterate, dz, aim, out)
        return out

    def scan(self, dz, step):
        """Look for unlisted rows that the step comes near; see `kernels.scan_blocks`.

        Returns
        -------
        found : ndarray of int32, shape (k, 3)
        ratio : ndarray, shape (m,)
        """
        hood, ratio = self.neighbourhood, np.empty(len(self))

        def task(k, lo, hi):
            return kernels.scan_blocks(
                lo,
                hi,
                self.rows,
                self.z,
                dz,
                step,
                hood.decay,
                hood.near,
                hood.essential,
                ratio,
                self._found[k],
                _FOUND,
            )

        counts = self.lanes.run(task, self.shares)
        return np.concatenate([f[:c] for f, c in zip(self._found, counts, strict=True)]), ratio

    def advance(self, dz, step):
        """Move by the primal and dual step lengths of each block, shape (m, 2)."""
        self._each(kernels.advance_blocks, *self.iterate, dz, self.aim, step)

    # -- changing the rows and the outputs ------------------------------------------------------

    def lists(self) -> list[np.ndarray]:
        """Return the pair list of each output."""
        return pair_keys(self.rows)

    def multipliers(self, k, output, scale) -> Multipliers:
        """Return the multipliers of the k-th block's rows, times the scale of its costs."""
        start = self.rows.start[k]
        state = np.repeat(np.arange(len(start) - 1, dtype=np.int32), np.diff(start))
        at = slice(start[0], start[-1])
        other = self.rows.other[at]
        return Multipliers(
            np.concatenate([state, other]),
            np.concatenate([other, state]),
            np.full(2 * len(other), output, dtype=np.int32),
            scale * self.f[at].T.ravel(),
        )

    def grow(self, found, product):
        """Take the pairs (y, i, j) found into the lists; product (m,) is the products' target."""
        n = self.z.shape[1]
        y, i, j = found.astype(np.int64).T
        listed = np.concatenate([k * n * n + keys for k, keys in enumerate(self.lists())])
        keys = np.concatenate([listed, y * n * n + i * n + j])
        order = np.argsort(keys, kind="stable")
        decay = self.neighbourhood.decay[i, j]
        zi, zj = self.z[y, i], self.z[y, j]
        slack = np.stack([zj - decay * zi, zi - decay * zj], axis=1)
        f = NEWCOMER * FLOOR * product[y, None] / slack
        self.f = np.concatenate([self.f, f])[order]
        self.weight = np.concatenate([self.weight, np.full(f.shape, FLOOR)])[order]
        keys = keys[order]
        ends = np.searchsorted(keys, np.arange(1, len(self)) * n * n)
        self.rows = self.neighbourhood.rows([part % (n * n) for part in np.split(keys, ends)])
        self._allocate_rows()

    def keep(self, kept):
        """Forget all outputs but the kept ones (ascending indices), between `factor` and a step."""
        lists, begins = self.lists(), self.rows.start[:, 0]
        at = [np.arange(begins[y], begins[y] + len(lists[y])) for y in kept]
        at = np.concatenate(at)
        self.f, self.weight = self.f[at], self.weight[at]
        self.rows = self.neighbourhood.rows([lists[y] for y in kept])
        self.z, self.factors = self.z[kept], self.factors[kept]
        self.pull, self.gap = self.pull[kept], self.gap[kept]
        self._share()
        self._allocate_rows()


class Step:
    """One predictor-corrector step of blocks that share their price or have one each.

    Parameters
    ----------
    blocks : Blocks
        Factored.
    reduced : ndarray, shape (m, n)
        cost - price.
    direction : callable
        Maps a right side (m, n) to (dz, change of the price).
    worst, total : callable
        Map measures of the blocks, shape (m,), to those that count for each block: maximum and sum
        over all blocks for coupled ones, the identity for separate ones.
    correctors : int
        How many correctors to try.

    Attributes
    ----------
    change : the direction's change of the price, for a dual step of length one.
    length : ndarray, shape (m, 2)
        Primal and dual step lengths.
    """

    def __init__(self, blocks: Blocks, reduced, direction, worst, total, correctors=CORRECTORS):
        self.blocks = blocks
        self.direction, self.worst = direction, worst
        self.residual = reduced - blocks.pull
        gap = total(blocks.gap)
        products = total(_block_sums(blocks.weight, blocks.rows.start))
        affine, _ = direction(-reduced)
        measures = blocks.affine(affine)
        primal, dual = self._lengths(measures[:, :2]).T
        linear, quadratic = total(measures[:, 2]), total(measures[:, 3])
        left = gap + primal * linear - dual * (gap + linear) + primal * dual * quadratic
        self.target = gap / products * np.maximum(left / gap, 0.0) ** 3
        self._aim(affine, correctors)
        self._meet_unlisted_rows()

    def take(self):
        """Move the blocks, and let them list the rows that they came near."""
        self.blocks.advance(self.dz, self.length)
        if len(self.found):
            self.blocks.grow(self.found, self.target)

    def _lengths(self, ratios, backoff=1.0) -> np.ndarray:
        """Turn largest relative decreases into the step lengths they allow, at most one."""
        worst = np.stack([self.worst(column) for column in ratios.T], axis=1)
        return backoff / np.maximum(worst, backoff)

    def _aim(self, affine, correctors):
        blocks, target, residual = self.blocks, self.target, self.residual
        self.dz, self.change = self.direction(blocks.aim_at(affine, target, residual))
        self.ratios = blocks.ratios(self.dz, proposed=False)
        for _ in range(correctors):
            length = self._lengths(self.ratios)
            if length.min() > 0.95:
                break
            reach = np.minimum(1.0, length + REACH)
            dz, change = self.direction(blocks.correct(self.dz, reach, target, residual))
            ratios = blocks.ratios(dz, proposed=True)
            if (self._lengths(ratios).sum(axis=1) < length.sum(axis=1) + GAIN).any():
                break
            self.dz, self.change, self.ratios = dz, change, ratios
            blocks.accept()

    def _meet_unlisted_rows(self):
        """Shorten the step where a row that is not listed would be violated."""
        self.found, ratio = self.blocks.scan(self.dz, self._lengths(self.ratios, BACKOFF))
        self.ratios[:, 0] = np.maximum(self.ratios[:, 0], ratio)
        self.length = self._lengths(self.ratios, BACKOFF)


def _block_sums(values, start) -> np.ndarray:
    """Sum the two columns of `values` over the pairs of each output."""
    return np.add.reduceat(values.sum(axis=1), start[:, 0])
