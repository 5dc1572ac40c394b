"""Scores of the case studies' groups in their variants, and Figure 6: losses over distances."""

import numpy as np

from book.experiments.case_samples import CASES, draw_sample
from book.experiments.experiment import Experiment
from book.experiments.score_stability import SCORES

SAMPLES = 10  # of each case study


def group_scores(case, sample):
    """Return scores and loss per distance of every group of one sample.

    Parameters
    ----------
    case : str
        "I", "II" or "III".
    sample : int
        Seed.

    Returns
    -------
    list of dict
        For each group: states; both scores as in the paper, with the diagonal, and with the pairs
        weighted by the shares of the states in the sample; mean of c_k / d_k over pairs of
        different states; and the standard deviation of the losses of these pairs.
    """
    drawn = draw_sample(case, sample)
    rows = []
    for k, profile in enumerate(drawn.profiles, start=1):
        loss, distances = profile.loss, profile.distances
        off = ~np.eye(len(loss), dtype=bool)
        row = {"group": k, "states": len(loss)}
        for name, score in SCORES.items():
            row[name] = score(loss, distances)
            row[f"{name}_diagonal"] = score(loss, distances, diagonal=True)
            row[f"{name}_prior"] = score(loss, distances, prior=profile.group.prior(drawn.codes))
        row["loss_per_distance"] = np.mean(loss[off] / distances[off])
        row["spread"] = loss[off].std()
        rows.append(row)
    return rows


GROUP_SCORES = Experiment(
    "group_scores",
    [{"case": case, "sample": sample} for case in CASES for sample in range(SAMPLES)],
    group_scores,
)
