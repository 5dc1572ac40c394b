"""The linear algebra of privacy rows on a tree, one block an output.

Edge i joins node i >= 1 to its parent p and carries two rows, with E = exp(-epsilon length_i):

    row 2i - 2:  z_i - E z_p >= 0,        row 2i - 1:  z_p - E z_i >= 0.

Newton's method needs, for each output y, the matrix H_y = A' diag(f_y / s_y) A. It has the pattern
of the tree, so that eliminating the nodes from the leaves to the root fills nothing in: solving
takes O(nodes), and so does each row of the inverse. No step of the elimination subtracts, hence all
factors and the entries of the inverse are accurate to a few units in their last place, however
close the slacks s are to zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np

from dephdp.optimal.trees import Tree

# Sums may be reordered and fused, and divisions by zero give infinities: loops can be vectorised.
compiled = numba.njit(
    cache=True, error_model="numpy", fastmath={"contract", "arcp", "nsz", "reassoc"}
)


@dataclass(frozen=True, eq=False)
class TreeRows:
    """The privacy rows along the edges of a tree.

    Parameters
    ----------
    tree : Tree
    exponent : ndarray, shape (nodes,)
        Positive exponent of each edge to the parent, about ``epsilon * tree.length``.
    """

    tree: Tree
    exponent: np.ndarray

    @cached_property
    def decay(self) -> np.ndarray:
        """``exp(-exponent)`` of each edge."""
        return np.exp(-self.exponent)

    def slacks(self, columns, out=None) -> np.ndarray:
        """Return ``A z`` for each row z of ``columns``, shape (m, nodes) -> (m, rows)."""
        slack = np.empty((len(columns), 2 * (self.tree.nodes - 1))) if out is None else out
        _forward(columns, self.tree.parent, self.decay, slack)
        return slack

    def adjoint(self, flows) -> np.ndarray:
        """Return ``A' f`` for each row f of ``flows``, shape (m, rows) -> (m, nodes)."""
        total = np.zeros((len(flows), self.tree.nodes))
        _adjoint(flows, self.tree.parent, self.decay, total)
        return total

    def positive_flows(self, weights) -> np.ndarray:
        """Return f > 0 with ``A' f = weights`` for each positive row of ``weights``.

        With f = g_source / (1 - E) on the row that points away from each source, A' f = K g for a
        tree-shaped M-matrix K, whose inverse is positive.
        """
        tree, decay = self.tree, self.decay
        up = tree.parent[1:]
        strength = np.zeros(tree.nodes)
        strength[1:] = -1 / np.expm1(-self.exponent[1:])
        pivots, ratios = strength.copy(), np.zeros(tree.nodes)
        for i in range(tree.nodes - 1, 0, -1):
            ratios[i] = decay[i] * strength[i] / pivots[i]
            pivots[tree.parent[i]] += strength[i] * (1 - decay[i] * ratios[i])
        shape = weights.shape
        factors = Factors(tree, np.broadcast_to(pivots, shape), np.broadcast_to(ratios, shape))
        sources = factors.solve(np.array(weights))
        flows = np.empty((len(weights), 2 * (tree.nodes - 1)))
        flows[:, 0::2] = sources[:, 1:] * strength[1:]
        flows[:, 1::2] = sources[:, up] * strength[1:]
        return flows

    def factors(self, flows, slacks) -> Factors:
        """Return the factors of ``H_y = A' diag(f_y / s_y) A`` for each output."""
        pivots = np.zeros((len(flows), self.tree.nodes))
        ratios = np.zeros_like(pivots)
        gaps = np.expm1(-2 * self.exponent) ** 2
        _eliminate(flows, slacks, self.tree.parent, self.decay, gaps, pivots, ratios)
        return Factors(self.tree, pivots, ratios)


@dataclass(frozen=True, eq=False)
class Factors:
    """Elimination of tree-shaped M-matrices, leaves first.

    Parameters
    ----------
    tree : Tree
    pivots : ndarray, shape (m, nodes)
        Diagonal entry of each node when its turn comes.
    ratios : ndarray, shape (m, nodes)
        Minus the entry towards the parent, divided by the pivot: positive.
    """

    tree: Tree
    pivots: np.ndarray
    ratios: np.ndarray

    def solve(self, right) -> np.ndarray:
        """Overwrite each row of ``right``, shape (m, nodes), by ``H_y^-1 right_y``; return it."""
        _solve(self.pivots, self.ratios, self.tree.parent, right)
        return right

    def sum_of_solutions(self, right) -> np.ndarray:
        """Return ``sum_y H_y^-1 right_y``, shape (nodes,)."""
        total = np.zeros(self.tree.nodes)
        _sum_of_solutions(self.pivots, self.ratios, self.tree.parent, right, total)
        return total

    def sum_of_inverses(self) -> np.ndarray:
        """Return ``sum_y H_y^-1``, shape (nodes, nodes), lower triangle.

        Notes
        -----
        Row i of an inverse is, up to node i, ``ratio_i`` times the row of its parent. Nodes are
        taken in blocks whose paths leave through one anchor, so that a block's rows are a matrix
        product of the path products C with the anchors' rows.
        """
        parent, nodes = self.tree.parent, self.tree.nodes
        total = np.zeros((nodes, nodes))
        blocks = self.tree.blocks
        last_use = {anchor: start for start, _, anchor in blocks}
        rows = {}  # inverse rows of the nodes that are still to serve as anchors
        for start, stop, anchor in blocks:
            block = slice(start, stop)
            if anchor < 0:
                at_anchor = np.zeros(len(self.pivots))
            else:
                at_anchor = np.ascontiguousarray(rows[anchor][:, anchor])
            products, within = _within_block(
                self.pivots, self.ratios, parent, start, stop, at_anchor, total
            )
            if anchor >= 0:
                _add_products(total[block], products, rows[anchor], start)
                for node, row in rows.items():
                    if node != anchor:
                        row[:, block] = products * row[:, [anchor]]
                rows[anchor][:, block] = products * at_anchor[:, None]
            for node in range(start, stop):
                if node in last_use:
                    row = np.empty(self.pivots.shape)
                    if anchor >= 0:
                        row[:, :start] = products[:, [node - start]] * rows[anchor][:, :start]
                    row[:, block] = within[:, node - start]
                    rows[node] = row
            for node in [node for node in rows if last_use[node] <= start]:
                del rows[node]
        return total


@compiled
def _forward(columns, parent, decay, slack):
    for y in range(columns.shape[0]):
        for i in range(1, columns.shape[1]):
            here, above = columns[y, i], columns[y, parent[i]]
            slack[y, 2 * i - 2] = here - decay[i] * above
            slack[y, 2 * i - 1] = above - decay[i] * here


@compiled
def _adjoint(flows, parent, decay, total):
    for y in range(flows.shape[0]):
        for i in range(1, total.shape[1]):
            down, up = flows[y, 2 * i - 2], flows[y, 2 * i - 1]
            total[y, i] += down - decay[i] * up
            total[y, parent[i]] += up - decay[i] * down


@compiled
def _eliminate(flows, slacks, parent, decay, gaps, pivots, ratios):
    """Factor each H_y; ``gaps`` is (1 - E^2)^2.

    With a, b the weights f / s of an edge's two rows and r what the children left at node i,
    the pivot is r + a + E^2 b and the parent receives
    (E^2 a + b) - E^2 (a + b)^2 / pivot = ((E^2 a + b) r + a b (1 - E^2)^2) / pivot.
    """
    for y in range(flows.shape[0]):
        for i in range(pivots.shape[1] - 1, 0, -1):
            a = flows[y, 2 * i - 2] / slacks[y, 2 * i - 2]
            b = flows[y, 2 * i - 1] / slacks[y, 2 * i - 1]
            e, rest = decay[i], pivots[y, i]
            inverse = 1 / (rest + a + e * e * b)
            pivots[y, i] = rest + a + e * e * b
            ratios[y, i] = e * (a + b) * inverse
            pivots[y, parent[i]] += ((e * e * a + b) * rest + a * b * gaps[i]) * inverse


@compiled
def _solve_one(pivots, ratios, parent, x):
    nodes = len(x)
    for i in range(nodes - 1, 0, -1):
        x[parent[i]] += ratios[i] * x[i]
        x[i] /= pivots[i]
    x[0] /= pivots[0]
    for i in range(1, nodes):
        x[i] += ratios[i] * x[parent[i]]


@compiled
def _solve(pivots, ratios, parent, solution):
    for y in range(solution.shape[0]):
        _solve_one(pivots[y], ratios[y], parent, solution[y])


@compiled
def _sum_of_solutions(pivots, ratios, parent, right, total):
    solution = np.empty(right.shape[1])
    for y in range(right.shape[0]):
        for i in range(len(solution)):
            solution[i] = right[y, i]
        _solve_one(pivots[y], ratios[y], parent, solution)
        for i in range(len(solution)):
            total[i] += solution[i]


@compiled
def _add_products(total, products, rows, stop):
    """Add products' @ rows[:, :stop] to ``total``, four outputs at a time.

    A threaded matrix product is no faster at these sizes, and slow where cores are shared.
    """
    outputs, size = products.shape
    y = 0
    while y + 3 < outputs:
        r0, r1, r2, r3 = rows[y][:stop], rows[y + 1][:stop], rows[y + 2][:stop], rows[y + 3][:stop]
        i = 0
        while i + 1 < size:  # two rows at a time
            here, below = total[i][:stop], total[i + 1][:stop]
            a0, a1, a2, a3 = (
                products[y, i],
                products[y + 1, i],
                products[y + 2, i],
                products[y + 3, i],
            )
            b0, b1 = products[y, i + 1], products[y + 1, i + 1]
            b2, b3 = products[y + 2, i + 1], products[y + 3, i + 1]
            for j in range(stop):
                c0, c1, c2, c3 = r0[j], r1[j], r2[j], r3[j]
                here[j] += a0 * c0 + a1 * c1 + a2 * c2 + a3 * c3
                below[j] += b0 * c0 + b1 * c1 + b2 * c2 + b3 * c3
            i += 2
        if i < size:
            for k in range(y, y + 4):
                for j in range(stop):
                    total[i, j] += products[k, i] * rows[k, j]
        y += 4
    for k in range(y, outputs):
        for i in range(size):
            for j in range(stop):
                total[i, j] += products[k, i] * rows[k, j]


@compiled
def _within_block(pivots, ratios, parent, start, stop, at_anchor, total):
    """Return path products to the anchor and inverses within a block; add those to ``total``."""
    outputs, size = pivots.shape[0], stop - start
    products = np.empty((outputs, size))
    within = np.empty((outputs, size, size))
    for y in range(outputs):
        for i in range(size):
            ratio, p = ratios[y, start + i], parent[start + i] - start
            if p >= 0:
                products[y, i] = ratio * products[y, p]
                for j in range(i):
                    within[y, i, j] = ratio * within[y, p, j]
                within[y, i, i] = 1 / pivots[y, start + i] + ratio * within[y, i, p]
            else:  # the parent is the anchor, or there is none
                products[y, i] = ratio
                for j in range(i):
                    within[y, i, j] = ratio * products[y, j] * at_anchor[y]
                within[y, i, i] = 1 / pivots[y, start + i] + ratio * ratio * at_anchor[y]
            for j in range(i):
                within[y, j, i] = within[y, i, j]
            for j in range(i + 1):
                total[start + i, start + j] += within[y, i, j]
    return products, within
