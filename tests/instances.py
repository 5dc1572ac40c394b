"""Small random instances of the optimal-mechanism problem, of every kind of metric."""

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from dephdp.metric import combine_distances, shortest_path_closure
from dephdp.optimal.problem import Problem
from dephdp.optimal.trees import Tree

KINDS = ("line", "tree", "hidden", "discrete", "grid", "product", "random")


def line(positions):
    positions = np.asarray(positions, dtype=float)
    return np.abs(positions[:, None] - positions[None, :])


def discrete(states):
    return 1.0 - np.eye(states)


def grid(width, norm):
    points = np.indices((width, width)).reshape(2, -1).T
    return np.linalg.norm(points[:, None] - points[None], ord=norm, axis=2)


def tree(rng, states, auxiliary=0):
    """Draw a tree whose states are some of its nodes, in no particular order."""
    nodes = states + auxiliary
    parent = np.array([-1, *(rng.integers(max(0, k - 4), k) for k in range(1, nodes))])
    length = np.concatenate([[0], rng.uniform(0.05, 1, nodes - 1)])
    order = rng.permutation(nodes)
    return Tree(parent, length, np.where(order < states, order, -1)).distances()


def metric(rng, kind, states):
    if kind == "line":
        return line(rng.permutation(np.cumsum(rng.uniform(0.02, 1, states))))
    if kind == "tree":
        return tree(rng, states)
    if kind == "hidden":
        return tree(rng, states, auxiliary=int(rng.integers(1, 5)))
    if kind == "discrete":
        return discrete(states) * rng.uniform(0.3, 2)
    if kind == "grid":
        points = rng.permutation(np.indices((3, 3)).reshape(2, -1).T)[:states].astype(float)
        return np.linalg.norm(points[:, None] - points[None], ord=rng.choice([1, 2]), axis=2)
    if kind == "product":
        p = rng.choice([1.0, 2.0, np.inf])
        parts = [discrete(2), line(np.arange(3) / 2)] if states < 8 else [discrete(2), discrete(4)]
        return combine_distances(parts, p)
    weights = np.triu(rng.uniform(0.1, 1, (states, states)), 1)
    return shortest_path_closure(weights + weights.T)


def problem(rng, kind, epsilon, states=None, outputs=None):
    distances = metric(rng, kind, states or int(rng.integers(1, 9)))
    n = len(distances)
    m = outputs or int(rng.integers(1, 9))
    loss = rng.random((n, m)) + (line(range(n)) if n == m else 0)
    if rng.random() < 0.3:  # losses of either sign
        loss = loss - 0.5
    prior = rng.dirichlet(np.ones(n))
    if n > 1 and rng.random() < 0.3:
        prior[rng.integers(n)] = 0
        prior /= prior.sum()
    return Problem(prior, loss, distances, epsilon)


def all_pairs_optimum(problem):
    """Return the least loss, by HiGHS from the linear program with the rows of all pairs."""
    n, m = problem.loss.shape
    i, j = np.nonzero(np.isfinite(problem.distances) & ~np.eye(n, dtype=bool))
    pair = np.arange(len(i))
    decay = np.exp(-problem.epsilon * problem.distances[i, j])
    rows = sparse.csr_array((decay, (pair, i)), (len(i), n))
    rows -= sparse.csr_array((np.ones(len(i)), (pair, j)), (len(i), n))
    answer = linprog(
        problem.weighted_loss.ravel(),
        A_ub=sparse.kron(rows, sparse.eye_array(m), format="csr"),
        b_ub=np.zeros(len(i) * m),
        A_eq=sparse.kron(sparse.eye_array(n), np.ones((1, m)), format="csr"),
        b_eq=np.ones(n),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert answer.status == 0
    return answer.fun
