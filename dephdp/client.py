"""Sample private reports from a saved design, with numpy alone.

This file imports nothing but numpy and the standard library, so that it can be copied to where the
records are::

    from client import Client
    reports = Client("design.npz").privatize({"sex": ["F", "M"], "age": [31, 44]})

A design is a JSON header and, for each group k of attributes, the arrays ``codes_k`` (states, level
codes), ``keep_k`` and ``alias_k`` (states, outputs): the alias tables of its channel. To report in
state x, draw an output j evenly; keep it with probability ``keep[x, j]``, else report
``alias[x, j]`` (Walker, 1977).
"""

import json

import numpy as np


class Client:
    """A saved design, ready to be sampled from.

    Parameters
    ----------
    path : str or os.PathLike
        File written by ``DepHDP.save``.

    Attributes
    ----------
    header : dict
        Attributes, groups, budget and certified level of the design.
    """

    def __init__(self, path):
        with np.load(path, allow_pickle=False) as saved:
            self._read(saved)

    @classmethod
    def from_arrays(cls, arrays):
        """Return a client of a design whose file has been read.

        Parameters
        ----------
        arrays : mapping of str to ndarray
            What the file holds, by name.

        Returns
        -------
        Client
        """
        client = cls.__new__(cls)
        client._read(arrays)
        return client

    def _read(self, arrays):
        self.header = json.loads(str(arrays["header"]))
        self._groups = [
            (arrays[f"codes_{k}"], arrays[f"keep_{k}"], arrays[f"alias_{k}"])
            for k in range(len(self.header["groups"]))
        ]
        self._names = [attribute["name"] for attribute in self.header["attributes"]]

    def privatize(self, columns, rng=None):
        """Return one private report for each record.

        Parameters
        ----------
        columns : mapping of str to sequence
            The records, a column an attribute, all of one length.
        rng : numpy.random.Generator, optional
            By default seeded by the operating system.

        Returns
        -------
        dict of str to list
            The reports: levels of nominal and ordinal attributes, representatives of numeric ones.

        Raises
        ------
        ValueError
            If a column is missing, or a value or a combination of values is not in the domain.
        """
        codes = [self._encode(a, columns) for a in self.header["attributes"]]
        if len({len(column) for column in codes}) > 1:
            raise ValueError("the columns must have one length")
        rng = np.random.default_rng() if rng is None else rng
        reports = {}
        for names, (states, keep, alias) in zip(self.header["groups"], self._groups, strict=True):
            part = np.stack([codes[self._names.index(name)] for name in names], axis=1)
            drawn = states[_sample(_find(states, part, names), keep, alias, rng)]
            for name, column in zip(names, drawn.T, strict=True):
                levels = self.header["attributes"][self._names.index(name)]["levels"]
                reports[name] = [levels[code] for code in column]
        return {name: reports[name] for name in self._names}

    def _encode(self, attribute, columns):
        name = attribute["name"]
        if name not in columns:
            raise ValueError(f"column {name!r} is missing")
        values = columns[name]
        if attribute["edges"]:
            edges = np.asarray(attribute["edges"])
            values = np.asarray(values, dtype=float)
            outside = ~((values >= edges[0]) & (values <= edges[-1]))
            _refuse(name, values, outside)
            return np.minimum(np.searchsorted(edges, values, side="right"), len(edges) - 1) - 1
        known = {level: code for code, level in enumerate(attribute["levels"])}
        codes = np.array([known.get(_plain(value), -1) for value in values], dtype=np.int64)
        _refuse(name, values, codes < 0)
        return codes


def _plain(value):
    """Return a numpy scalar as the Python value that JSON knows."""
    return value.item() if isinstance(value, np.generic) else value


def _refuse(name, values, outside):
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        raise ValueError(f"row {row}, column {name!r}: {values[row]!r} is not in its domain")


def _find(states, rows, names):
    """Return the number of the state that each row is."""
    merged, place = np.unique(np.concatenate([states, rows]), axis=0, return_inverse=True)
    place = place.reshape(-1)
    number = np.full(len(merged), -1)
    number[place[: len(states)]] = np.arange(len(states))
    found = number[place[len(states) :]]
    if (found < 0).any():
        row = int(np.flatnonzero(found < 0)[0])
        raise ValueError(f"row {row}: its combination of {names} is no state of the design")
    return found


def _sample(states, keep, alias, rng):
    column = rng.integers(keep.shape[1], size=len(states))
    kept = rng.random(len(states)) < keep[states, column]
    return np.where(kept, column, alias[states, column])
