"""What an even split of the budget loses against the best division, where noise is used throughout.

Figure 6 of the paper shows that groups lose differently much per unit of distance, and concludes
that an even split is inefficient. Here is by how much.
"""

import numpy as np

from book.cases.noise import noise_losses
from book.experiments.case_samples import CASES, draw_sample
from book.experiments.experiment import Experiment
from dephdp import allocate_budget, split_budget

SAMPLES = 10  # of each case study
EPSILONS = (1.0, 4.0, 10.0)
GRID = np.linspace(0, 10, 51)
FAMILIES = "exponential", "exponential+remap"


def even_split(case, sample, family):
    """Return the losses of the even split and of the best division for one sample.

    Parameters
    ----------
    case : str
        "I", "II" or "III".
    sample : int
        Seed.
    family : str
        Of noise, one of `FAMILIES`.

    Returns
    -------
    list of dict
        For each record budget and group: losses of the even split and of the best division on a
        grid of step 0.2, if that is better; what no division goes below; the group's budget in it.
    """
    drawn = draw_sample(case, sample)
    count, weights = len(drawn.profiles), np.array(drawn.coefficients)

    def losses(budgets):
        measured = [noise_losses(p, budgets)[FAMILIES.index(family)] for p in drawn.profiles]
        return np.minimum.accumulate(measured, axis=1)  # a smaller budget is allowed

    shares = np.array([split_budget(epsilon, count, 2)[0] for epsilon in EPSILONS])
    even, curves = weights @ losses(shares), weights[:, None] * losses(GRID)
    rows = []
    for epsilon, share, loss in zip(EPSILONS, shares, even, strict=True):
        best = allocate_budget(GRID, curves, epsilon, 2)
        budgets = best.budgets if best.loss < loss else np.full(count, share)
        for group, budget in enumerate(budgets, start=1):
            rows.append(
                {
                    "epsilon": epsilon,
                    "group": group,
                    "even": loss,
                    "best": min(best.loss, loss),
                    "lower_bound": best.lower_bound,
                    "budget": budget,
                }
            )
    return rows


EVEN_SPLIT = Experiment(
    "even_split",
    [
        {"case": case, "sample": sample, "family": family}
        for case in CASES
        for sample in range(SAMPLES)
        for family in FAMILIES
    ],
    even_split,
)
