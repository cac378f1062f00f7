"""The stream of a call on device memory that names none.

This is the current stream of the library that an array comes from, torch or CuPy, in the calling thread. For memory
of other origin, and where these libraries are in their default stream, it is the legacy default stream of CUDA.
"""

from __future__ import annotations

import sys
from typing import Any, Iterable

from ._buffers import Memory


def torch_stream(tensor: Any) -> int:
    """Returns torch's current stream for the device of a tensor, a cudaStream_t."""
    return int(sys.modules["torch"].cuda.current_stream(tensor.device).cuda_stream)


def _cupy_stream(array: Any) -> int:
    with array.device:
        return int(sys.modules["cupy"].cuda.get_current_stream().ptr)


def stream_for(stream: int | None, memories: Iterable[Memory | None]) -> int | None:
    """Returns `stream`, or if that is None the stream of the first of `memories` in device memory, a cudaStream_t. None
    is the legacy default stream."""
    if stream is not None:
        return stream
    first = next((each for each in memories if each is not None and each.is_device), None)
    if first is None:
        return None
    owner = first.owner[0] if isinstance(first.owner, tuple) else first.owner
    if isinstance(owner, Memory):
        return stream_for(None, [owner])
    for library, array, current in (("torch", "Tensor", torch_stream), ("cupy", "ndarray", _cupy_stream)):
        if library in sys.modules and isinstance(owner, getattr(sys.modules[library], array)):
            return current(owner)
    return None
