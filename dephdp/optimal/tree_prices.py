"""The dynamic programme on a tree: prices of outputs, and multipliers in closed form.

Among the columns that are private on a tree, the cheapest for weights w is found from the leaves
to the root: with F_i the cost of the subtree at i when its root has value one,

    F_i = w_i + sum over children c of min(E_c F_c, F_c / E_c),        E_c = exp(-epsilon length_c).

Where the first term is the smaller (F_c >= 0) the child takes the least value that its parent
allows; where the second is, the most. The dual of this programme has one multiplier an edge: F_c on
the row z_c >= E_c z_parent, or -F_c / E_c on the row z_parent >= E_c z_c. All reduced weights
w - A'f then vanish except the root's, which is F_root.
"""

from __future__ import annotations

import numba
import numpy as np

from dephdp.optimal.problem import Multipliers
from dephdp.optimal.trees import Tree

_SMALLEST_DECAY = 1e-290


def prices(weights, tree: Tree, decay, floor=0.0):
    """Return the cost of the cheapest column of each subtree, whose root has value one.

    Parameters
    ----------
    weights : ndarray, shape (m, nodes)
        One row an output: q_y - u on states, zero on auxiliary nodes.
    tree : Tree
    decay : ndarray, shape (nodes,)
        ``exp(-epsilon * tree.length)``.
    floor : float, optional
        Costs in [-floor, 0) are rounding: they stay where they are, since passing them on would
        divide them by the decay. So do negative costs below an edge whose decay underflows.

    Returns
    -------
    ndarray, shape (m, nodes)
        Column 0 holds the price of each output: its cheapest column with value one at the root.
    """
    costs = np.array(weights)
    _accumulate(costs, tree.parent, decay, floor)
    return costs


def tree_multipliers(costs, tree: Tree, decay, floor=0.0) -> Multipliers:
    """Return the multipliers that prove the prices, as rows between pairs of states.

    Parameters
    ----------
    costs : ndarray, shape (m, nodes)
        What `prices` returned, with the same decay and floor.
    tree : Tree
    decay : ndarray, shape (nodes,)
    floor : float, optional

    Returns
    -------
    Multipliers
        At most one row an edge and output.

    Notes
    -----
    Rows that end in an auxiliary node h are chained with those that leave it: a row i -> h of
    multiplier s and a row h -> j of multiplier t with E_hj t = s cancel at h and leave the row
    i -> j with multiplier t. What comes in equals what goes out since w_h = 0.
    """
    capacity = costs.shape[0] * max(tree.nodes - 1, 1)
    rows = [np.empty(capacity, dtype=np.int32) for _ in range(3)] + [np.empty(capacity)]
    count = _decompose(costs, tree.parent, tree.state, decay, floor, *rows)
    return Multipliers(*(row[:count] for row in rows))


@numba.njit(cache=True)
def _accumulate(costs, parent, decay, floor):
    for y in range(costs.shape[0]):
        for i in range(costs.shape[1] - 1, 0, -1):
            if costs[y, i] >= 0:
                costs[y, parent[i]] += costs[y, i] * decay[i]
            elif costs[y, i] < -floor and decay[i] > _SMALLEST_DECAY:
                costs[y, parent[i]] += costs[y, i] / decay[i]


@numba.njit(cache=True)
def _decompose(costs, parent, state, decay, floor, source, target, output, value):
    """Write the rows between states; return how many there are.

    Every state below an auxiliary node h waits there in one of two lists until its flow is matched:
    ``arriving`` (row state -> h, ``flow`` its multiplier) or ``leaving`` (row h -> state, ``flow``
    its multiplier times ``product``, the decay from h to the state).
    """
    nodes = costs.shape[1]
    arriving, leaving = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    after = np.empty(nodes, np.int64)
    flow, product = np.empty(nodes), np.empty(nodes)
    count = 0
    for y in range(costs.shape[0]):
        arriving[:] = -1
        leaving[:] = -1
        for i in range(nodes - 1, 0, -1):
            cost, p = costs[y, i], parent[i]
            if state[i] >= 0:
                if -floor <= cost <= 0 or (cost < 0 and decay[i] <= _SMALLEST_DECAY):
                    continue
                after[i], product[i] = -1, 1.0
                flow[i] = abs(cost)
                first_up, first_down = (i, -1) if cost < 0 else (-1, i)
            else:
                first_up, first_down = arriving[i], leaving[i]
                while first_up >= 0 and first_down >= 0:  # match what arrives with what leaves
                    moved = min(flow[first_up], flow[first_down])
                    source[count], target[count] = state[first_up], state[first_down]
                    output[count], value[count] = y, moved / product[first_down]
                    count += 1
                    flow[first_up] -= moved
                    flow[first_down] -= moved
                    if flow[first_up] <= 0:
                        first_up = after[first_up]
                    if flow[first_down] <= 0:
                        first_down = after[first_down]
                if cost >= 0:
                    first_up = -1  # only rounding can be left
                else:
                    first_down = -1
                if -floor <= cost <= 0 or (cost < 0 and decay[i] <= _SMALLEST_DECAY):
                    continue
            while first_up >= 0:  # pass the row state -> i on to state -> p
                k, first_up = first_up, after[first_up]
                flow[k] /= decay[i]
                if state[p] >= 0:
                    source[count], target[count] = state[k], state[p]
                    output[count], value[count] = y, flow[k]
                    count += 1
                else:
                    after[k], arriving[p] = arriving[p], k
            while first_down >= 0:  # pass the row i -> state on to p -> state
                k, first_down = first_down, after[first_down]
                if state[p] >= 0:
                    source[count], target[count] = state[p], state[k]
                    output[count], value[count] = y, flow[k] / product[k]
                    count += 1
                else:
                    flow[k] *= decay[i]
                    product[k] *= decay[i]
                    after[k], leaving[p] = leaving[p], k
    return count
