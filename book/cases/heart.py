"""Case III, entropy estimation on heart disease, in the reading closest to its baselines."""

from functools import cached_property, lru_cache

import numpy as np
import pandas as pd

from book.cases.sample import Sample
from dephdp import datasets
from dephdp.tasks import EntropyEstimation

HEART_ATTRIBUTES = (
    "age",
    "sex",
    "cp",
    "trestbps",
    "chol",
    "fbs",
    "restecg",
    "thalch",
    "exang",
    "oldpeak",
    "slope",
    "ca",
    "thal",
)
"""The thirteen attributes of Case III, in the order of the file."""

TWELVE_ATTRIBUTES = tuple(name for name in HEART_ATTRIBUTES if name != "ca")
"""The attributes without the number of coloured vessels, which most records lack."""

_NUMERIC = {"age", "trestbps", "chol", "thalch", "oldpeak", "ca"}
_WEIGHTS = (0.3, 0.4, 0.3)  # of marginal entropies, joint entropy and total correlation


@lru_cache(maxsize=2)
def heart_records(attributes=HEART_ATTRIBUTES):
    """Return the heart disease records with all their numeric attributes, as numbers.

    Parameters
    ----------
    attributes : tuple of str, optional
        Attributes to keep.

    Returns
    -------
    pandas.DataFrame
        Columns of float64 in the order of the attributes: 308 rows with all thirteen, 827 with
        `TWELVE_ATTRIBUTES`. A label becomes its rank in alphabetical order, a missing one comes
        first; a missing ``fbs`` or ``exang`` is taken for false.
    """
    numeric = [name for name in attributes if name in _NUMERIC]
    hearts = datasets.load_heart_disease().dropna(subset=numeric)
    return hearts[list(attributes)].apply(_numbers).reset_index(drop=True)


def early_heart_records():
    """Return the first 327 records with `TWELVE_ATTRIBUTES`, as numbers.

    Returns
    -------
    pandas.DataFrame

    Notes
    -----
    A public repository under the paper's title (``multi-attribute-metric-differential-privacy`` of
    paopao128 on GitHub, commit 4a278814) draws as many row numbers as there are records after the
    first 500, which is 327, and takes the rows of these numbers from the top.
    """
    return heart_records(TWELVE_ATTRIBUTES).head(327)


def _numbers(column):
    if isinstance(column.dtype, pd.BooleanDtype):
        return column.fillna(False).astype(float)
    if not isinstance(column.dtype, pd.CategoricalDtype):
        return column.astype(float)
    labels = column.astype(object).where(column.notna(), "")
    return labels.map({label: float(rank) for rank, label in enumerate(sorted(set(labels)))})


def heart_groups(third=("trestbps", "chol"), attributes=HEART_ATTRIBUTES):
    """Return four groups: all the rest, sex, a third group, and fasting blood sugar.

    Parameters
    ----------
    third : sequence of str, optional
        The third group. No published number names its attributes.
    attributes : sequence of str, optional
        All attributes.

    Returns
    -------
    tuple of tuple of str
    """
    third = tuple(third)
    unknown = [name for name in third if name not in attributes or name in ("sex", "fbs")]
    if unknown or not third:
        raise ValueError(f"the third group is taken from the other attributes, got {third}")
    rest = tuple(name for name in attributes if name not in ("sex", "fbs", *third))
    return rest, ("sex",), third, ("fbs",)


class HeartSample(Sample):
    """One sample of Case III in the reading closest to its baselines.

    The metric, states and prior are those of `Sample`. A group's loss is the change of entropies
    in bits, times 1000, when the group's part of one record is replaced:

        0.3 mean over ℓ in the group of |ΔH_ℓ| + 0.4 |ΔH| + 0.3 |Δ(Σ_ℓ H_ℓ - H)|,

    where H is the joint entropy of all attributes, and entropies are those of the whole sample.
    """

    groups = heart_groups()
    coefficients = (1.0,) * len(groups)

    population = staticmethod(heart_records)

    @classmethod
    def draw(cls, rng, size=200, own_scores=True):
        """Draw different records at random.

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
        HeartSample
        """
        everyone = cls.population()
        chosen = rng.choice(len(everyone), size=size, replace=False)
        return cls(everyone.iloc[np.sort(chosen)], own_scores)

    @cached_property
    def task(self):
        """The entropy estimation task of a whole record: marginals are averaged over all."""
        return EntropyEstimation(self.domain, self.codes, _WEIGHTS)

    def group_task(self, names):
        """Return the task of a group: its own marginals are averaged, not all.

        Parameters
        ----------
        names : sequence of str
            The attributes of the group.

        Returns
        -------
        EntropyEstimation
            The other marginals do not change while the group's part is replaced.
        """
        marginal, joint, total = _WEIGHTS
        wider = marginal * len(self.domain) / len(names)
        return EntropyEstimation(self.domain, self.codes, (wider, joint, total))


class EarlyHeartSample(HeartSample):
    """One sample of Case III in the reading of a public repository under the paper's title.

    It differs from `HeartSample` in three points: the attribute ``ca`` is left out, the records
    are `early_heart_records`, and the third group is the cholesterol alone.
    """

    groups = heart_groups(("chol",), TWELVE_ATTRIBUTES)

    population = staticmethod(early_heart_records)
