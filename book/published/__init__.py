"""The paper's tables, to compare with."""

from pathlib import Path

import pandas as pd

TABLES = Path(__file__).parent


def published(table):
    """Return one of the paper's tables.

    Parameters
    ----------
    table : str
        A file of ``book/published`` without its suffix. Lines that start with ``#`` say where its
        numbers stand in the paper.

    Returns
    -------
    pandas.DataFrame
    """
    return pd.read_csv(TABLES / f"{table}.csv", comment="#")
