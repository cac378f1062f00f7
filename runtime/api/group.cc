#include "runtime/api/group.h"

#include <algorithm>
#include <utility>

#include "comm/base/check.h"
#include "comm/base/log.h"
#include "fusion/gradient_checks.h"
#include "runtime/api/runtime_state.h"
#include "runtime/gradients/compression_choice.h"
#include "runtime/gradients/gradient_compression.h"

namespace kolo {

Group::Group(std::shared_ptr<GroupState> state) : state_(std::move(state)) {}
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
  return Group(state_->create(ranks, options));
}

std::optional<Group> Group::split(int color, int key, GroupOptions options) const {
  struct Place {
    std::int32_t color, key;
  };
  static_assert(sizeof(Place) == 2 * sizeof(std::int32_t));
  const Place mine{color, key};
  std::vector<Place> places(static_cast<std::size_t>(size()));
  const ConstBuffer input{&mine, 2, DType::kInt32};
  const BufferView result{places.data(), 2 * places.size(), DType::kInt32};
  state_->begin_own(OperationKind::kAllGather, "split", {input, result}).wait();
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
  std::vector<CompressionDecision> unfollowed;
  state_->within_group([&] {
    check(!name.empty(), "a gradient set needs a name");
    complete(gradients);
    check_gradients(gradients, options);
    unfollowed = resolve_compression(gradients, CompressionRules::parse(options.compression));
    check_compression(gradients, options);
    if (state_->options().reproducible) check_reproducible(gradients);
  });
  CompressionChoices choices =
      choose_compression(gradients, state_->grid(), state_->costs(), state_->native_in_nodes());
  choices.decisions.insert(choices.decisions.end(), unfollowed.begin(), unfollowed.end());
  for (const CompressionDecision& decision : choices.decisions) {
    if (rank() == 0) log::info("compression: " + to_string(decision));
  }
  auto group = std::make_shared<GradientSetState>(std::string(name), std::move(gradients), options,
                                                  std::move(choices));
  return GradientSet(
      state_, state_->within_group([&] { return state_->register_group(std::move(group)); }));
}

Ticket Group::all_reduce(std::string_view name, const Tensors& tensors, const Reduction& reduction,
                         NativeStream stream) {
  return state_->begin(OperationKind::kAllReduce, name, tensors, stream, 0, reduction);
}

Ticket Group::broadcast(std::string_view name, const Tensors& tensors, int root,
                        NativeStream stream) {
  return state_->begin(OperationKind::kBroadcast, name, tensors, stream, root);
}

Ticket Group::reduce(std::string_view name, const Tensors& tensors, int root,
                     const Reduction& reduction, NativeStream stream) {
  return state_->begin(OperationKind::kReduce, name, tensors, stream, root, reduction);
}

Ticket Group::reduce_scatter(std::string_view name, const Tensors& tensors,
                             const Reduction& reduction, NativeStream stream) {
  return state_->begin(OperationKind::kReduceScatter, name, tensors, stream, 0, reduction);
}

Ticket Group::all_gather(std::string_view name, const Tensors& tensors, NativeStream stream) {
  return state_->begin(OperationKind::kAllGather, name, tensors, stream);
}

Ticket Group::gather(std::string_view name, const Tensors& tensors, int root, NativeStream stream) {
  return state_->begin(OperationKind::kGather, name, tensors, stream, root);
}

Ticket Group::scatter(std::string_view name, const Tensors& tensors, int root,
                      NativeStream stream) {
  return state_->begin(OperationKind::kScatter, name, tensors, stream, root);
}

Ticket Group::all_to_all(std::string_view name, const Tensors& tensors, NativeStream stream) {
  return state_->begin(OperationKind::kAllToAll, name, tensors, stream);
}

Ticket Group::sparse_all_reduce(std::string_view name, const OneOrMore<TableRows>& tables,
                                const RowOptions& options, std::vector<RowSums>&& memory,
                                NativeStream stream) {
  return state_->begin(name, tables, options, std::move(memory), stream);
}

Ticket Group::send(const Buffers& buffers, int peer, std::uint64_t tag, NativeStream stream) {
  return state_->begin(Message::Kind::kSend, buffers, peer, tag, stream);
}

Ticket Group::recv(const Buffers& buffers, int peer, std::uint64_t tag, NativeStream stream) {
  return state_->begin(Message::Kind::kReceive, buffers, peer, tag, stream);
}

Ticket Group::barrier() { return state_->begin(OperationKind::kBarrier); }

}  // namespace kolo
