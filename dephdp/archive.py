"""Saved designs: one file with all that is needed to report, and nothing of the reference records.

`dephdp.client` describes the file and samples from it with numpy alone.
"""

import json
import math
from dataclasses import asdict, dataclass

import numba
import numpy as np

from dephdp.certificate import privacy_level
from dephdp.channel import Channel
from dephdp.client import Client
from dephdp.design import RecordCertificate
from dephdp.domain import Attribute, Domain
from dephdp.errors import CertificationError, DephdpError
from dephdp.group import Group

_FORMAT = 1
_ROUNDING = 1e-9  # by which the level of what an alias table samples may differ, relatively


@dataclass(frozen=True, eq=False)
class SavedDesign:
    """A design read back from a file: it reports and certifies, but is not fitted again.

    Attributes
    ----------
    domain_ : Domain
    groups_ : tuple of Group
    channels_ : tuple of Channel
    certificate_ : RecordCertificate
    client : Client
        Samples from the file's alias tables.
    """

    domain_: Domain
    groups_: tuple
    channels_: tuple
    certificate_: RecordCertificate
    client: Client

    def privatize(self, frame, rng=None):
        """Return one private report for each record, drawn from the alias tables.

        Parameters
        ----------
        frame : pandas.DataFrame
            Records to protect.
        rng : numpy.random.Generator, optional
            By default seeded by the operating system.

        Returns
        -------
        pandas.DataFrame
            The same index; columns in the order of the domain.
        """
        import pandas as pd

        self.domain_.encode(frame)  # for its error messages
        reports = self.client.privatize(
            {name: list(frame[name]) for name in self.domain_.names}, rng
        )
        return pd.DataFrame(reports, index=frame.index)


def write(design, path):
    """Write a fitted design to a file.

    Parameters
    ----------
    design : DepHDP
        Fitted.
    path : str or os.PathLike

    Raises
    ------
    DephdpError
        If a level of the domain is no string, number or truth value.
    CertificationError
        If rounding in an alias table changed the level of a channel.
    """
    arrays = {}
    for k, (group, channel) in enumerate(zip(design.groups_, design.channels_, strict=True)):
        keep, alias = alias_tables(channel.matrix)
        _check_tables(keep, alias, channel)
        arrays |= {f"codes_{k}": group.codes, f"keep_{k}": keep, f"alias_{k}": alias}
        arrays[f"matrix_{k}"] = channel.matrix
    header = {
        "format": _FORMAT,
        "epsilon": design.epsilon,
        "p": "inf" if math.isinf(design.p) else design.p,
        "weights": dict(design.weights or {}),
        "level": design.certificate_.level,
        "attributes": [_plain(attribute) for attribute in design.domain_.attributes],
        "groups": [list(group.names) for group in design.groups_],
    }
    np.savez_compressed(path, header=json.dumps(header), **arrays)


def read(path):
    """Read a design and certify it anew.

    Parameters
    ----------
    path : str or os.PathLike

    Returns
    -------
    SavedDesign

    Raises
    ------
    DephdpError
        If the file has another format.
    CertificationError
        If its channels do not meet its budget.
    """
    with np.load(path, allow_pickle=False) as saved:
        arrays = dict(saved)
    client = Client.from_arrays(arrays)
    header = client.header
    if header.get("format") != _FORMAT:
        raise DephdpError(
            f"{path} has format {header.get('format')!r}, this version reads {_FORMAT}"
        )
    domain = Domain(_attribute(**attribute) for attribute in header["attributes"])
    p, weights = float(header["p"]), header["weights"]
    groups, channels = [], []
    for k, names in enumerate(header["groups"]):
        group = Group(domain, tuple(names), arrays[f"codes_{k}"])
        own = {name: weights.get(name, 1.0) for name in names}
        channel = Channel(arrays[f"matrix_{k}"], group.distances(p, own))
        _check_tables(arrays[f"keep_{k}"], arrays[f"alias_{k}"], channel)
        groups.append(group)
        channels.append(channel)
    certificate = RecordCertificate.compute(channels, header["epsilon"], p)
    if not certificate.holds:
        raise CertificationError(f"{path}: {certificate}")
    return SavedDesign(domain, tuple(groups), tuple(channels), certificate, client)


def alias_tables(matrix):
    """Return the alias tables of a channel's rows (Walker, 1977; Vose, 1991).

    Parameters
    ----------
    matrix : ndarray, shape (n, m)
        Row-stochastic.

    Returns
    -------
    keep : ndarray, shape (n, m)
        Probability of keeping an output that was drawn evenly.
    alias : ndarray of int, shape (n, m)
        What to report otherwise.

    Notes
    -----
    An output of probability below 1/m keeps it exactly as ``m`` times that probability and is
    nobody's alias, so that small probabilities, which decide about privacy, are not rounded away.
    """
    m = matrix.shape[1]
    keep = m * matrix / matrix.sum(axis=1, keepdims=True)
    alias = np.tile(np.arange(m, dtype=np.int32), (len(matrix), 1))
    _vose(keep, alias)
    return keep, alias


def induced_matrix(keep, alias):
    """Return the channel that alias tables sample from.

    Parameters
    ----------
    keep, alias : ndarray, shape (n, m)

    Returns
    -------
    ndarray, shape (n, m)
    """
    n, m = keep.shape
    matrix = keep / m
    np.add.at(matrix, (np.arange(n)[:, None], alias), (1 - keep) / m)
    return matrix


@numba.njit(cache=True)
def _vose(keep, alias):
    n, m = keep.shape
    small, large = np.empty(m, dtype=np.int64), np.empty(m, dtype=np.int64)
    for x in range(n):
        few = many = 0
        for y in range(m):
            if keep[x, y] < 1:
                small[few] = y
                few += 1
            else:
                large[many] = y
                many += 1
        while few and many:
            few -= 1
            poor, rich = small[few], large[many - 1]
            alias[x, poor] = rich
            keep[x, rich] -= 1 - keep[x, poor]
            if keep[x, rich] < 1:
                many -= 1
                small[few] = rich
                few += 1
        for k in range(few):  # rounding alone leaves these below one
            keep[x, small[k]] = 1.0
        for k in range(many):
            keep[x, large[k]] = 1.0


def _check_tables(keep, alias, channel):
    level = channel.privacy_level()
    sampled = privacy_level(induced_matrix(keep, alias), channel.distances)
    if sampled > level * (1 + _ROUNDING) + _ROUNDING:
        raise CertificationError(
            f"the alias tables sample at level {sampled:.10g}, the channel has {level:.10g}"
        )


def _plain(attribute):
    fields = asdict(attribute)
    fields["levels"] = [
        level.item() if isinstance(level, np.generic) else level for level in attribute.levels
    ]
    for level in fields["levels"]:
        if not isinstance(level, str | bool | int | float):
            raise DephdpError(
                f"attribute {attribute.name!r}: level {level!r} cannot be saved; use strings or "
                "numbers"
            )
    return fields


def _attribute(name, kind, levels, edges, range):
    def pair(values):
        return None if values is None else tuple(values)

    return Attribute(name, kind, tuple(levels), pair(edges), pair(range))
