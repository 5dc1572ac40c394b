"""Case II, crowdsourcing on red wine, in the reading that comes closest to its baselines."""

from functools import cached_property, lru_cache

import numpy as np

from book.cases.sample import Sample
from dephdp import datasets
from dephdp.tasks import Crowdsourcing, wine_quality_scores

WINE_GROUPS = (
    (
        "fixed_acidity",
        "volatile_acidity",
        "citric_acid",
        "residual_sugar",
        "density",
        "pH",
        "alcohol",
    ),
    ("chlorides",),
    ("free_sulfur_dioxide", "total_sulfur_dioxide"),
    ("sulphates",),
)
"""The four groups of Case II."""

WINE_COEFFICIENTS = (1.00859, 0.991475, 0.736224, 1.00261)
"""Coefficients β_k of the groups' losses.

Not printed in the paper: they stand in a public repository under its title
(``multi-attribute-metric-differential-privacy`` of paopao128 on GitHub, commit ``25429e4e``). Table
2 of the paper says that the least linear coefficient is 0.986, which the third contradicts.
"""

WINE_THRESHOLDS = (1.0, 0.125, 0.15, 0.15)
"""Distances beyond which the same repository leaves out a group's privacy constraints."""


@lru_cache(maxsize=1)
def wine_records():
    """Return the red wines without their grade.

    Returns
    -------
    pandas.DataFrame
        1,599 rows and 11 columns of float64, as `dephdp.datasets.load_wine_red` describes them.
    """
    return datasets.load_wine_red().drop(columns="quality")


def wine_labels(domain, codes):
    """Return the task of Case II: five labels a wine, by 5 of 15 workers who never err.

    Parameters
    ----------
    domain : Domain
        Features of red wine.
    codes : array_like of int, shape (N, L)
        Level codes of the wines.

    Returns
    -------
    Crowdsourcing
        Its loss is 10⁴ Σ |label' - label| / Σ label' over all labels of all wines.
    """
    return Crowdsourcing(domain, codes, wine_quality_scores(domain), workers=15, votes=5)


class WineSample(Sample):
    """One sample of Case II in the reading that comes closest to its baselines.

    The metric, states and prior are those of `Sample`. The loss is that of `wine_labels` when one
    wine of the sample is replaced: the smallest and the largest score, between which labels are
    placed, are those of the table after the replacement.
    """

    groups = WINE_GROUPS
    coefficients = WINE_COEFFICIENTS

    population = staticmethod(wine_records)

    @classmethod
    def draw(cls, rng, size=150, own_scores=True):
        """Draw wines with replacement.

        Parameters
        ----------
        rng : numpy.random.Generator
            Source of randomness.
        size : int, optional
            How many.
        own_scores : bool, optional
            As in `Sample`.

        Returns
        -------
        WineSample
        """
        chosen = rng.integers(len(wine_records()), size=size)
        return cls(wine_records().iloc[np.sort(chosen)], own_scores)

    @cached_property
    def task(self):
        """The labelling task of the sample."""
        return wine_labels(self.domain, self.codes)
