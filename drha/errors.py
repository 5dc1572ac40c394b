"""Named exceptions: each message says what is wrong, where, and what to do about it."""


class DrhaError(ValueError):
    """Base class of every error that this package raises on purpose."""


class InvalidFrame(DrhaError):
    """A table of records is empty, has missing values or has ambiguous columns."""


class InvalidTable(DrhaError):
    """A frequency table is declared inconsistently."""


class InvalidCounts(DrhaError):
    """Cell counts are negative, fractional, not finite or of the wrong shape."""


class InvalidNoise(DrhaError):
    """A noise parameter lies outside its range."""


class InvalidModel(DrhaError):
    """A probability vector, a Dirichlet parameter or a distribution of sizes is not one."""


class InvalidQuestion(DrhaError):
    """A target, a measure or a range of epsilon does not ask a question that has an answer."""


class NoSafeEpsilon(DrhaError):
    """Disclosure risk alone does not choose an epsilon for this table and target."""


class NotEstimable(DrhaError):
    """The data do not determine a parameter, or an iteration did not end."""


class BoundaryEstimate(DrhaError):
    """The data ask for a limit of the model, where its usual parameters are 0 or infinite."""
