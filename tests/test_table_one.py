"""The large table of losses: by second routes, in the order that theory asks for, and private."""

import numpy as np
import pytest

from book.cases.noise import noise_losses
from book.experiments.case_samples import CASES, draw_sample
from book.experiments.optimal_curves import BUDGETS, OPTIMAL_CURVES, SOLVED, solved_curve
from book.experiments.table1 import (
    GRID,
    SCORES,
    TABLE_ONE,
    chosen_groups,
    even_split,
    through_envelopes,
)
from dephdp import (
    compose_budget,
    envelope_allocation,
    exponential_mechanism,
    privacy_level,
    product_privacy_level,
    split_budget,
)


@pytest.fixture(scope="module")
def kept():
    return TABLE_ONE.results()


@pytest.mark.parametrize("case", CASES)
def test_even_splits_are_the_formula(case, kept):
    sample = draw_sample(case, 3)
    for epsilon in (1.0, 7.0):
        share = split_budget(epsilon, len(sample.groups), 2)[:1]
        both = sum(
            b * noise_losses(p, share)[:, 0]
            for b, p in zip(sample.coefficients, sample.profiles, strict=True)
        )
        for method, loss in zip(("SPL+DPN", "SPL+RMP"), both, strict=True):
            row = kept[kept["method"] == method].set_index(["case", "seed", "epsilon"])
            row = row.loc[(case, 3, epsilon)]
            assert row["loss"] == pytest.approx(loss, rel=1e-9)


def test_the_level_of_a_row_is_that_of_its_channels():
    sample = draw_sample("III", 0)
    row = even_split("RMP", 2.0, sample, "exponential+remap")
    share = split_budget(2.0, 4, 2)[0]
    channels = []
    for p in sample.profiles:
        weights = np.exp(-share / 2 * p.distances)
        matrix = weights / weights.sum(axis=1, keepdims=True)
        actions = (p.prior[:, None] * matrix).T @ p.loss
        remapped = np.zeros_like(matrix)
        np.add.at(remapped.T, actions.argmin(axis=1), matrix.T)
        channels.append(remapped)
    alone = max(
        privacy_level(m, p.distances) for m, p in zip(channels, sample.profiles, strict=True)
    )
    assert alone <= row["level"] * (1 + 1e-9) <= 2.0


def test_envelopes_see_a_uniform_grid():
    losses = np.exp(-np.outer([1.0, 0.3], GRID))
    for epsilon, grid in ((1.0, np.linspace(0, 2, 21)), (9.0, np.linspace(0, 10, 51))):
        by_hand = envelope_allocation(grid, np.exp(-np.outer([1.0, 0.3], grid)), epsilon, 2)
        assert through_envelopes(losses, epsilon).loss == pytest.approx(by_hand.loss)


def test_every_row_is_private_and_above_its_bound(kept):
    private = kept["level"].dropna() <= kept["epsilon"][kept["level"].notna()] * (1 + 1e-9)
    assert private.all()
    bounded = kept.dropna(subset="lower_bound")
    assert (bounded["lower_bound"] <= bounded["loss"] * (1 + 1e-9)).all()
    assert set(kept.loc[kept["level"].isna(), "method"]) <= {"Bound-m", "Bound-r"}


def test_methods_are_ordered_where_theory_says_so(kept):
    wide = kept.pivot_table(index=["case", "seed", "epsilon"], columns="method", values="loss")
    assert len(wide) == 30 * 10
    for label in ("DPN", "RMP", "calibrated", "tight"):
        assert (wide[f"exact+{label}"] <= wide[f"ALC+{label}"] * (1 + 1e-9)).all()
    # a remap helps curve by curve, so it helps the best division
    assert (wide["exact+RMP"] <= wide["exact+DPN"] * (1 + 1e-9)).all()
    some = wide.dropna()
    assert (some["exact-m"] <= some["DepHDP-m"] * (1 + 1e-9)).all()
    assert (some["exact-r"] <= some["DepHDP-r"] * (1 + 1e-9)).all()
    assert (some["Bound-m"] <= some["DepHDP-m"] * (1 + 1e-9)).all()


def test_nothing_undercuts_the_bound_of_the_optimal_mechanisms(kept):
    keys = ["case", "seed", "epsilon"]
    least = kept[kept["method"] == "exact+OPT"].set_index(keys)["lower_bound"]
    losses = kept[~kept["method"].str.startswith("Bound")].set_index(keys)["loss"]
    losses = losses[losses.index.isin(least.index)]
    assert (losses >= least.loc[losses.index].to_numpy() * (1 - 1e-9)).all()


def test_the_mse_score_chooses_at_least_what_the_radial_one_does():
    for case in ("II", "III"):
        m, r = (chosen_groups(case, 0, score) for score in SCORES)
        assert (m >= r).all()


@pytest.mark.parametrize("key", [("I", 0), ("II", 2)])
def test_solved_curves_are_steps_between_what_was_computed(key):
    seed = SOLVED[key][0]
    grid = np.array([0.0, 0.6, 1.0, 1.2, 9.0, 10.0])
    losses, bounds, levels = solved_curve(*key, seed, grid)
    table = OPTIMAL_CURVES.table().query("case == @key[0] and group == @key[1] and seed == @seed")
    table = table.set_index("budget")
    assert losses[2] == pytest.approx(table.loc[:1.0, "loss"].min())
    assert losses[3] == losses[2] and losses[1] == pytest.approx(table.loc[:0.6, "loss"].min())
    assert bounds[3] == pytest.approx(table.loc[1.5:, "lower_bound"].max())
    assert (bounds <= losses * (1 + 1e-9)).all() and (levels <= grid + 1e-9).all()
    assert (np.diff(losses) <= 0).all() and table.index.max() == BUDGETS[key[0]][-1]


def test_composed_levels_bound_exact_ones():
    """‖·‖₂ of the groups' levels, which some rows have, is at least the exact level."""
    sample = draw_sample("II", 2)
    channels = [exponential_mechanism(p.distances, 1.5) for p in sample.profiles]
    exact = product_privacy_level(channels, 2)
    assert exact <= compose_budget([c.privacy_level() for c in channels], 2) * (1 + 1e-12)
