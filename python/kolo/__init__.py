"""Kolo: collectives and gradient averaging for data-parallel programs.

    import numpy as np, kolo

    with kolo.open() as job:            # mpirun, torchrun, srun or alone
        x = np.ones(1000, np.float32)
        job.all_reduce(x)               # in place, over all ranks

The package calls Kolo's C library, libkolo.so.2, and loads it at the first `open`. If the library is neither beside
this package nor in the loader's search path, KOLO_LIBRARY must name it.

The reference is in the docstrings: `help(kolo.Runtime)`, `help(kolo.Group)`, `help(kolo.GradientSet)`.
"""

from __future__ import annotations

from . import kv
from ._buffers import Memory
from ._errors import (
    AuthenticationError, CancelledError, ConfigError, DataError, DeadlineError, InternalError, IoError, KoloError,
    MismatchError, PeerLostError, ResourceError, ShutdownError, StallError, Status, UsageError,
)  # fmt: skip
from ._gradients import Gradient, GradientFlags, GradientSet
from ._group import Group
from ._library import library
from ._messages import ANY_RANK
from ._rows import Rows
from ._runtime import Runtime, Store, open
from ._wait import Received, Ticket

__version__ = "0.1.0"


def library_version() -> str:
    """Returns the version of the C library."""
    return str(library().kolo_version().decode())


__all__ = [
    "ANY_RANK", "AuthenticationError", "CancelledError", "ConfigError", "DataError", "DeadlineError", "Gradient",
    "GradientFlags", "GradientSet", "Group", "InternalError", "IoError", "KoloError", "Memory", "MismatchError",
    "PeerLostError", "Received", "ResourceError", "Rows", "Runtime", "ShutdownError", "StallError", "Status",
    "Store", "Ticket", "UsageError", "kv", "library_version", "open",
]  # fmt: skip

for _name in __all__:  # Errors and help() show the public module name.
    if hasattr(globals()[_name], "__module__"):
        globals()[_name].__module__ = __name__
del _name
