"""What a fitted design does, in a table, a paragraph and two pictures."""

import html
import io

import numpy as np

_BELOW = {"loc": "outside lower center", "ncols": 3, "frameon": False, "fontsize": "small"}


class DesignReport:
    """A summary of a fitted design.

    Parameters
    ----------
    design : DepHDP
        Fitted.
    """

    def __init__(self, design):
        self.design = design

    @property
    def table(self):
        """One row a group.

        Returns
        -------
        pandas.DataFrame
            Attributes, number of states, Stage 3's score, family, budget, exact level, the
            surrogate's coefficient β_k, the expected loss 𝓛_k, and what no mechanism of the family
            goes below at that budget.
        """
        import pandas as pd

        design = self.design
        budgets = design.allocation_.budgets
        rows = []
        for k, (group, curve) in enumerate(zip(design.groups_, design.curves_, strict=True)):
            sample = design.allocation_.choices[k]
            rows.append(
                {
                    "attributes": ", ".join(group.names),
                    "states": group.size,
                    "score": design.scores_[k],
                    "mechanism": design.families_[k],
                    "budget": budgets[k],
                    "level": design.certificate_.group_levels[k],
                    "coefficient": design.surrogate_.coefficients[k],
                    "loss": curve.losses[sample],
                    "lower bound": curve.lower_bounds[sample],
                }
            )
        return pd.DataFrame(rows).rename_axis("group")

    def __str__(self):
        design = self.design
        return (
            f"{design.certificate_}\n"
            f"surrogate loss {design.loss_:.6g}, at least {design.lower_bound_:.6g} for these "
            f"families; surrogate explains {design.surrogate_.held_out_r_squared:.1%} of held-out "
            "pairs\n" + self.table.to_string(float_format="{:.4g}".format)
        )

    def figure(self):
        """Draw the groups' loss-budget curves, each with the budget it was given.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from matplotlib.figure import Figure

        design = self.design
        lines = -(-len(design.groups_) // _BELOW["ncols"])
        figure = Figure(figsize=(7, 3.2 + 0.2 * lines), layout="constrained")
        curves, shares = figure.subplots(1, 2, width_ratios=(3, 2))
        names = [", ".join(group.names) for group in design.groups_]
        names = [name if len(name) <= 30 else name[:29] + "…" for name in names]
        budgets = design.allocation_.budgets
        for k, curve in enumerate(design.curves_):
            value = design.surrogate_.coefficients[k] * curve.losses
            color = f"C{k % 10}"
            curves.step(curve.budgets, value, where="post", color=color, label=names[k])
            curves.plot(budgets[k], value[design.allocation_.choices[k]], "o", color=color)
        curves.set(xlabel="budget of the group", ylabel="its share of the loss")
        curves.set_ylim(bottom=0)
        figure.legend(*curves.get_legend_handles_labels(), **_BELOW)
        rows = np.arange(len(names))
        shares.barh(rows, budgets, color=[f"C{k % 10}" for k in rows])
        shares.plot(design.certificate_.group_levels, rows, "k|", markersize=12, label="level")
        shares.set(xlabel="budget", yticks=rows, yticklabels=names)
        shares.invert_yaxis()
        shares.legend(frameon=False)
        return figure

    def to_html(self):
        """Return the report as a fragment of HTML that needs nothing from elsewhere.

        Returns
        -------
        str
        """
        picture = io.StringIO()
        self.figure().savefig(picture, format="svg")
        svg = picture.getvalue()
        svg = svg[svg.index("<svg") :].replace(
            "<svg", '<svg role="img" aria-label="Loss-budget curves and budgets of the groups"', 1
        )
        first, second = str(self).split("\n")[:2]
        return (
            f"<p>{html.escape(first)}</p><p>{html.escape(second)}</p>"
            f'<div style="overflow-x:auto">{self.table.to_html(float_format="{:.4g}".format)}</div>'
            f"{svg}"
        )

    def _repr_html_(self):
        return self.to_html()
