"""Case I, frequency estimation on Adult, in the reading that reproduces its baselines."""

from functools import cached_property, lru_cache

import numpy as np
import pandas as pd

from book.cases.sample import Sample
from dephdp import datasets
from dephdp.curves import partition_bound
from dephdp.tasks import FrequencyEstimation

CENSUS_GROUPS = (
    ("age", "education", "race", "capital_gain", "hours_per_week", "income"),
    ("workclass",),
    ("fnlwgt", "relationship", "sex", "capital_loss", "native_country"),
    ("education_num",),
    ("marital_status",),
    ("occupation",),
)
"""The six groups of Case I, in the order of the published sizes."""


@lru_cache(maxsize=1)
def census_records():
    """Return the complete training records of Adult as numbers: values, and ranks of labels.

    Returns
    -------
    pandas.DataFrame
        30,162 rows and 15 columns of float64. A label becomes its rank in alphabetical order.
    """
    adult = datasets.load_adult()
    train = adult[adult["split"] == "train"].drop(columns="split").dropna()
    return train.apply(_numbers).reset_index(drop=True)


def _numbers(column):
    if not isinstance(column.dtype, pd.CategoricalDtype):
        return column.astype(float)
    labels = sorted(column.unique())
    return column.astype(str).map({label: float(rank) for rank, label in enumerate(labels)})


class CensusSample(Sample):
    """One sample of Case I in the reading that reproduces its baselines.

    The metric, states and prior are those of `Sample`. The loss is the squared change of the
    marginal frequencies, times 10⁵, when one record of the sample is replaced.
    """

    groups = CENSUS_GROUPS
    coefficients = (1.0,) * len(CENSUS_GROUPS)  # the loss is a sum over the attributes

    population = staticmethod(census_records)

    @classmethod
    def draw(cls, rng, size=300, own_scores=False):
        """Draw different records at random.

        Parameters
        ----------
        rng : numpy.random.Generator
            Source of randomness.
        size : int, optional
            How many.
        own_scores : bool, optional
            As in the class.

        Returns
        -------
        CensusSample
        """
        chosen = rng.choice(len(census_records()), size=size, replace=False)
        return cls(census_records().iloc[np.sort(chosen)], own_scores)

    @cached_property
    def task(self):
        """The frequency estimation task of the sample."""
        return FrequencyEstimation(self.domain, self.codes)


def bound_for_any_output(profile, unit, epsilon, *, size=12, tol=1e-2):
    """Return a lower bound on a group's Hamming loss that no choice of the outputs escapes.

    Parameters
    ----------
    profile : GroupProfile
        The group, whose loss is ``unit`` for each attribute that is reported wrongly.
    unit : float
        The loss of one wrong attribute.
    epsilon : float
        Budget of the group.
    size, tol
        As in `dephdp.curves.partition_bound`.

    Returns
    -------
    float
        No mechanism private at the budget has a smaller loss, whatever combinations of values it
        reports, in the sample or not.

    Notes
    -----
    The report of one attribute is a function of the whole report, so its channel is private for
    the same distances. Its loss is at least that of the best channel for this attribute alone, and
    the losses of the attributes add up.
    """
    total = 0.0
    for column in profile.group.codes.T:
        wrong = unit * (column[:, None] != np.unique(column)).astype(float)
        total += partition_bound(
            profile.prior, wrong, profile.distances, epsilon, size=size, tol=tol
        )
    return total
