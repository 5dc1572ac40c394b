"""Our values of the paper's tables, and the chapters that have the evidence.

To plug in a table: write a function that returns our values as `Source` needs them, and name it
in `SOURCES`.
"""

import numpy as np
import pandas as pd

from book.experiments.anchors import EXPERIMENT as ANCHORS
from book.experiments.case_samples import CASES
from book.experiments.reduced_domains import EXPERIMENT as REDUCED_DOMAINS
from book.experiments.score_stability import SCORE_STABILITY
from book.experiments.surrogate_fit import SURROGATE_FIT
from book.experiments.table1 import TABLE_ONE
from book.published import published
from book.reproduction import Source, printed


def table_one():
    """Return our values of Table 1: means over samples, and half-widths of 1.96 deviations.

    Returns
    -------
    pandas.DataFrame
        As `Source` needs it. The bound of a method with optimal mechanisms holds for any private
        mechanisms of the groups; that of one with noise, for every division of the budget. Both
        are lowered by the share by which the reading misses the even splits at the same budget.
    """
    results = TABLE_ONE.results()
    keys = ["case", "method", "epsilon"]
    every = results.groupby(keys)
    frame = pd.DataFrame(
        {
            "ours": every["loss"].mean(),
            "deviation": every["loss"].std(ddof=1),
            "runs": every["loss"].size(),
            "lowest": every["lower_bound"].mean(),
        }
    )
    rows = printed("table1").pivot(index=keys, columns="quantity", values="published")
    frame["printed_deviation"] = rows["halfwidth"] / 1.96
    frame["below"] = _below(frame)
    even = (frame["ours"] / rows["loss"] - 1).abs().unstack("method")[["SPL+DPN", "SPL+RMP"]]
    missed = even.max(axis=1).reindex(frame.index.droplevel("method"))
    frame["below"] *= 1 - missed.to_numpy()
    frame = frame.loc[rows.index.intersection(frame.index)]
    # one run has no deviation of its own: it takes the printed one
    spread = frame["deviation"].fillna(frame["printed_deviation"])
    error = np.hypot(spread / np.sqrt(frame["runs"]), frame["printed_deviation"] / np.sqrt(10))
    losses = pd.DataFrame({"ours": frame["ours"], "error": error, "bound": frame["below"]})
    losses = losses.assign(bound_error=error, quantity="loss")
    several = frame[frame["runs"] > 1]
    width = 1.96 * several["deviation"]
    # of a standard deviation of n runs: 1 / √(2 (n - 1)) of itself
    printed_width = 1.96 * several["printed_deviation"]
    share = np.hypot(width / np.sqrt(2 * (several["runs"] - 1)), printed_width / np.sqrt(18))
    widths = pd.DataFrame({"ours": width, "error": share}).assign(quantity="halfwidth")
    return pd.concat([losses, widths]).reset_index()


def _below(frame):
    """Return for each method what its kind of mechanisms cannot go below, NaN for a bound."""
    kinds = {"ALC+DPN": "exact+DPN", "ALC+RMP": "exact+RMP"}
    kinds |= {f"DepHDP-{variant}": "exact+OPT" for variant in ("m", "r", "m-s", "r-s")}
    lowest = frame["lowest"]
    found = [
        lowest.get((case, kinds.get(method), epsilon), np.nan)
        for case, method, epsilon in frame.index
    ]
    return pd.Series(found, index=frame.index, dtype=float)


def table_two():
    """Return our values of Table 2: means over samples; candidates move all records of a state."""
    results = SURROGATE_FIT.results().query("candidates == 'states'")
    names = printed("table2")["quantity"].unique()
    return _over_samples(results.melt(["case", "sample"], names, "quantity", "ours"))


def table_five():
    """Return our values of Table 5: means over groups, then over samples."""
    results = SCORE_STABILITY.results().query("held == 'pairs'")
    every = results.groupby(["case", "score", "sample"])
    rows = every[["original", "held_out", "mae"]].mean()
    rows["gap"] = 100 * rows["mae"] / rows["original"].abs()
    rows["agreement"] = 100 * every["agreement"].mean()
    rows["groups_used"] = every.size()
    sizes = {case: len(sample.groups) for case, sample in CASES.items()}
    rows["groups_total"] = [sizes[case] for case, _, _ in rows.index]
    names = printed("table5")["quantity"].unique()
    long = rows.reset_index().melt(["case", "score", "sample"], names, "quantity", "ours")
    return _over_samples(long)


def _over_samples(long):
    """Return means over samples, with the error of their difference to another sample."""
    keys = [name for name in long if name not in ("sample", "ours")]
    every = long.groupby(keys)["ours"]
    spread = every.std(ddof=1) * np.sqrt(1 + 1 / every.size())
    return pd.DataFrame({"ours": every.mean(), "error": spread}).reset_index()


def table_six():
    """Return our values of Table 6: means over domains and seeds, with certified mechanisms."""
    every = ANCHORS.results().groupby(["task", "epsilon"])
    names = {"rule_loss": "dephdp_r", "anchors_loss": "panda"}
    means = every[list(names)].mean().rename(columns=names)
    errors = every[list(names)].sem().rename(columns=names) * np.sqrt(2)  # printed: as many runs
    means["reduction"] = 100 * (1 - means["dephdp_r"] / means["panda"])
    rows = printed("table6").set_index(["task", "epsilon", "quantity"])["published"]
    ours = means.rename_axis(columns="quantity").stack().rename("ours")
    frame = ours.to_frame().join(errors.rename_axis(columns="quantity").stack().rename("error"))
    frame = frame.loc[rows.index]
    return _with_zeros("table6", frame.reset_index())


LOSSES = ("full_opt", "group_opt", "dephdp_r", "dephdp_m", "all_dpn")
"""Columns of Tables 3, 4 and 7."""

POSITIVE = np.finfo(float).tiny
"""A bound that says no more than that a loss is not zero."""

FITTED = 1e-3  # relative error of a loss on the lines that are fitted to Table 7


def table_seven():
    """Return our values of Table 7, where its digits identify the states of a domain.

    Returns
    -------
    pandas.DataFrame
        The other domains are of another sample, whose losses differ by an unknown amount: they are
        no values to compare. Losses that are printed as 0 have `POSITIVE` for a bound: a channel
        of finite level makes every report in every state, so where a wrong one costs it loses.
    """
    ours = REDUCED_DOMAINS.results().query("source == 'fitted'")
    keys = ["task", "case", "epsilon"]
    long = ours.melt(keys, LOSSES, "quantity", "ours")
    least = dict.fromkeys(LOSSES, "group_exact_bound") | {"full_opt": "full_bound"}
    bounds = ours.set_index(keys)
    places = zip(pd.MultiIndex.from_frame(long[keys]), long["quantity"], strict=True)
    long["bound"] = [bounds.loc[place, least[name]] for place, name in places]
    long["bound_error"] = FITTED * long["bound"]
    return _with_zeros("table7", long)


def _with_zeros(table, values):
    """Return values with the bound `POSITIVE` for every loss of a table that is printed as 0."""
    rows = printed(table)
    keys = [name for name in values if name in rows and name != "published"]
    zeros = rows.loc[rows["published"] == 0, keys]
    joined = values.merge(zeros, on=keys, how="outer", indicator=True)
    joined["bound"] = joined.get("bound", np.nan)
    none = (joined["_merge"] != "left_only") & joined["bound"].isna()
    joined.loc[none, "bound"] = POSITIVE
    return joined.drop(columns="_merge")


def table_four():
    """Return our values of Table 4: means of the rows that are printed in Table 7."""
    means = published("table7").groupby(["task", "epsilon"])[list(LOSSES)].mean()
    return means.reset_index().melt(["task", "epsilon"], LOSSES, "quantity", "ours")


def table_three():
    """Return our values of Table 3: the nearest row of Table 7 at the same budget."""
    seven = published("table7").query("epsilon == 1").set_index("task")[list(LOSSES)]
    parts = []
    for task, row in published("table3").set_index("task").iterrows():
        off = (seven.loc[task] - row[list(LOSSES)]).abs().max(axis=1).to_numpy()
        nearest = seven.loc[task].iloc[int(off.argmin())]
        parts.append(nearest.rename("ours").rename_axis("quantity").reset_index().assign(task=task))
    return pd.concat(parts)


SOURCES = {
    "table1": Source(
        table_one, ("case_frequency_estimation", "case_crowdsourcing", "case_entropy")
    ),
    "table2": Source(table_two, ("scores_and_surrogates_tested",)),
    "table3": Source(table_three, ("what_the_tables_show",), reading=False),
    "table4": Source(table_four, ("what_the_tables_show",), reading=False),
    "table5": Source(table_five, ("scores_and_surrogates_tested",)),
    "table6": Source(table_six, ("panda_thresholds_scale",)),
    "table7": Source(table_seven, ("what_the_tables_show",)),
}
"""Our values, by table."""
