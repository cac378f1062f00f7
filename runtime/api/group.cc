#include "runtime/api/group.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/log.h"
#include "runtime/api/runtime_state.h"
#include "runtime/calls/rows/row_reduction.h"
#include "runtime/gradients/compression_choice.h"
#include "runtime/gradients/gradient_compression.h"

namespace kolo {

Group::Group(std::shared_ptr<MemberState> state) : state_(std::move(state)) {}
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&&) noexcept = default;
Group::~Group() = default;

int Group::rank() const {
  state_->enter();
  return state_->rank();
}
int Group::size() const { return state_->grid().world_size(); }
const std::vector<int>& Group::ranks_of_job() const { return state_->ranks_of_job(); }

// --- Groups of this group -----------------------------------------------------------------------

Group Group::group(const std::vector<int>& ranks, GroupOptions options) const {
  return Group(state_->found(ranks, options));
}

std::optional<Group> Group::split(int color, int key, GroupOptions options) const {
  struct Place {
    std::int32_t color, key;
  };
  static_assert(sizeof(Place) == 2 * sizeof(std::int32_t));
  const Place mine{color, key};
  std::vector<Place> places(static_cast<std::size_t>(size()));
  state_->run({}, [&](auto& calls) {
    auto operation =
        calls.all_gather("split", &mine, {places.data(), 2 * places.size(), DType::kInt32}, {});
    operation->space = NameSpace::kRuntime;
    return operation;
  });
  if (color < 0) return std::nullopt;
  std::vector<int> ranks;
  for (int each = 0; each < size(); ++each) {
    if (places[static_cast<std::size_t>(each)].color == color) ranks.push_back(each);
  }
  std::ranges::stable_sort(ranks, {},
                           [&](int each) { return places[static_cast<std::size_t>(each)].key; });
  return group(ranks, std::move(options));
}

Group Group::node_group(GroupOptions options) const {
  const ProcessGrid& grid = state_->grid();
  return group(grid.ranks_of_node(grid.node(rank())), std::move(options));
}

Group Group::cross_group(GroupOptions options) const {
  return group(state_->grid().cross_group(rank()), std::move(options));
}

std::uint64_t Group::network_bytes_sent() const { return state_->network_bytes_sent(); }

void Group::keep_order() { state_->keep_order(); }

int Group::join() { return state_->join(); }

void Group::close() { state_->close(); }

// --- Collectives --------------------------------------------------------------------------------

GradientSet Group::register_gradients(std::string_view name, std::vector<GradientSpec> gradients,
                                      GradientOptions options) {
  if (!options.wire_dtype) options.wire_dtype = state_->options().wire_dtype;
  if (options.compression.empty()) options.compression = state_->options().compression;
  state_->within_group([&] {
    check(!name.empty(), "a gradient set needs a name");
    complete(gradients);
    check_gradients(gradients, options);
    resolve_compression(gradients, CompressionRules::parse(options.compression));
    check_compression(gradients, options);
    if (state_->options().reproducible) check_reproducible(gradients);
  });
  CompressionChoices choices = choose_compression(gradients, state_->grid(), state_->costs());
  for (const CompressionDecision& decision : choices.decisions) {
    if (rank() == 0) log::info("compression: " + to_string(decision));
  }
  auto group = std::make_shared<GradientGroup>(std::string(name), std::move(gradients), options,
                                               std::move(choices));
  return GradientSet(
      state_, state_->within_group([&] { return state_->register_group(std::move(group)); }));
}

Ticket Group::all_reduce_async(std::string_view name, BufferView buffer, const Reduction& reduction,
                               NativeStream stream) {
  return state_->submit(stream,
                        [&](auto& calls) { return calls.all_reduce(name, buffer, reduction); });
}

void Group::all_reduce(std::string_view name, BufferView buffer, const Reduction& reduction,
                       NativeStream stream) {
  state_->run(stream, [&](auto& calls) { return calls.all_reduce(name, buffer, reduction); });
}

Ticket Group::all_reduce_async(std::string_view name, const void* input, BufferView result,
                               const Reduction& reduction, NativeStream stream) {
  return state_->submit(
      stream, [&](auto& calls) { return calls.all_reduce(name, input, result, reduction); });
}

void Group::all_reduce(std::string_view name, const void* input, BufferView result,
                       const Reduction& reduction, NativeStream stream) {
  state_->run(stream,
              [&](auto& calls) { return calls.all_reduce(name, input, result, reduction); });
}

Ticket Group::broadcast_async(std::string_view name, BufferView buffer, int root,
                              NativeStream stream) {
  return state_->submit(stream, [&](auto& calls) { return calls.broadcast(name, buffer, root); });
}

void Group::broadcast(std::string_view name, BufferView buffer, int root, NativeStream stream) {
  state_->run(stream, [&](auto& calls) { return calls.broadcast(name, buffer, root); });
}

Ticket Group::broadcast_async(std::string_view name, const void* input, BufferView result, int root,
                              NativeStream stream) {
  return state_->submit(stream,
                        [&](auto& calls) { return calls.broadcast(name, input, result, root); });
}

void Group::broadcast(std::string_view name, const void* input, BufferView result, int root,
                      NativeStream stream) {
  state_->run(stream, [&](auto& calls) { return calls.broadcast(name, input, result, root); });
}

Ticket Group::reduce_async(std::string_view name, const void* input, BufferView result, int root,
                           const Reduction& reduction, NativeStream stream) {
  return state_->submit(
      stream, [&](auto& calls) { return calls.reduce(name, input, result, root, reduction); });
}

void Group::reduce(std::string_view name, const void* input, BufferView result, int root,
                   const Reduction& reduction, NativeStream stream) {
  state_->run(stream,
              [&](auto& calls) { return calls.reduce(name, input, result, root, reduction); });
}

Ticket Group::reduce_scatter_async(std::string_view name, const void* input, BufferView result,
                                   const Reduction& reduction, PartCounts counts,
                                   NativeStream stream) {
  return state_->submit(stream, [&](auto& calls) {
    return calls.reduce_scatter(name, input, result, reduction, counts);
  });
}

void Group::reduce_scatter(std::string_view name, const void* input, BufferView result,
                           const Reduction& reduction, PartCounts counts, NativeStream stream) {
  state_->run(stream, [&](auto& calls) {
    return calls.reduce_scatter(name, input, result, reduction, counts);
  });
}

Ticket Group::all_gather_async(std::string_view name, const void* input, BufferView result,
                               PartCounts counts, NativeStream stream) {
  return state_->submit(stream,
                        [&](auto& calls) { return calls.all_gather(name, input, result, counts); });
}

void Group::all_gather(std::string_view name, const void* input, BufferView result,
                       PartCounts counts, NativeStream stream) {
  state_->run(stream, [&](auto& calls) { return calls.all_gather(name, input, result, counts); });
}

Ticket Group::gather_async(std::string_view name, BufferView input, void* result, int root,
                           PartCounts counts, NativeStream stream) {
  return state_->submit(
      stream, [&](auto& calls) { return calls.gather(name, input, result, root, counts); });
}

void Group::gather(std::string_view name, BufferView input, void* result, int root,
                   PartCounts counts, NativeStream stream) {
  state_->run(stream, [&](auto& calls) { return calls.gather(name, input, result, root, counts); });
}

Ticket Group::scatter_async(std::string_view name, const void* input, BufferView result, int root,
                            PartCounts counts, NativeStream stream) {
  return state_->submit(
      stream, [&](auto& calls) { return calls.scatter(name, input, result, root, counts); });
}

void Group::scatter(std::string_view name, const void* input, BufferView result, int root,
                    PartCounts counts, NativeStream stream) {
  state_->run(stream,
              [&](auto& calls) { return calls.scatter(name, input, result, root, counts); });
}

Ticket Group::all_to_all_async(std::string_view name, const void* input, BufferView result,
                               PartCounts counts, NativeStream stream) {
  return state_->submit(stream,
                        [&](auto& calls) { return calls.all_to_all(name, input, result, counts); });
}

void Group::all_to_all(std::string_view name, const void* input, BufferView result,
                       PartCounts counts, NativeStream stream) {
  state_->run(stream, [&](auto& calls) { return calls.all_to_all(name, input, result, counts); });
}

// --- Grouped ------------------------------------------------------------------------------------

Ticket Group::all_reduce_async(std::string_view name, const Tensors& tensors,
                               const Reduction& reduction, NativeStream stream) {
  return state_->submit(stream, [&](auto& calls) {
    return calls.grouped(OperationKind::kAllReduce, name, tensors, 0, reduction);
  });
}

void Group::all_reduce(std::string_view name, const Tensors& tensors, const Reduction& reduction,
                       NativeStream stream) {
  state_->run(stream, [&](auto& calls) {
    return calls.grouped(OperationKind::kAllReduce, name, tensors, 0, reduction);
  });
}

Ticket Group::broadcast_async(std::string_view name, const Tensors& tensors, int root,
                              NativeStream stream) {
  return state_->submit(stream, [&](auto& calls) {
    return calls.grouped(OperationKind::kBroadcast, name, tensors, root);
  });
}

void Group::broadcast(std::string_view name, const Tensors& tensors, int root,
                      NativeStream stream) {
  state_->run(stream, [&](auto& calls) {
    return calls.grouped(OperationKind::kBroadcast, name, tensors, root);
  });
}

Ticket Group::reduce_async(std::string_view name, const Tensors& tensors, int root,
                           const Reduction& reduction, NativeStream stream) {
  return state_->submit(stream, [&](auto& calls) {
    return calls.grouped(OperationKind::kReduce, name, tensors, root, reduction);
  });
}

void Group::reduce(std::string_view name, const Tensors& tensors, int root,
                   const Reduction& reduction, NativeStream stream) {
  state_->run(stream, [&](auto& calls) {
    return calls.grouped(OperationKind::kReduce, name, tensors, root, reduction);
  });
}

Ticket Group::reduce_scatter_async(std::string_view name, const Tensors& tensors,
                                   const Reduction& reduction, NativeStream stream) {
  return state_->submit(stream, [&](auto& calls) {
    return calls.grouped(OperationKind::kReduceScatter, name, tensors, 0, reduction);
  });
}

void Group::reduce_scatter(std::string_view name, const Tensors& tensors,
                           const Reduction& reduction, NativeStream stream) {
  state_->run(stream, [&](auto& calls) {
    return calls.grouped(OperationKind::kReduceScatter, name, tensors, 0, reduction);
  });
}

Ticket Group::all_gather_async(std::string_view name, const Tensors& tensors, NativeStream stream) {
  return state_->submit(
      stream, [&](auto& calls) { return calls.grouped(OperationKind::kAllGather, name, tensors); });
}

void Group::all_gather(std::string_view name, const Tensors& tensors, NativeStream stream) {
  state_->run(stream,
              [&](auto& calls) { return calls.grouped(OperationKind::kAllGather, name, tensors); });
}

Ticket Group::gather_async(std::string_view name, const Tensors& tensors, int root,
                           NativeStream stream) {
  return state_->submit(stream, [&](auto& calls) {
    return calls.grouped(OperationKind::kGather, name, tensors, root);
  });
}

void Group::gather(std::string_view name, const Tensors& tensors, int root, NativeStream stream) {
  state_->run(stream, [&](auto& calls) {
    return calls.grouped(OperationKind::kGather, name, tensors, root);
  });
}

Ticket Group::scatter_async(std::string_view name, const Tensors& tensors, int root,
                            NativeStream stream) {
  return state_->submit(stream, [&](auto& calls) {
    return calls.grouped(OperationKind::kScatter, name, tensors, root);
  });
}

void Group::scatter(std::string_view name, const Tensors& tensors, int root, NativeStream stream) {
  state_->run(stream, [&](auto& calls) {
    return calls.grouped(OperationKind::kScatter, name, tensors, root);
  });
}

Ticket Group::all_to_all_async(std::string_view name, const Tensors& tensors, NativeStream stream) {
  return state_->submit(
      stream, [&](auto& calls) { return calls.grouped(OperationKind::kAllToAll, name, tensors); });
}

void Group::all_to_all(std::string_view name, const Tensors& tensors, NativeStream stream) {
  state_->run(stream,
              [&](auto& calls) { return calls.grouped(OperationKind::kAllToAll, name, tensors); });
}

// --- Rows, messages, barrier ---------------------------------------------------------------------

void Group::sparse_all_reduce(std::string_view name, const RowTable& table,
                              std::span<const std::int64_t> indices, const void* rows,
                              RowSums& sums, const RowOptions& options, NativeStream stream) {
  const TableRows only{.table = table, .indices = indices, .rows = rows};
  sparse_all_reduce(name, {&only, 1}, {&sums, 1}, options, stream);
}

RowTicket Group::sparse_all_reduce_async(std::string_view name, const RowTable& table,
                                         std::span<const std::int64_t> indices, const void* rows,
                                         const RowOptions& options, RowSums memory,
                                         NativeStream stream) {
  const TableRows only{.table = table, .indices = indices, .rows = rows};
  std::vector<RowSums> memories;
  memories.push_back(std::move(memory));
  return sparse_all_reduce_async(name, {&only, 1}, options, std::move(memories), stream);
}

void Group::sparse_all_reduce(std::string_view name, std::span<const TableRows> tables,
                              std::span<RowSums> sums, const RowOptions& options,
                              NativeStream stream) {
  state_->within_group([&] {
    check(sums.size() == tables.size(),
          fmt::format("there are {} results for {} tables", sums.size(), tables.size()));
  });
  if (!tables.empty() && tables.front().table.memory == MemoryKind::kDevice) {
    // The thread that drives the engine polls the device, too.
    std::vector<RowSums> memory(std::move_iterator(sums.begin()), std::move_iterator(sums.end()));
    RowTicket ticket = sparse_all_reduce_async(name, tables, options, std::move(memory), stream);
    std::ranges::move(ticket.all_sums(), sums.begin());
    return;
  }
  RowReduction reduction = state_->within_group(
      [&] { return RowReduction(state_->plan_inputs(), name, tables, options, sums); });
  state_->run_sequence(reduction);
  std::ranges::move(reduction.take(), sums.begin());
}

RowTicket Group::sparse_all_reduce_async(std::string_view name, std::span<const TableRows> tables,
                                         const RowOptions& options, std::vector<RowSums> memory,
                                         NativeStream stream) {
  auto reduction = state_->within_group([&] {
    memory.resize(tables.size());
    return std::make_shared<RowReduction>(state_->plan_inputs(), name, tables, options, memory,
                                          RowDevice{state_->device(), stream});
  });
  state_->submit_sequence(reduction);
  return {std::move(reduction), state_->shared_driver(), state_->limit()};
}

Ticket Group::send_async(BufferView buffer, int peer, std::uint64_t tag, NativeStream stream) {
  return send_async(std::span(&buffer, 1), peer, tag, stream);
}

void Group::send(BufferView buffer, int peer, std::uint64_t tag, NativeStream stream) {
  send(std::span(&buffer, 1), peer, tag, stream);
}

ReceiveTicket Group::recv_async(BufferView buffer, int peer, std::uint64_t tag,
                                NativeStream stream) {
  return recv_async(std::span(&buffer, 1), peer, tag, stream);
}

Received Group::recv(BufferView buffer, int peer, std::uint64_t tag, NativeStream stream) {
  return recv(std::span(&buffer, 1), peer, tag, stream);
}

Ticket Group::send_async(std::span<const BufferView> tensors, int peer, std::uint64_t tag,
                         NativeStream stream) {
  return {state_->messages().begin(Message::Kind::kSend, tensors, peer, tag, stream),
          state_->shared_driver(), state_->limit()};
}

void Group::send(std::span<const BufferView> tensors, int peer, std::uint64_t tag,
                 NativeStream stream) {
  state_->messages().run(Message::Kind::kSend, tensors, peer, tag, stream);
}

ReceiveTicket Group::recv_async(std::span<const BufferView> tensors, int peer, std::uint64_t tag,
                                NativeStream stream) {
  return {state_->messages().begin(Message::Kind::kReceive, tensors, peer, tag, stream),
          state_->engine(), state_->shared_driver(), state_->limit()};
}

Received Group::recv(std::span<const BufferView> tensors, int peer, std::uint64_t tag,
                     NativeStream stream) {
  return state_->messages().run(Message::Kind::kReceive, tensors, peer, tag, stream);
}

Ticket Group::barrier_async() {
  return state_->submit({}, [](auto& calls) { return calls.plain(OperationKind::kBarrier); });
}
void Group::barrier() {
  state_->run({}, [](auto& calls) { return calls.plain(OperationKind::kBarrier); });
}

}  // namespace kolo
