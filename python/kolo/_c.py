"""Kolo's C interface, as <kolo/kolo_c.h> declares it: constants, structs and functions under their C names.

A test compares all of it with the header.
"""

from __future__ import annotations

import ctypes
import re
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_size_t, c_void_p
from typing import Any, TypeVar

(
    KOLO_OK, KOLO_USAGE, KOLO_DATA, KOLO_PEER_LOST, KOLO_INTERNAL, KOLO_RESOURCES, KOLO_IO, KOLO_TIMEOUT, KOLO_STALL,
    KOLO_MISMATCH, KOLO_AUTH, KOLO_CONFIG, KOLO_SHUTDOWN, KOLO_CANCELLED,
) = range(14)  # fmt: skip
(
    KOLO_FLOAT32, KOLO_FLOAT64, KOLO_FLOAT16, KOLO_BFLOAT16, KOLO_INT32, KOLO_INT64, KOLO_UINT8, KOLO_INT8,
    KOLO_BOOL, KOLO_COMPLEX64, KOLO_COMPLEX128, KOLO_FLOAT8_E4M3, KOLO_FLOAT8_E5M2,
) = range(13)  # fmt: skip
KOLO_SAME_DTYPE = -1
(
    KOLO_SUM, KOLO_MIN, KOLO_MAX, KOLO_PROD, KOLO_AVERAGE, KOLO_BIT_AND, KOLO_BIT_OR, KOLO_BIT_XOR, KOLO_PREMUL_SUM,
) = range(9)  # fmt: skip
KOLO_HOST = 0
KOLO_DEVICE = 2
(
    KOLO_ALL_REDUCE, KOLO_BROADCAST, KOLO_REDUCE, KOLO_REDUCE_SCATTER, KOLO_ALL_GATHER, KOLO_GATHER, KOLO_SCATTER,
    KOLO_ALL_TO_ALL,
) = range(8)  # fmt: skip
KOLO_ANY_RANK = -1
KOLO_ALL_RANKS, KOLO_CONTRIBUTING_RANKS, KOLO_SAMPLES = range(3)
KOLO_SPARSE = 1
KOLO_CORRECTS_MOMENTUM = 2
KOLO_WARMING_UP = 4
KOLO_AUTO_FORM, KOLO_ROWS, KOLO_TABLE = range(3)

STORE_SET = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t)
STORE_GET = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int64, POINTER(c_void_p), POINTER(c_size_t))

_TYPES: dict[str, Any] = {
    "void": None,
    "ptr": c_void_p,  # To anything that is not looked into here.
    "text": c_char_p,
    "size": c_size_t,
    "store_set": STORE_SET,
    "store_get": STORE_GET,
    **{name: getattr(ctypes, f"c_{name}") for name in ("int", "int32", "int64", "uint32", "uint64", "double")},
}


def _type(text: str) -> Any:
    """Of a name with stars behind it."""
    if text.endswith("*"):
        return POINTER(_type(text[:-1]))
    return _TYPES[text] if text in _TYPES else globals()[text]


def _fields(text: str) -> list[tuple[str, Any]]:
    return [(name, _type(kind)) for kind, name in (each.split() for each in text.split(", "))]


class kolo_error(Structure):
    _fields_ = _fields(
        "size size, int32 status, int32 rank, int32 peer, text group, text verb, text tensor, text what, text text"
    )


class kolo_buffer(Structure):
    _fields_ = _fields("ptr data, size count, int32 dtype, int32 memory")


class kolo_setting(Structure):
    _fields_ = _fields("text name, text value")


class kolo_store(Structure):
    _fields_ = _fields("size size, ptr context, store_set set, store_get get")


class kolo_open_options(Structure):
    _fields_ = _fields(
        "size size, kolo_setting* settings, size num_settings, kolo_store* store, int32 rank, int32 world_size, "
        "text job"
    )


class kolo_place(Structure):
    _fields_ = _fields(
        "size size, int32 rank, int32 world_size, int32 local_rank, int32 local_size, int32 node, int32 num_nodes"
    )


class kolo_group_options(Structure):
    _fields_ = _fields("size size, text name, size arena_bytes")


class kolo_call(Structure):
    _fields_ = _fields(
        "size size, text name, double scale_before, double scale_after, size* counts, size num_counts, "
        "ptr stream, int32 memory, int32* wire_dtype"
    )


class kolo_tensor(Structure):
    _fields_ = _fields("ptr input, ptr result, size count")


class kolo_received(Structure):
    _fields_ = _fields("int32 source, size count")


class kolo_gradient(Structure):
    _fields_ = _fields(
        "size size, text name, size* shape, size num_dimensions, int32 dtype, int32 memory, ptr data, "
        "text compression, int32 wire_dtype"
    )


class kolo_gradient_options(Structure):
    _fields_ = _fields("size size, int32 op, int32 wire_dtype, text compression, int32 divisor")


class kolo_row_table(Structure):
    _fields_ = _fields(
        "size size, size height, size width, int32 dtype, int32 op, int32 result, int32 exchange, "
        "double scale_before, double scale_after, int32 memory, ptr stream"
    )


class kolo_table_rows(Structure):
    _fields_ = _fields("size height, size width, int64* indices, size num_indices, ptr rows")


FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    name: (_type(result), [_type(each) for each in arguments.split(", ") if each])
    for result, name, arguments in re.findall(
        r"^(\S+) (\w+)\((.*)\)$",
        """
kolo_error* kolo_last_error()
text kolo_status_name(int32)
int kolo_exit_status(int32)
text kolo_version()
int32 kolo_open(kolo_open_options*, ptr*)
int32 kolo_close(ptr)
int32 kolo_abort(ptr, text)
void kolo_release(ptr)
int32 kolo_leave_thread(ptr)
int32 kolo_get_place(ptr, kolo_place*)
int32 kolo_get_setting(ptr, text, text*)
text kolo_link_costs(ptr)
text kolo_network_address(ptr)
int32 kolo_allocate(ptr, size, ptr*)
int32 kolo_free(ptr, ptr)
ptr kolo_world(ptr)
int32 kolo_group_create(ptr, int32*, size, kolo_group_options*, ptr*)
int32 kolo_group_split(ptr, int32, int32, kolo_group_options*, ptr*)
int32 kolo_group_node(ptr, kolo_group_options*, ptr*)
int32 kolo_group_cross(ptr, kolo_group_options*, ptr*)
int32 kolo_group_keep_order(ptr)
int32 kolo_group_close(ptr)
void kolo_group_release(ptr)
int32 kolo_group_rank(ptr)
int32 kolo_group_size(ptr)
void kolo_group_ranks(ptr, int32*)
uint64 kolo_network_bytes_sent(ptr)
int32 kolo_all_reduce(ptr, ptr, kolo_buffer, int32, kolo_call*, ptr*)
int32 kolo_broadcast(ptr, kolo_buffer, int32, kolo_call*, ptr*)
int32 kolo_broadcast_from(ptr, ptr, kolo_buffer, int32, kolo_call*, ptr*)
int32 kolo_reduce(ptr, ptr, kolo_buffer, int32, int32, kolo_call*, ptr*)
int32 kolo_reduce_scatter(ptr, ptr, kolo_buffer, int32, kolo_call*, ptr*)
int32 kolo_all_gather(ptr, ptr, kolo_buffer, kolo_call*, ptr*)
int32 kolo_gather(ptr, kolo_buffer, ptr, int32, kolo_call*, ptr*)
int32 kolo_scatter(ptr, ptr, kolo_buffer, int32, kolo_call*, ptr*)
int32 kolo_all_to_all(ptr, ptr, kolo_buffer, kolo_call*, ptr*)
int32 kolo_barrier(ptr, ptr*)
int32 kolo_grouped(ptr, int32, kolo_tensor*, size, int32, int32, int32, kolo_call*, ptr*)
int32 kolo_join(ptr, int32*)
int32 kolo_send(ptr, kolo_buffer, int32, uint64, ptr*)
int32 kolo_recv(ptr, kolo_buffer, int32, uint64, kolo_received*, ptr*)
int32 kolo_grouped_send(ptr, kolo_buffer*, size, int32, uint64, ptr*)
int32 kolo_grouped_recv(ptr, kolo_buffer*, size, int32, uint64, kolo_received*, ptr*)
int32 kolo_ticket_test(ptr, int*)
int32 kolo_ticket_wait(ptr, int64, int*)
int32 kolo_ticket_event(ptr, int*)
int32 kolo_ticket_received(ptr, kolo_received*)
int32 kolo_ticket_cancel(ptr)
void kolo_ticket_release(ptr)
int32 kolo_register_gradients(ptr, text, kolo_gradient*, size, kolo_gradient_options*, ptr*)
void kolo_gradients_release(ptr)
size kolo_gradients_size(ptr)
int32 kolo_gradients_view(ptr, size, kolo_buffer*)
int32 kolo_gradients_ready(ptr, size)
int32 kolo_gradients_ready_at(ptr, size, ptr)
int32 kolo_gradients_ready_on(ptr, size, ptr)
int32 kolo_gradients_absent(ptr, size)
int32 kolo_gradients_absent_on(ptr, size, ptr)
int32 kolo_gradients_set_samples(ptr, double)
int32 kolo_gradients_wait(ptr, int64, int*)
int32 kolo_gradients_wait_one(ptr, size, int64, int*)
int32 kolo_gradients_event(ptr, int*)
int32 kolo_gradients_take_combined(ptr, size*, size*)
int32 kolo_gradients_wait_on(ptr, ptr)
text kolo_gradients_plan(ptr)
text kolo_gradients_statistics(ptr)
int32 kolo_gradients_flags(ptr, size, uint32*)
int32 kolo_gradients_flush(ptr)
int32 kolo_gradients_drop(ptr)
int32 kolo_gradients_save(ptr, ptr*, size*)
int32 kolo_gradients_load(ptr, ptr, size)
int32 kolo_gradients_remap(ptr, ptr*, size*, size)
int32 kolo_gradients_residual_norm(ptr, text, double*)
int32 kolo_row_sums_create(ptr*)
void kolo_row_sums_release(ptr)
int32 kolo_sparse_all_reduce(ptr, text, kolo_row_table*, int64*, size, ptr, ptr)
int32 kolo_sparse_all_reduce_async(ptr, text, kolo_row_table*, int64*, size, ptr, ptr, ptr*)
int32 kolo_ticket_row_sums(ptr, ptr)
int32 kolo_grouped_sparse_all_reduce(ptr, text, kolo_row_table*, kolo_table_rows*, size, ptr*, ptr*)
int32 kolo_ticket_grouped_row_sums(ptr, ptr*, size)
int32 kolo_row_sums_get(ptr, int*, int64**, size*, kolo_buffer*)
""",
        re.MULTILINE,
    )
}


def declare(library: ctypes.CDLL) -> None:
    """Gives the functions of a loaded library their types. Errors: AttributeError for a missing one."""
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments


_Struct = TypeVar("_Struct", bound=Structure)


def sized(struct: type[_Struct], **fields: Any) -> _Struct:
    """A struct that begins with its size."""
    return struct(size=ctypes.sizeof(struct), **fields)
