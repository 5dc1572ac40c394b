"""A table that takes long: computed in parallel, resumed where it stopped, checked row by row."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from tqdm import tqdm

RESULTS = Path(__file__).resolve().parent.parent / "results"
_LIBRARIES = "numpy", "scipy", "numba", "highspy"
_ABOUT = ["seconds", "versions"]  # columns that say how a row was made


class ResultMismatch(AssertionError):
    """A recomputed row differs from the one that is kept."""


@dataclass(frozen=True)
class Experiment:
    """A table of results, made of units that are computed independently of each other.

    Parameters
    ----------
    name : str
        The table is ``book/results/<name>.csv``.
    units : list of dict
        The arguments of each unit, all of the same names; whatever is random takes a seed from
        among them.
    compute : callable
        ``compute(**unit)`` returns the rows of one unit, a list of dicts.
    tolerance : float, optional
        Largest relative difference of a recomputed number.
    scale : float, optional
        Numbers below ``scale`` are compared as if they were that large.
    volatile : tuple of str, optional
        Columns that may differ from run to run, for instance times.
    """

    name: str
    units: list[dict]
    compute: Callable[..., list[dict]]
    tolerance: float = 1e-6
    scale: float = 1e-9
    volatile: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """Where the table is kept."""
        return RESULTS / f"{self.name}.csv"

    @cached_property
    def keys(self) -> list[str]:
        """Columns that name a unit."""
        return list(self.units[0])

    def table(self) -> pd.DataFrame:
        """Return the table as it is kept, with the columns ``seconds`` and ``versions``.

        Raises
        ------
        FileNotFoundError
            If it was never computed.
        """
        return pd.read_csv(self.path)

    def results(self) -> pd.DataFrame:
        """Return the rows of the table without the columns that say how they were made.

        Raises
        ------
        ValueError
            If units are missing.
        """
        if missing := self.missing():
            raise ValueError(
                f"{self.path.name} lacks {len(missing)} of {len(self.units)} units, "
                f"the first is {missing[0]}: run `make experiments`"
            )
        return self.table().drop(columns=_ABOUT)

    def missing(self) -> list[dict]:
        """Return the units that have no row yet."""
        if not self.path.exists():
            return list(self.units)
        done = set(self._names(self.table()))
        return [unit for unit in self.units if _name(unit.values()) not in done]

    def _names(self, table):
        return [_name(row) for row in table[self.keys].itertuples(index=False)]

    def run(self, jobs: int = -1):
        """Compute what is missing, writing each unit's rows as they come.

        Parameters
        ----------
        jobs : int, optional
            Processes; -1 for one a processor.
        """
        missing = self.missing()
        if not missing:
            return
        RESULTS.mkdir(exist_ok=True)
        made = "; ".join(f"{name} {version(name)}" for name in _LIBRARIES)
        workers = Parallel(n_jobs=jobs, return_as="generator_unordered")
        answers = workers(delayed(_timed)(self.compute, unit) for unit in missing)
        for unit, rows, seconds in tqdm(answers, total=len(missing), desc=self.name):
            frame = pd.DataFrame([{**unit, **row} for row in rows])
            frame = frame.assign(seconds=round(seconds, 2), versions=made)
            frame.to_csv(self.path, mode="a", header=not self.path.exists(), index=False)
        order = {_name(unit.values()): at for at, unit in enumerate(self.units)}
        table = self.table()
        place = [order.get(name, len(order)) for name in self._names(table)]
        table.iloc[np.argsort(place, kind="stable")].to_csv(self.path, index=False)

    def recheck(self, rng, count: int = 1, longest: float = 5.0) -> pd.DataFrame:
        """Compute some units again and compare them with the table.

        Parameters
        ----------
        rng : numpy.random.Generator
            Chooses the units.
        count : int, optional
            How many, among those that took little time.
        longest : float, optional
            Seconds that a unit may have taken.

        Returns
        -------
        pandas.DataFrame
            A row for each unit: its arguments, how many numbers were compared, and the largest
            relative difference.

        Raises
        ------
        ResultMismatch
            If a number differs by more than the tolerance, or anything else at all.
        """
        table = self.table()
        quick = table.loc[table["seconds"] <= longest, self.keys].drop_duplicates()
        if quick.empty:
            raise ValueError(f"no unit of {self.path.name} took at most {longest:g} s")
        chosen = quick.iloc[rng.choice(len(quick), size=min(count, len(quick)), replace=False)]
        named = {_name(unit.values()): unit for unit in self.units}
        rows = []
        for name, at in zip(self._names(chosen), chosen.index, strict=True):
            unit = named[name]
            same = (table[self.keys] == chosen.loc[at]).all(axis=1)
            kept = table.loc[same].drop(columns=[*self.keys, *_ABOUT, *self.volatile])
            again = pd.DataFrame(self.compute(**unit)).drop(columns=list(self.volatile))
            rows.append({**unit, **self._compare(unit, kept.reset_index(drop=True), again)})
        return pd.DataFrame(rows)

    def _compare(self, unit, kept, again):
        if list(kept) != list(again) or len(kept) != len(again):
            raise ResultMismatch(f"{self.path.name}, {unit}: the rows have another shape now")
        numbers = [name for name in kept if pd.api.types.is_numeric_dtype(kept[name])]
        for name in kept.columns.difference(numbers):
            if (kept[name].fillna("").astype(str) != again[name].fillna("").astype(str)).any():
                raise ResultMismatch(f"{self.path.name}, {unit}: {name} differs")
        before, after = kept[numbers].to_numpy(float), again[numbers].to_numpy(float)
        with np.errstate(invalid="ignore"):  # infinity minus itself
            off = np.abs(after - before) / np.maximum(np.abs(before), self.scale)
        off[(before == after) | (np.isnan(before) & np.isnan(after))] = 0
        if not (off <= self.tolerance).all():
            row, column = np.unravel_index(np.argmax(np.nan_to_num(off, nan=np.inf)), off.shape)
            raise ResultMismatch(
                f"{self.path.name}, {unit}: {numbers[column]} was {before[row, column]!r}, "
                f"is {after[row, column]!r}"
            )
        return {"numbers": off.size, "largest difference": float(off.max(initial=0.0))}


def _name(values):
    """Return a unit's name, the same before and after its arguments went through a file."""
    return tuple(str(v) if isinstance(v, str) else float(v) for v in values)


def _timed(compute, unit):
    started = time.perf_counter()
    rows = compute(**unit)
    return unit, rows, time.perf_counter() - started
