"""Named exceptions: each message says what is wrong, where, and what to do about it."""


class DephdpError(ValueError):
    """Base class of every error that this package raises on purpose."""


class InvalidFrame(DephdpError):
    """A table of records is empty, has missing values or has ambiguous columns."""


class InvalidDomain(DephdpError):
    """An attribute is declared inconsistently, or a value lies outside its declared domain."""


class InvalidGroup(DephdpError):
    """A group of attributes has no usable set of states, or a record is none of its states."""


class InvalidTask(DephdpError):
    """A task is configured inconsistently, or its statistic does not fit the records."""


class InvalidMetric(DephdpError):
    """A distance matrix breaks an axiom of the (extended pseudo-)metric it claims to be."""


class InvalidChannel(DephdpError):
    """A matrix is not a row-stochastic channel on the states it is used with."""


class InvalidDistribution(DephdpError):
    """A prior is not a probability distribution over the states it is used with."""


class InvalidLoss(DephdpError):
    """A loss matrix has the wrong shape or entries that are not finite."""


class InvalidBudget(DephdpError):
    """A privacy budget or a composition exponent lies outside its range."""


class InfeasibleMechanism(DephdpError):
    """A closed-form mechanism does not exist for this metric and budget."""


class CertificationError(DephdpError):
    """A mechanism does not meet the privacy level it was asked to certify."""


class SolverError(DephdpError):
    """A solver stopped without a usable answer."""
