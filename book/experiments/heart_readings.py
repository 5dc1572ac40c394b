"""Case III in every reading of its third group: how far the baselines are from the printed ones."""

from itertools import combinations

import numpy as np

from book.cases.heart import (
    HEART_ATTRIBUTES,
    TWELVE_ATTRIBUTES,
    EarlyHeartSample,
    HeartSample,
    heart_groups,
)
from book.cases.noise import noise_losses
from book.experiments.experiment import Experiment
from book.published import published
from dephdp import allocate_budget, split_budget
from dephdp.adequacy import mse_likeness, radial_fit

_SAMPLES = 10
_EPSILONS = np.arange(1, 11)
_GRID = np.linspace(0, 10, 41)
_METHODS = ("SPL+DPN", "SPL+RMP", "ALC+DPN", "ALC+RMP")
_CLASSES = {"thirteen": HeartSample, "twelve, early": EarlyHeartSample}


def baselines(profiles):
    """Return the losses of the four baselines at ε = 1, ..., 10.

    Parameters
    ----------
    profiles : sequence of GroupProfile
        The groups.

    Returns
    -------
    ndarray, shape (4, 10)
        SPL+DPN, SPL+RMP, ALC+DPN and ALC+RMP; ALC is the best division on a grid of step 1/4.
    """
    shares = [split_budget(epsilon, len(profiles), 2)[0] for epsilon in _EPSILONS]
    even = sum(noise_losses(p, shares) for p in profiles)
    curves = np.minimum.accumulate([noise_losses(p, _GRID) for p in profiles], axis=2)
    best = [
        [allocate_budget(_GRID, curves[:, k], epsilon, 2).loss for epsilon in _EPSILONS]
        for k in range(2)
    ]
    return np.concatenate([even, best])


def printed_baselines():
    """Return the rows of Table 1 that `baselines` computes, shape (4, 10)."""
    table = published("table1").query("case == 'III'")
    return table.pivot(index="method", columns="epsilon", values="loss").loc[list(_METHODS)]


def compute(records, third, seed):
    """Return one row: the baselines' largest differences, and the scores of the large groups."""
    rng = np.random.default_rng(seed)
    sample_class = _CLASSES[records]
    losses, scores = [], []
    for _ in range(_SAMPLES):
        sample = sample_class.draw(rng)
        groups = heart_groups(third.split("+"), tuple(sample.records.columns))
        profiles = [sample.profile(names) for names in groups]
        losses.append(baselines(profiles))
        scores.append(
            [
                [score(p.loss, p.distances) for score in (mse_likeness, radial_fit)]
                for p in (profiles[0], profiles[2])
            ]
        )
    away = np.mean(losses, axis=0) / printed_baselines().to_numpy() - 1
    worst = np.take_along_axis(away, np.abs(away).argmax(axis=1)[:, None], axis=1)[:, 0]
    mse, radial = np.mean(scores, axis=(0, 1))
    row = {method: float(value) for method, value in zip(_METHODS, worst, strict=True)}
    states = {"states_1": profiles[0].group.size, "states_3": profiles[2].group.size}
    return [{**states, **row, "mse": float(mse), "radial": float(radial)}]


def _thirds(attributes):
    free = [name for name in attributes if name not in ("sex", "fbs")]
    return ["+".join(names) for size in (1, 2) for names in combinations(free, size)]


HEART_READINGS = Experiment(
    "heart_readings",
    [
        {"records": records, "third": third, "seed": 31}
        for records, attributes in (
            ("thirteen", HEART_ATTRIBUTES),
            ("twelve, early", TWELVE_ATTRIBUTES),
        )
        for third in _thirds(attributes)
    ],
    compute,
)
"""All third groups of one or two attributes, in both readings of the records."""
