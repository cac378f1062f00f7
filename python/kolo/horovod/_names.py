"""Names of operations, by which ranks that have tensors of other shapes disagree."""

from __future__ import annotations

import zlib
from typing import Sequence

from torch import Tensor

# Names of many tensors have a digest of their shapes.
_LONGEST = 200


def name_of_tensors(verb: str, name: str | None, tensors: Sequence[Tensor], terms: str) -> str | None:
    """The name of an operation `verb` that the user calls `name`, whose tensors have the same shapes on all ranks.

    Kolo compares types and numbers of elements. Shapes that these do not tell are a part of the name; one without a name
    of the user's then has its other `terms` in it, too. None: Kolo is to name it.
    """
    shapes = [tuple(tensor.shape) for tensor in tensors]
    is_told = all(len(shape) == 1 for shape in shapes)
    return _name(verb, name, [] if is_told else shapes, tensors[0], terms)


def name_of_rows(verb: str, name: str | None, part: int | None, tensor: Tensor) -> str | None:
    """The same where ranks have any number of rows, of the same shape. `part`: number of the tensor, where it has one."""
    own = name if name is None or part is None else f"{name}.{part}"
    row = tuple(tensor.shape[1:])
    is_told = not row or (len(row) == 1 and row != (1,))
    return _name(verb, own, [] if is_told else [row], tensor, "rows")


def _name(verb: str, name: str | None, shapes: list[tuple[int, ...]], sample: Tensor, terms: str) -> str | None:
    if not shapes:
        return name and f"{verb}.{name}"
    text = " + ".join(str(list(shape)) for shape in shapes)
    if len(text) > _LONGEST:
        text = f"{len(shapes)} shapes {zlib.crc32(text.encode()):08x}"
    return f"{verb}.{name} {text}" if name else f"{verb} {sample.dtype} {text} {terms}"
