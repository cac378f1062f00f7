#include <chrono>
#include <span>
#include <vector>

#include <kolo/kolo_c.h>

#include "runtime/c/arguments.h"
#include "runtime/c/handles.h"

using kolo::Buffers;
using kolo::BufferView;
using kolo::CallArguments;
using kolo::check_given;
using kolo::guarded;
using kolo::guarded_on;
using kolo::Tensor;
using kolo::Tensors;

namespace {

Tensor tensor_of(const kolo_tensor& tensor) {
  const kolo::DType dtype = kolo::dtype_of(tensor.dtype);
  const kolo::MemoryKind memory = kolo::memory_of(tensor.memory);
  if (tensor.num_counts > 0) check_given(tensor.counts, "counts");
  const kolo::PartCounts counts(tensor.counts, tensor.num_counts);
  const BufferView result(tensor.result, tensor.result_count, dtype, memory);
  if (tensor.input == nullptr && tensor.input_count == 0) return {result, counts};
  return {kolo::ConstBuffer(tensor.input, tensor.input_count, dtype, memory), result, counts};
}

/// Calls `use` with a list of the results of `make`; a single result needs no heap memory.
template <typename Given, typename Make, typename Use>
void with_each(const Given* given, size_t number, const Make& make, const Use& use) {
  if (number == 1) return use(make(*given));
  std::vector<decltype(make(*given))> list;
  list.reserve(number);
  for (const Given& each : std::span(given, number)) list.push_back(make(each));
  use(list);
}

/// Waits for the operation if `ticket` is null, else writes its ticket.
void wait_or_give(kolo::Ticket begun, kolo_ticket** ticket) {
  if (ticket == nullptr) {
    begun.wait();
  } else {
    *ticket = new kolo_ticket{std::move(begun)};
  }
}

/// Runs or starts a collective; `begin(on, tensors, with)` begins it.
template <typename Begin>
kolo_status collective(kolo_group* group, const kolo_tensor* tensors, size_t num_tensors,
                       const kolo_call* call, kolo_ticket** ticket, const Begin& begin) noexcept {
  return guarded([&] {
    if (ticket != nullptr) *ticket = nullptr;
    check_given(group, "group");
    if (num_tensors > 0) check_given(tensors, "tensors");
    const CallArguments with(call);
    with_each(tensors, num_tensors, tensor_of,
              [&](const Tensors& all) { wait_or_give(begin(group->group, all, with), ticket); });
  });
}

/// Runs or starts a collective that moves elements.
template <auto kBegin, typename... Root>
kolo_status moved(kolo_group* group, const kolo_tensor* tensors, size_t num_tensors,
                  const kolo_call* call, kolo_ticket** ticket, Root... root) noexcept {
  return collective(group, tensors, num_tensors, call, ticket,
                    [&](kolo::Group& on, const Tensors& all, const CallArguments& with) {
                      with.check_unscaled();
                      return (on.*kBegin)(with.name, all, root..., with.stream);
                    });
}

/// Runs or starts a collective that combines elements.
template <auto kBegin, typename... Root>
kolo_status reduced(kolo_group* group, const kolo_tensor* tensors, size_t num_tensors, kolo_op op,
                    const kolo_call* call, kolo_ticket** ticket, Root... root) noexcept {
  return collective(group, tensors, num_tensors, call, ticket,
                    [&](kolo::Group& on, const Tensors& all, const CallArguments& with) {
                      return (on.*kBegin)(with.name, all, root..., with.reduction(op), with.stream);
                    });
}

}  // namespace

kolo_status kolo_all_reduce(kolo_group* group, const kolo_tensor* tensors, size_t num_tensors,
                            kolo_op op, const kolo_call* call, kolo_ticket** ticket) {
  return reduced<&kolo::Group::all_reduce>(group, tensors, num_tensors, op, call, ticket);
}

kolo_status kolo_broadcast(kolo_group* group, const kolo_tensor* tensors, size_t num_tensors,
                           int32_t root, const kolo_call* call, kolo_ticket** ticket) {
  return moved<&kolo::Group::broadcast>(group, tensors, num_tensors, call, ticket, root);
}

kolo_status kolo_reduce(kolo_group* group, const kolo_tensor* tensors, size_t num_tensors,
                        int32_t root, kolo_op op, const kolo_call* call, kolo_ticket** ticket) {
  return reduced<&kolo::Group::reduce>(group, tensors, num_tensors, op, call, ticket, root);
}

kolo_status kolo_reduce_scatter(kolo_group* group, const kolo_tensor* tensors, size_t num_tensors,
                                kolo_op op, const kolo_call* call, kolo_ticket** ticket) {
  return reduced<&kolo::Group::reduce_scatter>(group, tensors, num_tensors, op, call, ticket);
}

kolo_status kolo_all_gather(kolo_group* group, const kolo_tensor* tensors, size_t num_tensors,
                            const kolo_call* call, kolo_ticket** ticket) {
  return moved<&kolo::Group::all_gather>(group, tensors, num_tensors, call, ticket);
}

kolo_status kolo_gather(kolo_group* group, const kolo_tensor* tensors, size_t num_tensors,
                        int32_t root, const kolo_call* call, kolo_ticket** ticket) {
  return moved<&kolo::Group::gather>(group, tensors, num_tensors, call, ticket, root);
}

kolo_status kolo_scatter(kolo_group* group, const kolo_tensor* tensors, size_t num_tensors,
                         int32_t root, const kolo_call* call, kolo_ticket** ticket) {
  return moved<&kolo::Group::scatter>(group, tensors, num_tensors, call, ticket, root);
}

kolo_status kolo_all_to_all(kolo_group* group, const kolo_tensor* tensors, size_t num_tensors,
                            const kolo_call* call, kolo_ticket** ticket) {
  return moved<&kolo::Group::all_to_all>(group, tensors, num_tensors, call, ticket);
}

kolo_status kolo_barrier(kolo_group* group, kolo_ticket** ticket) {
  return guarded([&] {
    if (ticket != nullptr) *ticket = nullptr;
    check_given(group, "group");
    wait_or_give(group->group.barrier(), ticket);
  });
}

kolo_status kolo_join(kolo_group* group, int32_t* last_rank) {
  return guarded_on(group, "group", [&] {
    const int last = group->group.join();
    if (last_rank != nullptr) *last_rank = last;
  });
}

// --- Messages -----------------------------------------------------------------------------------

namespace {

/// Starts a send or receive by `begin(on, buffers)`; without `ticket`, also waits for its end.
template <typename Begin>
kolo_status message(kolo_group* group, const kolo_buffer* buffers, size_t num_buffers,
                    kolo_ticket** ticket, const Begin& begin) noexcept {
  return guarded([&] {
    if (ticket != nullptr) *ticket = nullptr;
    check_given(group, "group");
    if (num_buffers > 0) check_given(buffers, "buffers");
    with_each(
        buffers, num_buffers, [](const kolo_buffer& each) { return kolo::buffer_of(each); },
        [&](const Buffers& all) { begin(group->group, all); });
  });
}

}  // namespace

kolo_status kolo_send(kolo_group* group, const kolo_buffer* buffers, size_t num_buffers,
                      int32_t peer, uint64_t tag, void* stream, kolo_ticket** ticket) {
  return message(group, buffers, num_buffers, ticket, [&](kolo::Group& on, const Buffers& all) {
    wait_or_give(on.send(all, peer, tag, {stream}), ticket);
  });
}

kolo_status kolo_recv(kolo_group* group, const kolo_buffer* buffers, size_t num_buffers,
                      int32_t peer, uint64_t tag, void* stream, kolo_received* received,
                      kolo_ticket** ticket) {
  return message(group, buffers, num_buffers, ticket, [&](kolo::Group& on, const Buffers& all) {
    kolo::Ticket begun = on.recv(all, peer, tag, {stream});
    if (ticket != nullptr) return wait_or_give(std::move(begun), ticket);
    const kolo::Received got = begun.received();
    if (received != nullptr) *received = {.source = got.source, .count = got.count};
  });
}

// --- Tickets ------------------------------------------------------------------------------------

kolo_status kolo_ticket_test(kolo_ticket* ticket, int* done) {
  return guarded_on(ticket, "ticket", [&] {
    check_given(done, "done");
    *done = ticket->ticket.done() ? 1 : 0;
  });
}

kolo_status kolo_ticket_wait(kolo_ticket* ticket, int64_t timeout_ms, int* done) {
  return guarded_on(ticket, "ticket", [&] {
    bool is_done = true;
    if (done != nullptr) *done = 0;
    if (timeout_ms < 0) {
      ticket->ticket.wait();
    } else {
      is_done = ticket->ticket.wait_for(std::chrono::milliseconds(timeout_ms));
    }
    if (done != nullptr) *done = is_done ? 1 : 0;
  });
}

kolo_status kolo_ticket_wait_on(kolo_ticket* ticket, void* stream, int64_t timeout_ms, int* done) {
  return guarded_on(ticket, "ticket", [&] {
    const kolo::NativeStream on{stream};
    bool is_ordered = true;
    if (done != nullptr) *done = 0;
    if (timeout_ms < 0) {
      ticket->ticket.wait(on);
    } else {
      is_ordered = ticket->ticket.wait_for(std::chrono::milliseconds(timeout_ms), on);
    }
    if (done != nullptr) *done = is_ordered ? 1 : 0;
  });
}

kolo_status kolo_ticket_enqueued(kolo_ticket* ticket, int* enqueued, int* descriptor) {
  return guarded_on(ticket, "ticket", [&] {
    check_given(enqueued, "enqueued");
    if (descriptor != nullptr) *descriptor = ticket->ticket.enqueued_event();
    *enqueued = ticket->ticket.enqueued() ? 1 : 0;
  });
}

kolo_status kolo_ticket_event(kolo_ticket* ticket, int* descriptor) {
  return guarded_on(ticket, "ticket", [&] {
    check_given(descriptor, "descriptor");
    *descriptor = ticket->ticket.event();
  });
}

kolo_status kolo_ticket_received(kolo_ticket* ticket, kolo_received* received) {
  return guarded_on(ticket, "ticket", [&] {
    check_given(received, "received");
    const kolo::Received got = ticket->ticket.received();
    *received = {.source = got.source, .count = got.count};
  });
}

kolo_status kolo_ticket_cancel(kolo_ticket* ticket) {
  return guarded_on(ticket, "ticket", [&] { ticket->ticket.cancel(); });
}

void kolo_ticket_release(kolo_ticket* ticket) { delete ticket; }
