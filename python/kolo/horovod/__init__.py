"""Horovod's interface for PyTorch, over Kolo.

    import kolo.horovod as hvd      # in place of: import horovod.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

Start the program by mpirun, torchrun or srun. `docs/horovod.md` lists the differences from Horovod.
"""

from __future__ import annotations

from . import elastic
from ._allreduce import *  # noqa: F403
from ._collectives import *  # noqa: F403
from ._functions import *  # noqa: F403
from ._job import *  # noqa: F403
from ._operations import *  # noqa: F403
from ._optimizer import *  # noqa: F403
from ._reductions import *  # noqa: F403
from ._sync_batch_norm import *  # noqa: F403
