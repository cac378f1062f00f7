"""Optimizers whose class gets something added."""

from __future__ import annotations

from typing import Any

import torch


class Wrapping(torch.optim.Optimizer):
    """What is put in front of the class of an optimizer."""


def wrapped(optimizer: torch.optim.Optimizer, wrapping: type[Wrapping]) -> Any:
    """`optimizer` as one of a class that derives from `wrapping` and its own. A former wrapping is left out."""
    own = type(optimizer).__bases__[1] if isinstance(optimizer, Wrapping) else type(optimizer)
    kind = type(own.__name__, (wrapping, own), {"__module__": own.__module__})
    made: Any = object.__new__(kind)
    # All but methods of the object's own, which a scheduler may have put there: they would hide those of the class.
    made.__dict__.update((key, value) for key, value in vars(optimizer).items() if key not in vars(wrapping))
    return made
