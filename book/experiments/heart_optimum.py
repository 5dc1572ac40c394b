"""Case III with valid mechanisms: certified optima of its two large groups over the budget."""

import numpy as np

from book.cases.heart import EarlyHeartSample, HeartSample
from book.experiments.experiment import Experiment
from dephdp import optimal_mechanism

_CLASSES = {"thirteen": HeartSample, "twelve, early": EarlyHeartSample}
_BUDGETS = {
    ("thirteen", 1): (0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3, 3.5, 4),
    ("thirteen", 3): (0.5, 1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9, 10),
    ("twelve, early", 1): (0.5, 1, 2),
    ("twelve, early", 3): (0.5, 1, 2, 4),
}


def compute(records, seed, group, budget):
    """Return one row: the optimum of a group between a loss found and a proven bound."""
    sample = _CLASSES[records].draw(np.random.default_rng(seed))
    profile = sample.profiles[group - 1]
    solved = optimal_mechanism(
        profile.prior, profile.loss, profile.distances, float(budget), tol=0.02
    )
    return [
        {
            "loss": solved.loss,
            "lower_bound": solved.lower_bound,
            "level": solved.channel.privacy_level(),
        }
    ]


HEART_OPTIMUM = Experiment(
    "heart_optimum",
    [
        {"records": records, "seed": 1, "group": group, "budget": float(budget)}
        for (records, group), budgets in _BUDGETS.items()
        for budget in budgets
    ],
    compute,
    tolerance=0.05,  # two runs may end anywhere within the gap
    volatile=("level",),
)
"""The first and third group of one sample of each reading; the others have two states."""
