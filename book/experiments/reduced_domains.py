"""Table 7 again: reduced domains solved as a whole, group by group, and with noise."""

import heapq

import numpy as np

from book.cases.reduced import (
    ANGLES,
    SAMPLES,
    joined,
    line_cases,
    line_groups,
    parse,
    sampled_groups,
)
from book.experiments.experiment import Experiment
from book.published import published
from dephdp import (
    loss_curve,
    mse_likeness,
    prefer_optimal,
    product_privacy_level,
    radial_fit,
)

THRESHOLD = 0.3  # of the scores, for all three tasks
_SEED = 1  # of the sample of each case study
_FLOOR = 1e-10  # a loss this small is less than what rounding leaves of a lower bound


class Curve:
    """The loss of one group at any budget, computed where it is asked for.

    Parameters
    ----------
    group : ReducedGroup
        The group.
    family : str
        One of `dephdp.curves.FAMILIES`.
    tol : float
        Relative gap of optimal mechanisms.
    """

    def __init__(self, group, family, tol):
        self.group, self.family, self.tol, self.known = group, family, tol, {}

    def _at(self, budget):
        if budget not in self.known:
            group = self.group
            self.known[budget] = loss_curve(
                group.prior, group.loss, group.distances, [budget], self.family, tol=self.tol
            )
        return self.known[budget]

    def loss(self, budget):
        """Return the loss at a budget."""
        return float(self._at(budget).losses[0])

    def bound(self, budget):
        """Return what no mechanism of the family goes below at the budget, or less."""
        return max(float(self._at(budget).lower_bounds[0]), 0.0)  # no loss is negative

    def mechanism(self, budget):
        """Return the channel at a budget."""
        return self._at(budget).mechanism(budget)


class Division:
    """The search for the best division of a budget between two groups.

    An interval [a, b] of angles cannot hold a division better than what the first group loses at
    ε cos a and the second at ε sin b, if losses do not increase with the budget.

    Parameters
    ----------
    first, second : Curve
        The groups.
    epsilon : float
        Budget of the record.
    """

    def __init__(self, first, second, epsilon):
        self.first, self.second, self.epsilon = first, second, epsilon
        self.loss, self.angle = np.inf, None
        self._try(ANGLES[0])
        self._try(ANGLES[-1])
        self._finest, self._open = [], [self._interval(0, len(ANGLES) - 1)]

    def budgets(self, angle):
        """Return the two budgets at an angle; nothing at all where cosine or sine is zero."""
        first = 0.0 if angle == ANGLES[-1] else float(self.epsilon * np.cos(angle))
        return first, float(self.epsilon * np.sin(angle))

    def _try(self, angle):
        first, second = self.budgets(angle)
        loss = self.first.loss(first) + self.second.loss(second)
        if loss < self.loss:
            self.loss, self.angle = loss, angle

    def _interval(self, left, right):
        """Return an interval between two places on the grid of angles, with its bound."""
        more, _ = self.budgets(_angle(left))
        _, most = self.budgets(_angle(right))
        return self.first.bound(more) + self.second.bound(most), left, right

    def on_grid(self):
        """Search the grid of angles; return the least loss."""
        while self._open and self._open[0][0] < self.loss:
            bound, left, right = heapq.heappop(self._open)
            if right - left == 1:
                self._finest.append((bound, left, right))
            else:
                self._halve(left, (left + right) // 2, right)
        return self.loss

    def off_grid(self, tol):
        """Go on between the angles; return the least loss and the lower bound.

        Parameters
        ----------
        tol : float
            Relative gap at which to stop.
        """
        self._open += self._finest
        self._finest = []
        heapq.heapify(self._open)
        while self._open[0][0] < self.loss * (1 - tol) - _FLOOR:
            _, left, right = heapq.heappop(self._open)
            self._halve(left, (left + right) / 2, right)
        return self.loss, min(self._open[0][0], self.loss)

    def _halve(self, left, middle, right):
        self._try(_angle(middle))
        heapq.heappush(self._open, self._interval(left, middle))
        heapq.heappush(self._open, self._interval(middle, right))

    def level(self):
        """Return the exact level of the record under the best division found."""
        first, second = self.budgets(self.angle)
        return product_privacy_level(
            [self.first.mechanism(first), self.second.mechanism(second)], 2
        )


def _angle(place):
    """Return the angle at a place on the grid, which may lie between its points."""
    return float(np.interp(place, np.arange(len(ANGLES)), ANGLES))


def groups_of(task, case, source):
    """Return the two groups of a case.

    Parameters
    ----------
    task, case : str
        As in Table 7.
    source : str
        ``"fitted"`` for the lines that are fitted to the table, otherwise the seed of a sample.

    Returns
    -------
    list of ReducedGroup
    """
    if source == "fitted":
        return line_groups(case)
    sample = SAMPLES[task].draw(np.random.default_rng(int(source.removeprefix("seed "))))
    return sampled_groups(sample, case)


def optimised(groups, score):
    """Return which of the groups the rule (24) gives an optimal mechanism.

    Parameters
    ----------
    groups : list of ReducedGroup
        The groups.
    score : callable
        `mse_likeness` or `radial_fit`.

    Returns
    -------
    list of bool
    """
    return [
        bool(prefer_optimal(len(g.prior), score(g.loss, g.distances), threshold=THRESHOLD))
        for g in groups
    ]


def reduced_domain(task, case, source, epsilon):
    """Compute one configuration of Table 7.

    Parameters
    ----------
    task, case : str
        As in Table 7.
    source : str
        As `groups_of`.
    epsilon : float
        Budget of the record.

    Returns
    -------
    list of dict
        One row. ``group_opt``, ``dephdp_r``, ``dephdp_m`` and ``all_dpn`` take the best of the
        paper's angles; ``*_exact`` the best of all; ``*_bound`` is a lower bound; ``*_level`` is
        the exact privacy level of the record.
    """
    groups = groups_of(task, case, source)
    tol = 1e-6 if source == "fitted" else 1e-5
    record = Curve(joined(*groups), "optimal", 10 * tol)
    best = [Curve(group, "optimal", tol) for group in groups]
    noise = [Curve(group, "exponential+remap", tol) for group in groups]
    together, plain = Division(*best, epsilon), Division(*noise, epsilon)
    group_opt, all_dpn = together.on_grid(), plain.on_grid()
    row = {
        "states": len(record.group.prior),
        "full_opt": record.loss(epsilon),
        "full_bound": record.bound(epsilon),
        "full_level": record.mechanism(epsilon).privacy_level(),
        "group_opt": group_opt,
        "all_dpn": all_dpn,
    }
    for name, score in (("r", radial_fit), ("m", mse_likeness)):
        chosen = optimised(groups, score)
        curves = [a if c else b for a, b, c in zip(best, noise, chosen, strict=True)]
        row[f"dephdp_{name}"] = Division(*curves, epsilon).on_grid()
        row[f"optimised_{name}"] = " ".join(
            part for (part, _, _), c in zip(parse(case), chosen, strict=True) if c
        )
    row["group_exact"], row["group_exact_bound"] = together.off_grid(5e-3)
    row["group_level"] = together.level()
    row["dpn_exact"], _ = plain.off_grid(1e-3)
    row["dpn_level"] = plain.level()
    for name, family in (("calibrated", "calibrated+remap"), ("tight", "tight+remap")):
        division = Division(*(Curve(group, family, tol) for group in groups), epsilon)
        division.on_grid()
        row[f"{name}_exact"], _ = division.off_grid(1e-3)
        row[f"{name}_level"] = division.level()
    return [row]


def _units():
    """Return 90 configurations: the lines that the table identifies, and all of crowdsourcing."""
    table, fitted = published("table7"), line_cases()
    return [
        {
            "task": task,
            "case": case,
            "source": "fitted" if case in fitted else f"seed {_SEED}",
            "epsilon": float(epsilon),
        }
        for task, case, epsilon in table[["task", "case", "epsilon"]].itertuples(index=False)
        if case in fitted or task == "CC"
    ]


EXPERIMENT = Experiment("reduced_domains", _units(), reduced_domain, tolerance=1e-3)
