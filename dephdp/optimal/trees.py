"""Tree metrics: recognising them, and the tree whose paths they measure.

A metric is a tree metric if the states can be placed on a weighted tree, possibly with auxiliary
nodes, so that distances are path lengths. Points on a line are a path, the discrete metric is a
star around one auxiliary node, a taxonomy is a tree whose states are the leaves. Privacy along the
edges then implies privacy between all pairs, and conversely: a column that is private between the
states extends to the auxiliary nodes, as a Lipschitz function extends to any larger metric space.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

#: Path lengths may differ from the distances by this much, relatively; the engine divides its
#: budget by the largest stretch, so that privacy never depends on it.
TOLERANCE = 1e-9
_BLOCK = 16  # nodes at most in a range: they are eliminated together
_CONTRACT = 1e-11  # edges shorter than this fraction of the diameter are rounding


@dataclass(frozen=True, eq=False)
class Tree:
    """A weighted tree that carries the states; parents come before their children.

    Parameters
    ----------
    parent : ndarray of int, shape (nodes,)
        Parent of each node; -1 for the root, which is node 0. The order is depth first.
    length : ndarray, shape (nodes,)
        Length of the edge to the parent; 0 for the root.
    state : ndarray of int, shape (nodes,)
        State carried by the node, -1 for an auxiliary node.
    stretch : float, optional
        Largest ratio of a path length to the distance it stands for: one up to rounding.
    """

    parent: np.ndarray
    length: np.ndarray
    state: np.ndarray
    stretch: float = 1.0

    @property
    def nodes(self) -> int:
        """Number of nodes, auxiliary ones included."""
        return len(self.parent)

    @cached_property
    def carriers(self) -> np.ndarray:
        """Nodes that carry a state, in the order of the tree."""
        return np.flatnonzero(self.state >= 0)

    @cached_property
    def blocks(self) -> list:
        """Ranges (start, stop, anchor) of nodes whose parents outside are all the anchor."""
        blocks, start, anchor = [], 0, -1
        for node in range(1, self.nodes):
            inside = start <= self.parent[node] or self.parent[node] == anchor
            if not inside or node - start == _BLOCK:
                blocks.append((start, node, anchor))
                start, anchor = node, int(self.parent[node])
        blocks.append((start, self.nodes, anchor))
        return blocks

    def distances(self) -> np.ndarray:
        """Return the path lengths between the states, shape (n, n)."""
        between = np.zeros((self.nodes, self.nodes))
        for node in range(1, self.nodes):
            between[node, :node] = between[self.parent[node], :node] + self.length[node]
            between[:node, node] = between[node, :node]
        carriers = self.carriers
        states = self.state[carriers]
        paths = np.empty((len(states), len(states)))
        paths[np.ix_(states, states)] = between[np.ix_(carriers, carriers)]
        return paths

    def spread(self, values) -> np.ndarray:
        """Lay out values per state, shape (..., n), over the nodes: zero on auxiliary nodes."""
        values = np.asarray(values)
        nodes = np.zeros((*values.shape[:-1], self.nodes))
        carriers = self.carriers
        nodes[..., carriers] = values[..., self.state[carriers]]
        return nodes

    def gather(self, values) -> np.ndarray:
        """Return values per node, shape (..., nodes), as values per state."""
        carriers = self.carriers
        states = np.empty((*values.shape[:-1], len(carriers)))
        states[..., self.state[carriers]] = values[..., carriers]
        return states


def tree_of(distances) -> Tree | None:
    """Return the tree whose path lengths are these distances, or None if there is none.

    Parameters
    ----------
    distances : ndarray, shape (n, n)
        Symmetric, finite, positive off the diagonal.

    Returns
    -------
    Tree or None
        Its path lengths equal the distances up to `TOLERANCE`.

    Notes
    -----
    Farris' transform: from a root state r, the paths to i and j part at depth
    (d(r, i) + d(r, j) - d(i, j)) / 2, and distances are a tree metric exactly if these depths are
    the merging depths of a single-linkage dendrogram. Edges of no length are contracted, which
    turns a dendrogram's inner nodes into states where the tree runs through them. The result is
    checked against every distance, so rounding can only make a tree go unrecognised.
    """
    n = len(distances)
    if n == 1:
        return Tree(np.array([-1]), np.zeros(1), np.zeros(1, dtype=np.int64))
    depth = distances[int(np.argmax(distances[0]))]
    deepest = depth.max()
    parting = (depth[:, None] + depth[None, :] - distances) / 2
    np.fill_diagonal(parting, deepest)
    merges = linkage(squareform(deepest - parting, checks=False), "single")
    depths = np.concatenate([depth, deepest - merges[:, 2]])
    parent = np.empty(len(depths), dtype=np.int64)
    parent[merges[:, :2].astype(np.int64).ravel()] = np.repeat(np.arange(n, len(depths)), 2)
    parent[-1] = -1
    contracted = _contract(parent, depths, n, _CONTRACT * deepest)
    if contracted is None:
        return None
    tree = _depth_first(*contracted, distances)
    paths = tree.distances()
    if (np.abs(paths - distances) > TOLERANCE * distances).any():
        return None
    np.fill_diagonal(paths, 0)
    stretch = (paths / (distances + np.eye(n))).max(initial=1.0)
    return replace(tree, stretch=float(stretch))


def _contract(parent, depths, states, shortest):
    """Contract edges up to ``shortest``; None if two states would fall together.

    Return the parents, depths and states of the remaining nodes; node 0 is the root.
    """
    nodes = len(parent)
    group = np.arange(nodes)
    for node in range(nodes - 2, -1, -1):  # parents have the larger numbers
        if depths[node] - depths[parent[node]] <= shortest:
            group[node] = group[parent[node]]
    carried = np.full(nodes, -1)
    for state in range(states):
        if carried[group[state]] >= 0:
            return None
        carried[group[state]] = state
    kept = np.flatnonzero(group == np.arange(nodes))[::-1]
    number = np.empty(nodes, dtype=np.int64)
    number[kept] = np.arange(len(kept))
    state = carried[kept]
    depth = np.where(state >= 0, depths[state], depths[kept])
    up = np.array([-1, *(number[group[parent[node]]] for node in kept[1:])])
    return up, depth, state


def _depth_first(parent, depth, state, distances):
    """Return the tree in depth-first order, smaller subtrees first: long paths stay together."""
    nodes = len(parent)
    children = [[] for _ in range(nodes)]
    size = np.ones(nodes, dtype=np.int64)
    for node in range(nodes - 1, 0, -1):
        children[parent[node]].append(node)
        size[parent[node]] += size[node]
    order, stack = [], [0]
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(sorted(children[node], key=lambda child: (-size[child], child)))
    number = np.empty(nodes, dtype=np.int64)
    number[order] = np.arange(nodes)
    state = state[order]
    up = np.where(parent[order] >= 0, number[parent[order]], -1)
    length = depth[order] - depth[order][up]
    length[0] = 0
    between = (state >= 0) & (state[up] >= 0) & (up >= 0)  # take these from the source
    length[between] = distances[state[between], state[up[between]]]
    return Tree(up, length, state)
