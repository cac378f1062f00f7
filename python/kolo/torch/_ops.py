"""torch's reductions as Kolo's."""

from __future__ import annotations

from typing import Any

from torch._C._distributed_c10d import ReduceOp

from kolo import UsageError

_NAMES = {
    ReduceOp.SUM: "sum",
    ReduceOp.AVG: "average",
    ReduceOp.PRODUCT: "prod",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
    ReduceOp.BAND: "bit_and",
    ReduceOp.BOR: "bit_or",
    ReduceOp.BXOR: "bit_xor",
    ReduceOp.PREMUL_SUM: "premul_sum",
}


def reduction(op: Any) -> dict[str, Any]:
    """The keywords `op` and `scale_before` of Kolo's operations for a `ReduceOp` or a `RedOpType`."""
    kind = op.op if isinstance(op, ReduceOp) else op
    name = _NAMES.get(kind)
    if name is None:
        raise UsageError(f"Kolo has no reduction {op}; it has {', '.join(str(each) for each in _NAMES)}")
    if name != "premul_sum":
        return {"op": name}
    _, factor = op.__getstate__()  # Older torch has no attribute for it.
    return {"op": name, "scale_before": float(factor)}
