"""The parameters of Horovod 0.28's calls for PyTorch, with their defaults: scripts pass them by place and by name."""

_REDUCED = "average=None, name=None, {}op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=all"
_SCATTERED = "name=None, {}op=Average, process_set=all, prescale_factor=1.0, postscale_factor=1.0"
_MOVED = "name=None, process_set=all"
_COMPRESSED = "compression=none, "

SIGNATURES = {
    "init": "comm=None, process_sets=None",
    **dict.fromkeys(("shutdown", "is_initialized", "rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"), ""),
    "allreduce": "tensor, " + _REDUCED.format(_COMPRESSED),
    **dict.fromkeys(("allreduce_", "allreduce_async", "allreduce_async_"), "tensor, " + _REDUCED.format("")),
    "grouped_allreduce": "tensors, " + _REDUCED.format(_COMPRESSED),
    **dict.fromkeys(
        ("grouped_allreduce_", "grouped_allreduce_async", "grouped_allreduce_async_"), "tensors, " + _REDUCED.format("")
    ),
    "sparse_allreduce_async": "tensor, name, op, process_set=all",
    **dict.fromkeys(("allgather", "allgather_async"), "tensor, " + _MOVED),
    **dict.fromkeys(("grouped_allgather", "grouped_allgather_async"), "tensors, " + _MOVED),
    **dict.fromkeys(("broadcast", "broadcast_", "broadcast_async", "broadcast_async_"), "tensor, root_rank, " + _MOVED),
    **dict.fromkeys(("alltoall", "alltoall_async"), "tensor, splits=None, " + _MOVED),
    "reducescatter": "tensor, " + _SCATTERED.format(_COMPRESSED),
    "reducescatter_async": "tensor, " + _SCATTERED.format(""),
    "grouped_reducescatter": "tensors, " + _SCATTERED.format(_COMPRESSED),
    "grouped_reducescatter_async": "tensors, " + _SCATTERED.format(""),
    "poll": "handle",
    "synchronize": "handle",
    "join": "device=-1",
    "barrier": "process_set=all",
    "broadcast_parameters": "params, root_rank",
    "broadcast_optimizer_state": "optimizer, root_rank, model=None",
    "broadcast_object": "obj, root_rank=0, name=None, process_set=all",
    "allgather_object": "obj, name=None",
    "add_process_set": "process_set",
    "remove_process_set": "process_set",
    "DistributedOptimizer": "optimizer, named_parameters=None, compression=none, backward_passes_per_step=1, op=Average, "
    "gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False, process_set=all",
    "start_timeline": "file_path, mark_cycles=False",
    "stop_timeline": "",
}
