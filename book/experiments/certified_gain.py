"""What an optimised mechanism gains in each group of the case studies, between proven bounds."""

import numpy as np

from book.experiments.case_samples import CASES, draw_sample
from book.experiments.experiment import Experiment
from dephdp import loss_curve, optimal_mechanism, partition_bound, split_budget

SAMPLES = 1  # of each case study
EPSILONS = (1.0, 4.0, 10.0)
NOISES = "exponential", "exponential+remap", "calibrated+remap", "tight+remap"

_SOLVED = 150  # states of the largest group that is optimised
_GAP, _SECONDS = 0.02, 20.0  # where the solver may stop
_PART = 32  # states in a part of a larger group


def certified_gain(case, sample, group, epsilon):
    """Return losses of noise and bounds of the optimum for one group at its even share.

    Parameters
    ----------
    case : str
        "I", "II" or "III".
    sample : int
        Seed.
    group : int
        Counted from one.
    epsilon : float
        Budget of the record.

    Returns
    -------
    list of dict
        One row: states; the losses of `NOISES`; the least loss found among them and, up to 150
        states, by optimising; and a lower bound of every private mechanism.
    """
    drawn = draw_sample(case, sample)
    profile = drawn.profiles[group - 1]
    arrays = profile.prior, profile.loss, profile.distances
    share = split_budget(epsilon, len(drawn.groups), 2)[0]
    noise = {name: float(loss_curve(*arrays, [share], name).losses[0]) for name in NOISES}
    found = min(noise.values())
    if profile.group.size <= _SOLVED:
        best = optimal_mechanism(*arrays, share, tol=_GAP, time_limit=_SECONDS)
        found, bound = min(found, best.loss), best.lower_bound
    else:
        bound = partition_bound(*arrays, share, size=_PART)
    return [{"states": profile.group.size, **noise, "found": found, "lower_bound": bound}]


CERTIFIED_GAIN = Experiment(
    "certified_gain",
    [
        {"case": case, "sample": sample, "group": group, "epsilon": epsilon}
        for case, study in CASES.items()
        for sample in range(SAMPLES)
        for group in np.arange(1, len(study.groups) + 1).tolist()
        for epsilon in EPSILONS
    ],
    certified_gain,
    tolerance=_GAP,  # bounds depend on where the solver stops
)
