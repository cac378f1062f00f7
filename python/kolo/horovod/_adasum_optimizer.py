"""DistributedOptimizer with Adasum."""

from __future__ import annotations

from typing import Any, Callable, NoReturn

import torch
from torch import Tensor

from ._allreduce import grouped_allreduce
from ._errors import internal_errors
from ._process_sets import ProcessSet
from ._reduce_op import Adasum
from ._wrapping import Wrapping


class AdasumSteps(Wrapping):
    """Each rank makes its own update, by its own gradients; the changes are combined.

    State of the optimizer, such as momentum, differs between ranks.
    """

    _hvd_process_set: ProcessSet
    _hvd_compression: Any

    def synchronize(self) -> None:
        """Does nothing: gradients stay on their ranks."""

    def skip_synchronize(self) -> NoReturn:
        raise AssertionError("with op=hvd.Adasum there is nothing to skip: gradients stay on their ranks")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates the parameters, and combines the changes of all ranks."""
        parameters = [each for group in self.param_groups for each in group["params"] if each.requires_grad]
        before = [each.detach().clone() for each in parameters]
        loss = super().step(closure)
        changes: list[Tensor] = [each - old for each, old in zip(parameters, before)]
        with internal_errors():
            combined = grouped_allreduce(
                changes, None, "changes", self._hvd_compression, Adasum, process_set=self._hvd_process_set
            )
        for each, old, change in zip(parameters, before, combined):
            each.copy_(old + change)
        return loss
