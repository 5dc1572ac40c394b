"""Random channels, metrics and slow exact references that the tests share."""

import math

import numpy as np

from dephdp import Channel


def euclidean(points):
    """Distances between points, exactly symmetric."""
    points = np.asarray(points, dtype=float).reshape(len(points), -1)
    return np.sqrt(((points[:, None] - points[None, :]) ** 2).sum(axis=-1))


def random_channel(rng, states, outputs):
    """A Dirichlet channel on random points of the unit square."""
    return Channel(rng.dirichlet(np.ones(outputs), states), euclidean(rng.random((states, 2))))


def reference_level(matrix, distances):
    """The definition of the privacy level, entry by entry."""
    level = 0.0
    for x in range(len(matrix)):
        for z in range(len(matrix)):
            if x == z or math.isinf(distances[x][z]):
                continue
            for a, b in zip(matrix[x], matrix[z], strict=True):
                if a == b:
                    continue
                if a > 0 and (b == 0 or distances[x][z] == 0):
                    return math.inf
                if a > 0:
                    level = max(level, (math.log(a) - math.log(b)) / distances[x][z])
    return level
