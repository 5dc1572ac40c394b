"""Figure 5: what a group's adequacy score says about the gain of an optimal mechanism.

Random groups of 15 states, whose losses are noise with a random share of entries replaced by the
distance: the larger the share, the higher the score. The paper's generator adds numbers between 0
and 1 to distances of up to 14. Two more take one thing away each: the difference of scale, and the
cost of a true report.
"""

import numpy as np

from book.experiments.experiment import Experiment
from dephdp import loss_curve, mse_likeness, optimal_mechanism, radial_fit

GENERATORS = {
    "as stated": "losses in [0, 1], some replaced by the distance",
    "one scale": "the distances halved and divided by their mean first",
    "one scale, truth free": "and no loss for a true report",
}
"""The generators, each with one change more than the one before."""

STATES, SIDE, EPSILON = 15, 10.0, 1.0
BLOCK, BLOCKS = 10, 50  # instances in a unit, units of a generator

NOISES = ("exponential", "calibrated", "tight")
FAMILIES = (*NOISES, *(f"{name}+remap" for name in NOISES))
"""The noise that the optimum is compared with, as `dephdp.loss_curve` names it."""


def draw_instance(generator, rng):
    """Draw distances and losses of one group.

    Parameters
    ----------
    generator : str
        A key of `GENERATORS`.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    distances, loss : ndarray, shape (15, 15)
        Euclidean distances of uniform points in a square of side 10, and losses. In the mean over
        pairs of different states, a distance on ``one scale`` is 1/2, as is a uniform loss.
    share : float
        Share of the losses that were replaced, uniform over 0, 1/225, ..., 1.
    """
    points = rng.uniform(0, SIDE, (STATES, 2))
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    loss = rng.random((STATES, STATES))
    count = rng.integers(loss.size + 1)
    replaced = rng.choice(loss.size, count, replace=False)
    value = distances
    if generator != "as stated":
        value = distances / (2 * distances[~np.eye(STATES, dtype=bool)].mean())
    loss.flat[replaced] = value.flat[replaced]
    if generator == "one scale, truth free":
        np.fill_diagonal(loss, 0.0)
    return distances, loss, count / loss.size


def score_and_gain(generator, block):
    """Return scores and expected losses of a block of instances, under the uniform prior.

    Parameters
    ----------
    generator : str
        A key of `GENERATORS`.
    block : int
        Seed.

    Returns
    -------
    list of dict
        Replaced share, scores, the mean of the losses; the certified optimum at ε = 1 and the
        losses of the noise of `FAMILIES`.
    """
    rng = np.random.default_rng([list(GENERATORS).index(generator), block])
    prior = np.full(STATES, 1 / STATES)
    rows = []
    for instance in range(BLOCK):
        distances, loss, share = draw_instance(generator, rng)
        best = optimal_mechanism(prior, loss, distances, EPSILON, tol=1e-4)
        noise = {
            family: float(loss_curve(prior, loss, distances, [EPSILON], family).losses[0])
            for family in FAMILIES
        }
        rows.append(
            {
                "instance": instance,
                "share": share,
                "mse": mse_likeness(loss, distances),
                "radial": radial_fit(loss, distances),
                "mean_loss": loss.mean(),
                "optimal": best.loss,
                "lower_bound": best.lower_bound,
                **noise,
            }
        )
    return rows


SCORE_AND_GAIN = Experiment(
    "score_and_gain",
    [{"generator": name, "block": block} for name in GENERATORS for block in range(BLOCKS)],
    score_and_gain,
    tolerance=2e-4,  # the optimum is found to within its gap
)
