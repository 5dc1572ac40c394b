"""What the readings of the case studies share: a sample of records, and profiles of its groups."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pandas as pd

from dephdp import Attribute, Domain
from dephdp.group import Group, GroupProfile
from dephdp.losses import profile_group


@dataclass(frozen=True, eq=False)
class Sample(ABC):
    """One sample of a case study, in the reading that comes closest to its baselines.

    The record metric is the Euclidean distance of z-scores. A group's states are the combinations
    in the sample, equally likely, and so are its reports. A subclass says where the records come
    from, which groups there are, and what the task is.

    Parameters
    ----------
    records : pandas.DataFrame
        Numbers: rows of ``population()``.
    own_scores : bool, optional
        Whether z-scores take the standard deviations of the sample, not of the population.

    Attributes
    ----------
    groups : tuple of tuple of str
        Names of the attributes of each group.
    coefficients : tuple of float
        β_k of each group, by which the record's loss adds up.
    """

    records: pd.DataFrame
    own_scores: bool = False

    groups: ClassVar[tuple[tuple[str, ...], ...]]
    coefficients: ClassVar[tuple[float, ...]]

    @staticmethod
    @abstractmethod
    def population():
        """Return all records that samples are drawn from, as numbers."""

    @property
    @abstractmethod
    def task(self):
        """The downstream task of the sample."""

    @cached_property
    def domain(self):
        """The values in the sample, each attribute in the range of the population."""
        everyone = self.population()
        return Domain(
            Attribute.numeric(
                name,
                values=np.unique(column),
                range=(everyone[name].min(), everyone[name].max()),
            )
            for name, column in self.records.items()
        )

    @cached_property
    def weights(self):
        """Weights under which the Euclidean distance of shares of the range is that of z-scores."""
        everyone = self.population()
        spans = everyone.max() - everyone.min()
        scale = (self.records if self.own_scores else everyone).std(ddof=0)
        return ((spans / scale) ** 2).to_dict()

    @cached_property
    def codes(self):
        """Level codes of the records."""
        return self.domain.encode(self.records)

    def group_task(self, names):
        """Return the task by which a group is profiled: the sample's, unless a subclass differs.

        Parameters
        ----------
        names : sequence of str
            The attributes of the group.

        Returns
        -------
        dephdp.tasks.Task
        """
        return self.task

    def profile(self, names) -> GroupProfile:
        """Return the prior, distances and losses of a group.

        Parameters
        ----------
        names : sequence of str
            Its attributes.

        Returns
        -------
        GroupProfile
        """
        group = Group.observed(self.domain, names, self.codes)
        weights = {name: self.weights[name] for name in names}
        return profile_group(self.group_task(names), group, 2, weights, "uniform")

    @cached_property
    def profiles(self):
        """Profiles of the groups, in their order."""
        return tuple(self.profile(names) for names in self.groups)
