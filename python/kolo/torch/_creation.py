"""Process groups, as torch asks for them."""

from __future__ import annotations

from typing import Any

import torch

from ._jobs import Jobs
from ._operations import Operations

if torch.__version__ >= (2, 14):  # type: ignore[operator]  # It compares itself with tuples.
    from ._backend import KoloBackend as _Form
else:
    from ._process_group import KoloProcessGroup as _Form  # type: ignore[assignment]

jobs = Jobs()
"""Those of this process."""


def create(opts: Any, backend_options: Any = None) -> Operations:
    """What torch calls for each process group: the backend of this rank."""
    group, job = jobs.member(
        opts.store,
        opts.group_rank,
        opts.group_size,
        opts.global_ranks_in_group,
        str(opts.group_id),
        opts.timeout,
    )
    # As torch demands it; so ranks that call different operations get an error that quotes both.
    group.keep_order()
    form = _Form(group, str(opts.group_id), opts.timeout, jobs.leave)
    jobs.keep(form, job)
    return form
