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
from dephdp.optimal.pairs import Neighbourhood
from dephdp.optimal.problem import Multipliers

FLOOR = 3e-2  # least weight of a row
CORRECTORS = 5  # Gondzio's correctors at most
REACH = 0.3  # how much longer a step they try for
GAIN = 0.02  # and the gain that makes another one worth its solves
ENOUGH = 0.95  # step lengths that ask for no correction
SHARES = np.linspace(0.0, 1.0, 6)  # of a corrector that are tried
BACKOFF = 0.99  # fraction of the step to the boundary
# A new row starts with this fraction of its product s f: that disturbs the dual residual little,
# and small products grow readily.
NEWCOMER = 1e-3
_FOUND = 1 << 12  # pairs that a thread can report in one scan, to begin with


class Blocks:
    """Iterates of some outputs and the linear algebra of one Newton step.

    Parameters
    ----------
    reduced : ndarray, shape (m, n)
        cost - price > 0 at the start, row by row of the outputs.
    neighbourhood : Neighbourhood
    lists : list of ndarray
        Pairs that each output starts with, ascending; see `Neighbourhood.base`.
    height : float
        Starting value of z: constant vectors are well inside every cone.
    lanes : Lanes
    """

    def __init__(self, reduced, neighbourhood: Neighbourhood, lists, height, lanes: Lanes):
        self.neighbourhood = neighbourhood
        self.lanes = lanes
        self.listed = neighbourhood.listed(lists)
        self.rows = neighbourhood.rows(self.listed, len(lists))
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
        self.proposed = np.empty_like(self.aim)

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
        """Aim at products of zero and measure that step; see `kernels.affine_blocks`."""
        out = np.empty((len(self), 4))
        self._each(kernels.affine_blocks, *self.iterate, dz, self.aim, out)
        return out

    def aim_at(self, dz, target, residual) -> np.ndarray:
        """Propose the products target w, given the affine step; return the right side."""
        right = np.empty_like(self.z)
        self._each(
            kernels.aim_blocks,
            *self.iterate,
            self.weight,
            dz,
            target,
            residual,
            self.proposed,
            right,
        )
        return right

    def correct(self, primal, dual, reach, target, residual) -> np.ndarray:
        """Propose a correction of the step aimed at; return the right side."""
        right = np.empty_like(self.z)
        self._each(
            kernels.correct_blocks,
            *self.iterate,
            self.weight,
            primal,
            dual,
            self.aim,
            reach,
            target,
            residual,
            self.proposed,
            right,
        )
        return right

    def ratios(self, primal, dual, trial, blend) -> np.ndarray:
        """Measure blends of the step with a trial for the aim proposed; see `kernels`."""
        out = np.empty((*blend.shape, 2))
        self._each(
            kernels.ratio_blocks,
            *self.iterate,
            primal,
            dual,
            self.aim,
            trial,
            self.proposed,
            blend,
            out,
        )
        return out

    def accept(self, share):
        """Blend the proposed aim in, a share (m,) of it for each block."""
        share = np.repeat(share, np.diff(self.rows.start[:, [0, -1]])[:, 0])[:, None]
        self.aim += share * (self.proposed - self.aim)

    def scan(self, dz, step):
        """Look for unlisted rows that the step comes near; see `kernels.scan_blocks`.

        Returns
        -------
        found : ndarray of int32, shape (k, 3)
        ratio : ndarray, shape (m,)
        """
        hood, ratio = self.neighbourhood, np.empty(len(self))

        def task(k, lo, hi):
            found = self._found[k]
            while True:
                count = kernels.scan_blocks(
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
                    found,
                    len(found),
                )
                if count <= len(found):
                    return found[:count]
                self._found[k] = found = np.empty((2 * count, 3), dtype=np.int32)

        return np.concatenate(self.lanes.run(task, self.shares)), ratio

    def decrease(self, dz) -> float:
        """Return the largest relative decrease of a listed row's slack over dz."""
        out = np.empty((len(self), 4))
        self._each(kernels.affine_blocks, *self.iterate, dz, self.proposed, out)
        return float(out[:, 0].max())

    def advance(self, primal, dual, step):
        """Move by the primal and dual step lengths of each block, shape (m, 2)."""
        self._each(kernels.advance_blocks, *self.iterate, primal, dual, self.aim, step)

    # -- changing the rows and the outputs ------------------------------------------------------

    def lists(self) -> list[np.ndarray]:
        """Return the pair list of each output."""
        square = self.z.shape[1] ** 2
        return [part % square for part in np.split(self.listed, self.rows.start[1:, 0])]

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
        y, i, j = found.astype(np.int64).T  # ascending, as the scan goes
        decay = self.neighbourhood.decay[i, j]
        zi, zj = self.z[y, i], self.z[y, j]
        slack = np.stack([zj - decay * zi, zi - decay * zj], axis=1)
        pairs = (y * n + i) * n + j
        at = np.searchsorted(self.listed, pairs)
        self.f = np.insert(self.f, at, NEWCOMER * FLOOR * product[y, None] / slack, axis=0)
        self.weight = np.insert(self.weight, at, FLOOR, axis=0)
        self.listed = np.insert(self.listed, at, pairs)
        self.rows = self.neighbourhood.rows(self.listed, len(self))
        self._allocate_rows()

    def keep(self, kept):
        """Forget all outputs but the kept ones (ascending), between `factor` and a step."""
        square = self.z.shape[1] ** 2
        place = np.full(len(self), -1)
        place[kept] = np.arange(len(kept))
        y, pair = np.divmod(self.listed, square)
        stays = place[y] >= 0
        self.f, self.weight = self.f[stays], self.weight[stays]
        self.listed = place[y[stays]] * square + pair[stays]
        self.z, self.factors = self.z[kept], self.factors[kept]
        self.pull, self.gap = self.pull[kept], self.gap[kept]
        self.rows = self.neighbourhood.rows(self.listed, len(kept))
        self._share()
        self._allocate_rows()


class Step:
    """One predictor-corrector step of blocks that share their price or have one each.

    The step starts as the affine one. Then Mehrotra's corrector and several of Gondzio's are tried
    in turn; of each the share that makes the steps longest is blended in, chosen for the primal
    and for the dual step on their own (Colombo and Gondzio, "Further development of multiple
    centrality correctors for interior point methods", 2008). A corrector costs two solves with
    factors that are there already, a small part of what the factors cost.

    Parameters
    ----------
    blocks : Blocks
        Factored.
    reduced : ndarray, shape (m, n)
        cost - price.
    direction : callable
        Maps a right side (m, n) to dz and the change of the price, both two-dimensional.
    worst, total : callable
        Map measures of the blocks, shape (m, ...), to those that count for each block: maximum and
        sum over all blocks for coupled ones, the identity for separate ones.
    correctors : int
        How many of Gondzio's correctors to try.

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
        self.dual, self.change = direction(-reduced)
        self.primal = self.dual
        measures = blocks.affine(self.dual)
        self.ratios = measures[:, :2]
        primal, dual = self._lengths(self.ratios).T
        linear, quadratic = total(measures[:, 2]), total(measures[:, 3])
        left = gap + primal * linear - dual * (gap + linear) + primal * dual * quadratic
        self.target = gap / products * np.maximum(left / gap, 0.0) ** 3
        self._blend(blocks.aim_at(self.dual, self.target, self.residual), primal * dual)
        for _ in range(correctors):
            length = self._lengths(self.ratios)
            if length.min() > ENOUGH:
                break
            reach = np.minimum(1.0, length + REACH)
            right = blocks.correct(self.primal, self.dual, reach, self.target, self.residual)
            self._blend(right, np.zeros(len(blocks)))
            if (self._lengths(self.ratios) - length).sum(axis=1).max() < GAIN:
                break
        self._meet_unlisted_rows()

    def take(self):
        """Move the blocks, and let them list the rows that they came near."""
        self.blocks.advance(self.primal, self.dual, self.length)
        if len(self.found):
            self.blocks.grow(self.found, self.target)

    def _lengths(self, ratios, backoff=1.0) -> np.ndarray:
        """Turn largest relative decreases into the step lengths they allow, at most one."""
        return backoff / np.maximum(self.worst(ratios), backoff)

    def _blend(self, right, least):
        """Blend the best shares, at least `least` (m,), of the direction of a right side in."""
        blocks = self.blocks
        trial, change = self.direction(right)
        blend = least[:, None] + (1 - least[:, None]) * SHARES
        ratios = blocks.ratios(self.primal, self.dual, trial, blend)
        best = self.worst(ratios).argmin(axis=1)
        block = np.arange(len(blocks))
        self.ratios = np.stack([ratios[block, best[:, k], k] for k in (0, 1)], axis=1)
        primal, dual = blend[block, best[:, 0]], blend[block, best[:, 1]]
        self.primal = self.primal + primal[:, None] * (trial - self.primal)
        self.dual = self.dual + dual[:, None] * (trial - self.dual)
        self.change = self.change + dual[: len(change), None] * (change - self.change)
        blocks.accept(dual)

    def _meet_unlisted_rows(self):
        """Shorten the step where a row that is not listed would be violated."""
        self.found, ratio = self.blocks.scan(self.primal, self._lengths(self.ratios, BACKOFF))
        self.ratios[:, 0] = np.maximum(self.ratios[:, 0], ratio)
        self.length = self._lengths(self.ratios, BACKOFF)


def _block_sums(values, start) -> np.ndarray:
    """Sum the two columns of `values` over the pairs of each output."""
    return np.add.reduceat(values.sum(axis=1), start[:, 0])
