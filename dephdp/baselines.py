"""What DepHDP is compared with: the methods of the paper, and local references without a metric.

Each function returns a `DepHDP` whose Stages 3 and 4 are set as the method has them; everything
else (domain, task, groups, prior, ...) is passed through, so that methods differ in nothing else.
Liu, Oluwole and Qiu (2026) name them by two choices.

=====  ============================================================================
SPL    the budget is split evenly among the groups
ALC    the budget is allocated by convex envelopes (Stage 4)
DPN    every group gets predefined noise: the exponential mechanism of exponent ε/2
RMP    the same, remapped to the best guess about each report
-m     an optimal mechanism where the noise is not MSE-like: score at most 0.3
-r     an optimal mechanism where the loss is not radial: score at most 0.3
-s     groups, surrogate and scores from 62.5 % of the records, the rest designed for
=====  ============================================================================
"""

from dephdp.design import DepHDP
from dephdp.ldp import FakeDataSampling, RandomSampling, amplified_budget

__all__ = [
    "METHODS",
    "SPLIT_METHODS",
    "FakeDataSampling",
    "RandomSampling",
    "alc_dpn",
    "alc_rmp",
    "amplified_budget",
    "dephdp_m",
    "dephdp_m_s",
    "dephdp_r",
    "dephdp_r_s",
    "spl_dpn",
    "spl_rmp",
]

_SPL = {"select": "never", "allocation": "even"}
_ALC = {"select": "never", "allocation": "envelope"}
_DPN = {"noise": "exponential"}
_RMP = {"noise": "exponential+remap"}
_FITTING = 0.625


def spl_dpn(epsilon, p=2, **options):
    """Return SPL+DPN: the exponential mechanism, the budget split evenly.

    Parameters
    ----------
    epsilon : float
        Budget of a whole record.
    p : float, optional
        Exponent of the record metric, in [1, ∞].
    **options
        Other parameters of `DepHDP`.

    Returns
    -------
    DepHDP
        Not fitted yet.
    """
    return DepHDP(epsilon, p, **{**_SPL, **_DPN, **options})


def spl_rmp(epsilon, p=2, **options):
    """Return SPL+RMP: the exponential mechanism and a Bayesian remap, the budget split evenly.

    Parameters
    ----------
    epsilon, p, **options
        As in `spl_dpn`.

    Returns
    -------
    DepHDP
    """
    return DepHDP(epsilon, p, **{**_SPL, **_RMP, **options})


def alc_dpn(epsilon, p=2, **options):
    """Return ALC+DPN: the exponential mechanism, the budget allocated by envelopes.

    Parameters
    ----------
    epsilon, p, **options
        As in `spl_dpn`; ``allocation="exact"`` improves on the envelopes.

    Returns
    -------
    DepHDP
    """
    return DepHDP(epsilon, p, **{**_ALC, **_DPN, **options})


def alc_rmp(epsilon, p=2, **options):
    """Return ALC+RMP: the exponential mechanism and a remap, the budget allocated by envelopes.

    Parameters
    ----------
    epsilon, p, **options
        As in `alc_dpn`.

    Returns
    -------
    DepHDP
    """
    return DepHDP(epsilon, p, **{**_ALC, **_RMP, **options})


def dephdp_m(epsilon, p=2, **options):
    """Return DepHDP-m: the paper's method with the MSE-likeness score.

    Parameters
    ----------
    epsilon, p, **options
        As in `spl_dpn`. On the groups that are not optimised, section 3.5 of the paper has the
        exponential mechanism, the default here; its appendix D.4 remaps it, which is
        ``noise="exponential+remap"``.

    Returns
    -------
    DepHDP
    """
    return DepHDP(epsilon, p, **{"select": "mse", "allocation": "envelope", **_DPN, **options})


def dephdp_r(epsilon, p=2, **options):
    """Return DepHDP-r: the paper's method with the radial-fit score.

    Parameters
    ----------
    epsilon, p, **options
        As in `dephdp_m`.

    Returns
    -------
    DepHDP
    """
    return DepHDP(epsilon, p, **{"select": "radial", "allocation": "envelope", **_DPN, **options})


def dephdp_m_s(epsilon, p=2, **options):
    """Return DepHDP-m-s: DepHDP-m with a fitting part of 62.5 % of the records.

    Parameters
    ----------
    epsilon, p, **options
        As in `dephdp_m`.

    Returns
    -------
    DepHDP
        Its mechanisms and its loss are for the other records. What the mechanisms of the fitting
        part lose on others is another question: see `DepHDP.evaluate`.
    """
    return dephdp_m(epsilon, p, **{"fitting": _FITTING, **options})


def dephdp_r_s(epsilon, p=2, **options):
    """Return DepHDP-r-s: DepHDP-r with a fitting part of 62.5 % of the records.

    Parameters
    ----------
    epsilon, p, **options
        As in `dephdp_m_s`.

    Returns
    -------
    DepHDP
    """
    return dephdp_r(epsilon, p, **{"fitting": _FITTING, **options})


METHODS = {
    "SPL+DPN": spl_dpn,
    "SPL+RMP": spl_rmp,
    "ALC+DPN": alc_dpn,
    "ALC+RMP": alc_rmp,
    "DepHDP-r": dephdp_r,
    "DepHDP-m": dephdp_m,
}
"""The methods that take all records, by the names that the paper gives them."""

SPLIT_METHODS = {"DepHDP-r-s": dephdp_r_s, "DepHDP-m-s": dephdp_m_s}
"""Those that are configured from one part of the records and designed for the other."""
