#include <span>
#include <vector>

#include <kolo/kolo_c.h>

#include "runtime/c/arguments.h"
#include "runtime/c/guard.h"
#include "runtime/c/handles.h"

using kolo::buffer_of;
using kolo::CallArguments;
using kolo::check_given;
using kolo::guarded;
using kolo::TensorBuffers;
using kolo::Tensors;
using kolo::Ticket;

namespace {

/// Runs `blocking`, or starts `async` and gives its ticket.
template <typename Blocking, typename Async>
void run_or_start(kolo_ticket** ticket, const Blocking& blocking, const Async& async) {
  if (ticket == nullptr) {
    blocking();
  } else {
    *ticket = nullptr;
    *ticket = new kolo_ticket{async()};
  }
}

}  // namespace

kolo_status kolo_all_reduce(kolo_group* group, const void* input, kolo_buffer result, kolo_op op,
                            const kolo_call* call, kolo_ticket** ticket) {
  return guarded([&] {
    check_given(group, "group");
    const CallArguments with(call);
    with.check_whole();
    const auto reduction = with.reduction(op);
    const auto view = buffer_of(result);
    kolo::Group& on = group->group;
    if (input == nullptr) {
      run_or_start(
          ticket, [&] { on.all_reduce(with.name, view, reduction, with.stream); },
          [&] { return on.all_reduce_async(with.name, view, reduction, with.stream); });
    } else {
      run_or_start(
          ticket, [&] { on.all_reduce(with.name, input, view, reduction, with.stream); },
          [&] { return on.all_reduce_async(with.name, input, view, reduction, with.stream); });
    }
  });
}

kolo_status kolo_broadcast(kolo_group* group, kolo_buffer buffer, int32_t root,
                           const kolo_call* call, kolo_ticket** ticket) {
  return guarded([&] {
    check_given(group, "group");
    const CallArguments with(call);
    with.check_whole();
    with.check_unscaled();
    const auto view = buffer_of(buffer);
    kolo::Group& on = group->group;
    run_or_start(
        ticket, [&] { on.broadcast(with.name, view, root, with.stream); },
        [&] { return on.broadcast_async(with.name, view, root, with.stream); });
  });
}

kolo_status kolo_broadcast_from(kolo_group* group, const void* input, kolo_buffer result,
                                int32_t root, const kolo_call* call, kolo_ticket** ticket) {
  return guarded([&] {
    check_given(group, "group");
    const CallArguments with(call);
    with.check_whole();
    with.check_unscaled();
    const auto view = buffer_of(result);
    kolo::Group& on = group->group;
    run_or_start(
        ticket, [&] { on.broadcast(with.name, input, view, root, with.stream); },
        [&] { return on.broadcast_async(with.name, input, view, root, with.stream); });
  });
}

kolo_status kolo_reduce(kolo_group* group, const void* input, kolo_buffer result, int32_t root,
                        kolo_op op, const kolo_call* call, kolo_ticket** ticket) {
  return guarded([&] {
    check_given(group, "group");
    const CallArguments with(call);
    with.check_whole();
    const auto reduction = with.reduction(op);
    const auto view = buffer_of(result);
    kolo::Group& on = group->group;
    run_or_start(
        ticket, [&] { on.reduce(with.name, input, view, root, reduction, with.stream); },
        [&] { return on.reduce_async(with.name, input, view, root, reduction, with.stream); });
  });
}

kolo_status kolo_reduce_scatter(kolo_group* group, const void* input, kolo_buffer result,
                                kolo_op op, const kolo_call* call, kolo_ticket** ticket) {
  return guarded([&] {
    check_given(group, "group");
    const CallArguments with(call);
    const auto reduction = with.reduction(op);
    const auto view = buffer_of(result);
    kolo::Group& on = group->group;
    run_or_start(
        ticket,
        [&] { on.reduce_scatter(with.name, input, view, reduction, with.counts, with.stream); },
        [&] {
          return on.reduce_scatter_async(with.name, input, view, reduction, with.counts,
                                         with.stream);
        });
  });
}

kolo_status kolo_all_gather(kolo_group* group, const void* input, kolo_buffer result,
                            const kolo_call* call, kolo_ticket** ticket) {
  return guarded([&] {
    check_given(group, "group");
    const CallArguments with(call);
    with.check_unscaled();
    const auto view = buffer_of(result);
    kolo::Group& on = group->group;
    run_or_start(
        ticket, [&] { on.all_gather(with.name, input, view, with.counts, with.stream); },
        [&] { return on.all_gather_async(with.name, input, view, with.counts, with.stream); });
  });
}

kolo_status kolo_gather(kolo_group* group, kolo_buffer input, void* result, int32_t root,
                        const kolo_call* call, kolo_ticket** ticket) {
  return guarded([&] {
    check_given(group, "group");
    const CallArguments with(call);
    with.check_unscaled();
    const auto view = buffer_of(input);
    kolo::Group& on = group->group;
    run_or_start(
        ticket, [&] { on.gather(with.name, view, result, root, with.counts, with.stream); },
        [&] { return on.gather_async(with.name, view, result, root, with.counts, with.stream); });
  });
}

kolo_status kolo_scatter(kolo_group* group, const void* input, kolo_buffer result, int32_t root,
                         const kolo_call* call, kolo_ticket** ticket) {
  return guarded([&] {
    check_given(group, "group");
    const CallArguments with(call);
    with.check_unscaled();
    const auto view = buffer_of(result);
    kolo::Group& on = group->group;
    run_or_start(
        ticket, [&] { on.scatter(with.name, input, view, root, with.counts, with.stream); },
        [&] { return on.scatter_async(with.name, input, view, root, with.counts, with.stream); });
  });
}

kolo_status kolo_all_to_all(kolo_group* group, const void* input, kolo_buffer result,
                            const kolo_call* call, kolo_ticket** ticket) {
  return guarded([&] {
    check_given(group, "group");
    const CallArguments with(call);
    with.check_unscaled();
    const auto view = buffer_of(result);
    kolo::Group& on = group->group;
    run_or_start(
        ticket, [&] { on.all_to_all(with.name, input, view, with.counts, with.stream); },
        [&] { return on.all_to_all_async(with.name, input, view, with.counts, with.stream); });
  });
}

kolo_status kolo_barrier(kolo_group* group, kolo_ticket** ticket) {
  return guarded([&] {
    check_given(group, "group");
    kolo::Group& on = group->group;
    run_or_start(
        ticket, [&] { on.barrier(); }, [&] { return on.barrier_async(); });
  });
}

kolo_status kolo_join(kolo_group* group, int32_t* last_rank) {
  return guarded([&] {
    check_given(group, "group");
    const int last = group->group.join();
    if (last_rank != nullptr) *last_rank = last;
  });
}

// --- Grouped
// --------------------------------------------------------------------------------------

namespace {

/// `counts` are as many for each tensor, if there are any.
std::vector<TensorBuffers> buffers_of(std::span<const kolo_tensor> tensors,
                                      kolo::PartCounts counts) {
  const size_t parts = tensors.empty() ? 0 : counts.size() / tensors.size();
  kolo::check(parts * tensors.size() == counts.size(),
              fmt::format("there are {} counts for {} tensors, not as many for each", counts.size(),
                          tensors.size()));
  std::vector<TensorBuffers> each;
  each.reserve(tensors.size());
  for (const kolo_tensor& tensor : tensors) {
    each.push_back({.input = tensor.input,
                    .result = tensor.result,
                    .count = tensor.count,
                    .counts = counts.subspan(each.size() * parts, parts)});
  }
  return each;
}

/// Begins the collective on the tensors.
Ticket start_grouped(kolo::Group& on, kolo_collective collective, const Tensors& tensors,
                     int32_t root, kolo_op op, const CallArguments& with) {
  switch (collective) {
    case KOLO_ALL_REDUCE:
      return on.all_reduce_async(with.name, tensors, with.reduction(op), with.stream);
    case KOLO_BROADCAST:
      return on.broadcast_async(with.name, tensors, root, with.stream);
    case KOLO_REDUCE:
      return on.reduce_async(with.name, tensors, root, with.reduction(op), with.stream);
    case KOLO_REDUCE_SCATTER:
      return on.reduce_scatter_async(with.name, tensors, with.reduction(op), with.stream);
    case KOLO_ALL_GATHER:
      return on.all_gather_async(with.name, tensors, with.stream);
    case KOLO_GATHER:
      return on.gather_async(with.name, tensors, root, with.stream);
    case KOLO_SCATTER:
      return on.scatter_async(with.name, tensors, root, with.stream);
    case KOLO_ALL_TO_ALL:
      return on.all_to_all_async(with.name, tensors, with.stream);
    default:
      throw kolo::UsageError(fmt::format("{} is not a collective", collective));
  }
}

}  // namespace

kolo_status kolo_grouped(kolo_group* group, kolo_collective collective, const kolo_tensor* tensors,
                         size_t num_tensors, kolo_dtype dtype, int32_t root, kolo_op op,
                         const kolo_call* call, kolo_ticket** ticket) {
  return guarded([&] {
    check_given(group, "group");
    if (num_tensors > 0) check_given(tensors, "tensors");
    const CallArguments with(call);
    if (collective != KOLO_ALL_REDUCE && collective != KOLO_REDUCE &&
        collective != KOLO_REDUCE_SCATTER) {
      with.check_unscaled();
    }
    const std::vector<TensorBuffers> each = buffers_of({tensors, num_tensors}, with.counts);
    const Tensors all{.dtype = kolo::dtype_of(dtype), .each = each, .memory = with.memory};
    const auto start = [&] { return start_grouped(group->group, collective, all, root, op, with); };
    run_or_start(
        ticket, [&] { start().wait(); }, start);
  });
}

// --- Messages
// -------------------------------------------------------------------------------------

namespace {

std::vector<kolo::BufferView> views_of(const kolo_buffer* tensors, size_t num_tensors) {
  if (num_tensors > 0) check_given(tensors, "tensors");
  std::vector<kolo::BufferView> views;
  views.reserve(num_tensors);
  for (const kolo_buffer& tensor : std::span(tensors, num_tensors)) {
    views.push_back(buffer_of(tensor));
  }
  return views;
}

void send_all(kolo_group* group, std::span<const kolo::BufferView> tensors, int32_t peer,
              uint64_t tag, kolo_ticket** ticket) {
  check_given(group, "group");
  run_or_start(
      ticket, [&] { group->group.send(tensors, peer, tag); },
      [&] { return group->group.send_async(tensors, peer, tag); });
}

void receive_all(kolo_group* group, std::span<const kolo::BufferView> tensors, int32_t peer,
                 uint64_t tag, kolo_received* received, kolo_ticket** ticket) {
  check_given(group, "group");
  const auto receive = [&] {
    const kolo::Received got = group->group.recv(tensors, peer, tag);
    if (received != nullptr) *received = {.source = got.source, .count = got.count};
  };
  run_or_start(ticket, receive, [&] { return group->group.recv_async(tensors, peer, tag); });
}

}  // namespace

kolo_status kolo_send(kolo_group* group, kolo_buffer buffer, int32_t peer, uint64_t tag,
                      kolo_ticket** ticket) {
  return guarded([&] {
    const auto view = buffer_of(buffer);
    send_all(group, {&view, 1}, peer, tag, ticket);
  });
}

kolo_status kolo_recv(kolo_group* group, kolo_buffer buffer, int32_t peer, uint64_t tag,
                      kolo_received* received, kolo_ticket** ticket) {
  return guarded([&] {
    const auto view = buffer_of(buffer);
    receive_all(group, {&view, 1}, peer, tag, received, ticket);
  });
}

kolo_status kolo_grouped_send(kolo_group* group, const kolo_buffer* tensors, size_t num_tensors,
                              int32_t peer, uint64_t tag, kolo_ticket** ticket) {
  return guarded([&] { send_all(group, views_of(tensors, num_tensors), peer, tag, ticket); });
}

kolo_status kolo_grouped_recv(kolo_group* group, const kolo_buffer* tensors, size_t num_tensors,
                              int32_t peer, uint64_t tag, kolo_received* received,
                              kolo_ticket** ticket) {
  return guarded(
      [&] { receive_all(group, views_of(tensors, num_tensors), peer, tag, received, ticket); });
}
