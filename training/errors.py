"""Every error that `training` raises on purpose.

A message says what is wrong, where, and what to do about it. Callers that only want to know "is this
Gradstorm speaking, or a bug?" catch `GradstormError`; everything else that escapes is a bug.
"""


class GradstormError(Exception):
    """Base of all errors that Gradstorm raises deliberately."""


class ConfigurationError(GradstormError):
    """The user asked for something that cannot be; fixed by changing a setting."""


class DataError(GradstormError):
    """A dataset (file or bytes) cannot be used; fixed by changing the data."""


class CheckpointError(GradstormError):
    """A checkpoint is damaged, missing, or belongs to another run; the message names the file."""


class ContractError(GradstormError):
    """Two roles disagree about shape, dtype or ids; nothing was summed or applied."""


class NonFiniteError(ContractError):
    """A number that has to be finite is NaN or infinite; the message says where. Nothing was encoded or applied."""
