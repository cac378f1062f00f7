"""What <kolo/kolo_c.h> declares, but for names of dtypes and operations, which the library has.

scripts/generate-ctypes writes this file.
"""

from __future__ import annotations

from ctypes import CFUNCTYPE, POINTER, Structure, sizeof
from ctypes import c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any


class Sized(Structure):
    """A struct that begins with its size."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(size=sizeof(self), **fields)


KOLO_OK = 0
KOLO_USAGE = 1
KOLO_DATA = 2
KOLO_PEER_LOST = 3
KOLO_INTERNAL = 4
KOLO_RESOURCES = 5
KOLO_IO = 6
KOLO_TIMEOUT = 7
KOLO_STALL = 8
KOLO_MISMATCH = 9
KOLO_AUTH = 10
KOLO_CONFIG = 11
KOLO_SHUTDOWN = 12
KOLO_CANCELLED = 13
KOLO_SAME_DTYPE = 0
KOLO_FLOAT32 = 1
KOLO_FLOAT64 = 2
KOLO_FLOAT16 = 3
KOLO_BFLOAT16 = 4
KOLO_INT32 = 5
KOLO_INT64 = 6
KOLO_UINT8 = 7
KOLO_INT8 = 8
KOLO_BOOL = 9
KOLO_COMPLEX64 = 10
KOLO_COMPLEX128 = 11
KOLO_FLOAT8_E4M3 = 12
KOLO_FLOAT8_E5M2 = 13
KOLO_SUM = 0
KOLO_MIN = 1
KOLO_MAX = 2
KOLO_PROD = 3
KOLO_AVERAGE = 4
KOLO_BIT_AND = 5
KOLO_BIT_OR = 6
KOLO_BIT_XOR = 7
KOLO_PREMUL_SUM = 8
KOLO_HOST = 0
KOLO_DEVICE = 2
KOLO_ANY_RANK = -1
KOLO_ALL_RANKS = 0
KOLO_CONTRIBUTING_RANKS = 1
KOLO_SAMPLES = 2
KOLO_SPARSE = 1
KOLO_CORRECTS_MOMENTUM = 2
KOLO_WARMING_UP = 4
KOLO_AUTO_FORM = 0
KOLO_ROWS = 1
KOLO_TABLE = 2


class kolo_error(Sized):
    _fields_ = [
        ("size", c_size_t), ("status", c_int32), ("rank", c_int32), ("peer", c_int32), ("group", c_char_p),
        ("verb", c_char_p), ("tensor", c_char_p), ("what", c_char_p), ("text", c_char_p),
    ]


class kolo_buffer(Structure):
    _fields_ = [
        ("data", c_void_p), ("count", c_size_t), ("dtype", c_int32), ("memory", c_int32),
    ]


class kolo_tensor(Structure):
    _fields_ = [
        ("input", c_void_p), ("input_count", c_size_t), ("result", c_void_p), ("result_count", c_size_t),
        ("counts", POINTER(c_size_t)), ("num_counts", c_size_t), ("dtype", c_int32), ("memory", c_int32),
    ]


class kolo_setting(Structure):
    _fields_ = [
        ("name", c_char_p), ("value", c_char_p),
    ]

kolo_store_set = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t)

kolo_store_get = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int64, POINTER(c_void_p), POINTER(c_size_t))


class kolo_store(Sized):
    _fields_ = [
        ("size", c_size_t), ("context", c_void_p), ("set", kolo_store_set), ("get", kolo_store_get),
    ]


class kolo_open_options(Sized):
    _fields_ = [
        ("size", c_size_t), ("settings", POINTER(kolo_setting)), ("num_settings", c_size_t),
        ("store", POINTER(kolo_store)), ("rank", c_int32), ("world_size", c_int32), ("job", c_char_p),
    ]


class kolo_place(Sized):
    _fields_ = [
        ("size", c_size_t), ("rank", c_int32), ("world_size", c_int32), ("local_rank", c_int32),
        ("local_size", c_int32), ("node", c_int32), ("num_nodes", c_int32),
    ]


class kolo_group_options(Sized):
    _fields_ = [
        ("size", c_size_t), ("name", c_char_p), ("arena_bytes", c_size_t),
    ]


class kolo_call(Sized):
    _fields_ = [
        ("size", c_size_t), ("name", c_char_p), ("scale_before", c_double), ("scale_after", c_double),
        ("stream", c_void_p), ("wire_dtype", c_int32),
    ]


class kolo_received(Structure):
    _fields_ = [
        ("source", c_int32), ("count", c_size_t),
    ]


class kolo_gradient(Sized):
    _fields_ = [
        ("size", c_size_t), ("name", c_char_p), ("shape", POINTER(c_size_t)), ("num_dimensions", c_size_t),
        ("dtype", c_int32), ("memory", c_int32), ("data", c_void_p), ("compression", c_char_p), ("wire_dtype", c_int32),
    ]


class kolo_gradient_options(Sized):
    _fields_ = [
        ("size", c_size_t), ("op", c_int32), ("wire_dtype", c_int32), ("compression", c_char_p), ("divisor", c_int32),
    ]


class kolo_row_table(Structure):
    _fields_ = [
        ("height", c_size_t), ("width", c_size_t), ("indices", POINTER(c_int64)), ("num_indices", c_size_t),
        ("rows", c_void_p), ("dtype", c_int32), ("memory", c_int32),
    ]


class kolo_row_options(Sized):
    _fields_ = [
        ("size", c_size_t), ("op", c_int32), ("result", c_int32), ("exchange", c_int32),
    ]


FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "kolo_last_error": (POINTER(kolo_error), []),
    "kolo_status_name": (c_char_p, [c_int32]),
    "kolo_exit_status": (c_int, [c_int32]),
    "kolo_version": (c_char_p, []),
    "kolo_dtype_name": (c_char_p, [c_int32]),
    "kolo_dtype_size": (c_size_t, [c_int32]),
    "kolo_op_name": (c_char_p, [c_int32]),
    "kolo_op_takes": (c_int, [c_int32, c_int32]),
    "kolo_open": (c_int32, [POINTER(kolo_open_options), POINTER(c_void_p)]),
    "kolo_close": (c_int32, [c_void_p]),
    "kolo_abort": (c_int32, [c_void_p, c_char_p]),
    "kolo_release": (None, [c_void_p]),
    "kolo_leave_thread": (c_int32, [c_void_p]),
    "kolo_get_place": (c_int32, [c_void_p, POINTER(kolo_place)]),
    "kolo_get_setting": (c_int32, [c_void_p, c_char_p, POINTER(c_char_p)]),
    "kolo_link_costs": (c_char_p, [c_void_p]),
    "kolo_network_address": (c_char_p, [c_void_p]),
    "kolo_allocate": (c_int32, [c_void_p, c_size_t, POINTER(c_void_p)]),
    "kolo_free": (c_int32, [c_void_p, c_void_p]),
    "kolo_world": (c_void_p, [c_void_p]),
    "kolo_group_create": (c_int32, [c_void_p, POINTER(c_int32), c_size_t, POINTER(kolo_group_options), POINTER(c_void_p)]),
    "kolo_group_split": (c_int32, [c_void_p, c_int32, c_int32, POINTER(kolo_group_options), POINTER(c_void_p)]),
    "kolo_group_node": (c_int32, [c_void_p, POINTER(kolo_group_options), POINTER(c_void_p)]),
    "kolo_group_cross": (c_int32, [c_void_p, POINTER(kolo_group_options), POINTER(c_void_p)]),
    "kolo_group_keep_order": (c_int32, [c_void_p]),
    "kolo_group_close": (c_int32, [c_void_p]),
    "kolo_group_release": (None, [c_void_p]),
    "kolo_group_rank": (c_int32, [c_void_p]),
    "kolo_group_size": (c_int32, [c_void_p]),
    "kolo_group_ranks": (None, [c_void_p, POINTER(c_int32)]),
    "kolo_network_bytes_sent": (c_uint64, [c_void_p]),
    "kolo_all_reduce": (c_int32, [c_void_p, POINTER(kolo_tensor), c_size_t, c_int32, POINTER(kolo_call), POINTER(c_void_p)]),
    "kolo_broadcast": (c_int32, [c_void_p, POINTER(kolo_tensor), c_size_t, c_int32, POINTER(kolo_call), POINTER(c_void_p)]),
    "kolo_reduce": (c_int32, [c_void_p, POINTER(kolo_tensor), c_size_t, c_int32, c_int32, POINTER(kolo_call), POINTER(c_void_p)]),
    "kolo_reduce_scatter": (c_int32, [c_void_p, POINTER(kolo_tensor), c_size_t, c_int32, POINTER(kolo_call), POINTER(c_void_p)]),
    "kolo_all_gather": (c_int32, [c_void_p, POINTER(kolo_tensor), c_size_t, POINTER(kolo_call), POINTER(c_void_p)]),
    "kolo_gather": (c_int32, [c_void_p, POINTER(kolo_tensor), c_size_t, c_int32, POINTER(kolo_call), POINTER(c_void_p)]),
    "kolo_scatter": (c_int32, [c_void_p, POINTER(kolo_tensor), c_size_t, c_int32, POINTER(kolo_call), POINTER(c_void_p)]),
    "kolo_all_to_all": (c_int32, [c_void_p, POINTER(kolo_tensor), c_size_t, POINTER(kolo_call), POINTER(c_void_p)]),
    "kolo_barrier": (c_int32, [c_void_p, POINTER(c_void_p)]),
    "kolo_join": (c_int32, [c_void_p, POINTER(c_int32)]),
    "kolo_send": (c_int32, [c_void_p, POINTER(kolo_buffer), c_size_t, c_int32, c_uint64, c_void_p, POINTER(c_void_p)]),
    "kolo_recv": (c_int32, [c_void_p, POINTER(kolo_buffer), c_size_t, c_int32, c_uint64, c_void_p, POINTER(kolo_received), POINTER(c_void_p)]),
    "kolo_ticket_test": (c_int32, [c_void_p, POINTER(c_int)]),
    "kolo_ticket_wait": (c_int32, [c_void_p, c_int64, POINTER(c_int)]),
    "kolo_ticket_event": (c_int32, [c_void_p, POINTER(c_int)]),
    "kolo_ticket_received": (c_int32, [c_void_p, POINTER(kolo_received)]),
    "kolo_ticket_cancel": (c_int32, [c_void_p]),
    "kolo_ticket_release": (None, [c_void_p]),
    "kolo_register_gradients": (c_int32, [c_void_p, c_char_p, POINTER(kolo_gradient), c_size_t, POINTER(kolo_gradient_options), POINTER(c_void_p)]),
    "kolo_register_flat_gradients": (c_int32, [c_void_p, c_char_p, kolo_buffer, POINTER(c_size_t), c_size_t, POINTER(kolo_gradient_options), POINTER(c_void_p)]),
    "kolo_gradients_release": (None, [c_void_p]),
    "kolo_gradients_size": (c_size_t, [c_void_p]),
    "kolo_gradients_view": (c_int32, [c_void_p, c_size_t, POINTER(kolo_buffer)]),
    "kolo_gradients_ready": (c_int32, [c_void_p, c_size_t]),
    "kolo_gradients_ready_at": (c_int32, [c_void_p, c_size_t, c_void_p]),
    "kolo_gradients_ready_on": (c_int32, [c_void_p, c_size_t, c_void_p]),
    "kolo_gradients_absent": (c_int32, [c_void_p, c_size_t]),
    "kolo_gradients_absent_on": (c_int32, [c_void_p, c_size_t, c_void_p]),
    "kolo_gradients_give_up": (c_int32, [c_void_p]),
    "kolo_gradients_give_up_on": (c_int32, [c_void_p, c_void_p]),
    "kolo_gradients_set_samples": (c_int32, [c_void_p, c_double]),
    "kolo_gradients_wait": (c_int32, [c_void_p, c_int64, POINTER(c_int)]),
    "kolo_gradients_wait_one": (c_int32, [c_void_p, c_size_t, c_int64, POINTER(c_int)]),
    "kolo_gradients_event": (c_int32, [c_void_p, POINTER(c_int)]),
    "kolo_gradients_take_combined": (c_int32, [c_void_p, POINTER(c_size_t), POINTER(c_size_t)]),
    "kolo_gradients_wait_on": (c_int32, [c_void_p, c_void_p]),
    "kolo_gradients_plan": (c_char_p, [c_void_p]),
    "kolo_gradients_statistics": (c_char_p, [c_void_p]),
    "kolo_gradients_flags": (c_int32, [c_void_p, c_size_t, POINTER(c_uint32)]),
    "kolo_gradients_flush": (c_int32, [c_void_p]),
    "kolo_gradients_drop": (c_int32, [c_void_p]),
    "kolo_gradients_save": (c_int32, [c_void_p, POINTER(c_void_p), POINTER(c_size_t)]),
    "kolo_gradients_load": (c_int32, [c_void_p, c_void_p, c_size_t]),
    "kolo_gradients_remap": (c_int32, [c_void_p, POINTER(c_void_p), POINTER(c_size_t), c_size_t]),
    "kolo_gradients_residual_norm": (c_int32, [c_void_p, c_char_p, POINTER(c_double)]),
    "kolo_check_equal": (c_int32, [c_void_p, c_char_p, POINTER(kolo_buffer), POINTER(c_char_p), c_size_t]),
    "kolo_row_sums_create": (c_int32, [POINTER(c_void_p)]),
    "kolo_row_sums_release": (None, [c_void_p]),
    "kolo_sparse_all_reduce": (c_int32, [c_void_p, POINTER(kolo_row_table), c_size_t, POINTER(kolo_row_options), POINTER(kolo_call), POINTER(c_void_p), POINTER(c_void_p)]),
    "kolo_ticket_row_sums": (c_int32, [c_void_p, POINTER(c_void_p), c_size_t]),
    "kolo_row_sums_get": (c_int32, [c_void_p, POINTER(c_int), POINTER(POINTER(c_int64)), POINTER(c_size_t), POINTER(kolo_buffer)]),
}
