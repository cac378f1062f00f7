#include "runtime/calls/operation_calls.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "fusion/overlap.h"
#include "runtime/buckets/carrier.h"
#include "runtime/calls/call_parts.h"

namespace kolo {
namespace {

void require(bool condition, std::string_view name, std::string_view what) {
  if (!condition) refuse_call(name, what);
}

void check_memory(std::string_view name, const void* data, std::size_t count) {
  require(data != nullptr || count == 0, name, "a buffer is null");
}

/// Where buffers of a call may be.
void check_kind(std::string_view name, MemoryKind memory) {
  require(memory != MemoryKind::kPinned, name, "pinned memory is host memory; call it that");
}

/// For callers whose input and result overlap.
std::string_view advice(OperationKind kind) {
  switch (kind) {
    case OperationKind::kBroadcast:
      return "pass one buffer to work in place";
    case OperationKind::kScatter:
      return "leave the root's result out to work in place";
    default:
      return "leave the input out to work in place";
  }
}

/// The two buffers, of so many elements, have no byte in common.
void check_apart(OperationKind kind, std::string_view name, const void* input,
                 std::size_t input_count, const void* result, std::size_t result_count,
                 DType dtype) {
  if (input == nullptr || result == nullptr) return;
  const auto* const from = static_cast<const std::byte*>(input);
  const auto* const to = static_cast<const std::byte*>(result);
  if (std::less_equal<>()(from + input_count * size_of(dtype), to)) return;
  if (std::less_equal<>()(to + result_count * size_of(dtype), from)) return;
  refuse_call(name, fmt::format("input and result overlap; {}", advice(kind)));
}

/// Refuses several tensors where one is written into another's memory. A broadcast may take one
/// twice, as a list of all weights has tied ones: it writes the same values.
void check_apart(OperationKind kind, std::string_view name, std::vector<UsedMemory> ranges) {
  if (kind == OperationKind::kBroadcast) drop_repeated(ranges);
  if (const auto overlap = find_overlap(std::move(ranges))) {
    refuse_call(name, fmt::format("tensors {} and {} of the list share memory; a list has each "
                                  "tensor once, in memory of its own",
                                  overlap->first, overlap->second));
  }
}

/// The buffers of an operation on a tensor at this rank.
struct Uses {
  bool takes_all = false,
       gives_all = false;  ///< The input, or the result, has a part for each rank.
  bool reads_input = true;
  bool needs_input = false, needs_result = true;
  bool is_in_place = false;  ///< Without an input, on all ranks: both are in the result.
  bool writes_result = true;
};

Uses uses_of(OperationKind kind, bool is_root) {
  switch (kind) {
    case OperationKind::kBroadcast:
      return {.reads_input = is_root, .is_in_place = true, .writes_result = !is_root};
    case OperationKind::kReduce:
      return {.needs_result = is_root, .is_in_place = true, .writes_result = is_root};
    case OperationKind::kReduceScatter:
      return {.takes_all = true, .is_in_place = true};
    case OperationKind::kAllGather:
      return {.gives_all = true, .is_in_place = true};
    case OperationKind::kGather:
      return {.gives_all = true,
              .needs_input = !is_root,
              .needs_result = is_root,
              .writes_result = is_root};
    case OperationKind::kScatter:
      return {.takes_all = true,
              .reads_input = is_root,
              .needs_input = is_root,
              .needs_result = !is_root};
    case OperationKind::kAllToAll:
      return {.takes_all = true, .gives_all = true, .is_in_place = true};
    default:
      return {.is_in_place = true};
  }
}

/// Elements of the buffers of one tensor at one rank.
struct BufferSizes {
  std::size_t input = 0, result = 0;
};

/// Errors: UsageError unless there are as many counts as parts.
BufferSizes sizes_of(OperationKind kind, std::string_view name, const TensorBuffers& tensor,
                     int rank, int world_size) {
  if (!tensor.counts.empty()) {
    require(has_parts(kind), name, "this operation knows no parts, so it takes no counts");
    if (kind == OperationKind::kAllToAll) {
      const PairSums sums(name, tensor.counts, rank, world_size);
      return {.input = sums.sent, .result = sums.received};
    }
  }
  const Uses uses = uses_of(kind, false);
  const CallParts parts(name, tensor.counts, world_size, tensor.count);
  return {.input = uses.takes_all ? parts.sum() : parts.of(rank),
          .result = uses.gives_all ? parts.sum() : parts.of(rank)};
}

bool has_elements(const TensorBuffers& tensor) {
  return tensor.counts.empty()
             ? tensor.count > 0
             : std::ranges::any_of(tensor.counts, [](std::size_t count) { return count > 0; });
}

/// Tells the operation of its tensors; `parts` is their number in each.
void write_parts(Operation& operation, std::span<const TensorBuffers> tensors, std::size_t parts) {
  const bool all_even = std::ranges::all_of(tensors, is_even, &TensorBuffers::counts);
  std::size_t sum = 0;
  for (const TensorBuffers& tensor : tensors) {
    const std::size_t each = tensor.counts.empty() ? tensor.count : tensor.counts.front();
    operation.tensors.push_back(
        {.input = tensor.input, .result = tensor.result, .count = all_even ? each : 0});
    sum += each;
    if (all_even) continue;
    std::vector<std::size_t>& counts = operation.counts;
    if (tensor.counts.empty()) {
      counts.resize(counts.size() + parts, each);
    } else {
      counts.insert(counts.end(), tensor.counts.begin(), tensor.counts.end());
    }
  }
  operation.buffer.count = all_even ? sum : 0;
  if (has_parts(operation.kind) && all_even) operation.counts.assign(1, sum);
}

/// The type to send, if it is not that of the elements.
std::optional<DType> wire_of(std::string_view name, const Reduction& reduction, DType dtype,
                             MemoryKind memory) {
  if (!reduction.wire_dtype || *reduction.wire_dtype == dtype) return std::nullopt;
  const DType wire = *reduction.wire_dtype;
  const bool is_cast = wire == DType::kBFloat16 &&
                       (dtype == DType::kFloat32 || dtype == DType::kFloat64) &&
                       memory == MemoryKind::kHost;
  require(is_cast, name,
          fmt::format("{} does not travel as {}: float32 and float64 in host memory travel as "
                      "bfloat16",
                      to_string(dtype), to_string(wire)));
  require(reduction.scales == Scales(), name, "elements that are cast are not scaled as well");
  return wire;
}

void check_uncast(std::string_view name, const Reduction& reduction) {
  require(!reduction.wire_dtype, name,
          "only all-reduce and reduce-scatter cast elements to a wire dtype");
}

}  // namespace

OperationCalls::New OperationCalls::plain(OperationKind kind) const {
  New operation = pool_.take(kind, kind == OperationKind::kBarrier ? "barrier" : "");
  operation->space = NameSpace::kRuntime;
  return operation;
}

void OperationCalls::check_root(std::string_view name, int root) const {
  if (root < 0 || root >= world_size_)
    refuse_call(name, fmt::format("the root {} is not a rank", root));
}

OperationCalls::New OperationCalls::all_reduce(std::string_view name, const BufferView& buffer,
                                               const Reduction& reduction) const {
  check_memory(name, buffer.data, buffer.count);
  check_reduction(name, reduction, buffer.dtype);
  check_kind(name, buffer.memory);
  const std::optional<DType> wire = wire_of(name, reduction, buffer.dtype, buffer.memory);
  New operation = pool_.take(OperationKind::kAllReduce, name);
  operation->buffer = buffer;
  operation->op = reduction.op;
  operation->scales = reduction.scales;
  operation->wire = wire;
  return operation;
}

OperationCalls::New OperationCalls::all_reduce(std::string_view name, const void* input,
                                               const BufferView& result,
                                               const Reduction& reduction) const {
  require(input != nullptr && result.data != nullptr, name, "a buffer is null");
  check_apart(OperationKind::kAllReduce, name, input, result.count, result.data, result.count,
              result.dtype);
  New operation = all_reduce(name, result, reduction);
  operation->input = input;
  operation->out_of_place = true;
  return operation;
}

OperationCalls::New OperationCalls::broadcast(std::string_view name, const BufferView& buffer,
                                              int root) const {
  check_memory(name, buffer.data, buffer.count);
  check_kind(name, buffer.memory);
  check_root(name, root);
  New operation = pool_.take(OperationKind::kBroadcast, name);
  operation->buffer = buffer;
  operation->root = root;
  return operation;
}

OperationCalls::New OperationCalls::broadcast(std::string_view name, const void* input,
                                              const BufferView& result, int root) const {
  New operation = broadcast(name, result, root);
  if (rank_ == root) {
    require(input != nullptr || result.count == 0, name, "the root's input is null");
    check_apart(OperationKind::kBroadcast, name, input, result.count, result.data, result.count,
                result.dtype);
  }
  operation->input = input;
  operation->out_of_place = true;
  return operation;
}

OperationCalls::New OperationCalls::reduce(std::string_view name, const void* input,
                                           const BufferView& result, int root,
                                           const Reduction& reduction) const {
  check_kind(name, result.memory);
  check_root(name, root);
  check_reduction(name, reduction, result.dtype);
  check_uncast(name, reduction);
  require(input != nullptr || result.data != nullptr || result.count == 0, name,
          "both buffers are null");
  check_apart(OperationKind::kReduce, name, input, result.count, result.data, result.count,
              result.dtype);
  New operation = pool_.take(OperationKind::kReduce, name);
  operation->buffer = result;
  operation->input = input;
  operation->out_of_place = input != nullptr;
  operation->root = root;
  operation->op = reduction.op;
  operation->scales = reduction.scales;
  return operation;
}

OperationCalls::New OperationCalls::reduce_scatter(std::string_view name, const void* input,
                                                   const BufferView& result,
                                                   const Reduction& reduction,
                                                   Counts counts) const {
  check_kind(name, result.memory);
  check_reduction(name, reduction, result.dtype);
  const std::optional<DType> wire = wire_of(name, reduction, result.dtype, result.memory);
  const bool in_place = input == nullptr;
  const CallParts parts(
      name, counts, world_size_,
      in_place ? part_of_all(name, result.count, world_size_, counts) : result.count);
  check_count(name, "result", result.count, in_place ? parts.sum() : parts.of(rank_));
  check_memory(name, result.data, result.count);
  check_apart(OperationKind::kReduceScatter, name, input, parts.sum(), result.data, result.count,
              result.dtype);
  New operation = pool_.take(OperationKind::kReduceScatter, name);
  operation->buffer = result;
  operation->input = input;
  operation->out_of_place = !in_place;
  operation->op = reduction.op;
  operation->scales = reduction.scales;
  operation->wire = wire;
  parts.write_to(operation->counts);
  return operation;
}

OperationCalls::New OperationCalls::all_gather(std::string_view name, const void* input,
                                               const BufferView& result, Counts counts) const {
  check_kind(name, result.memory);
  const CallParts parts(name, counts, world_size_,
                        part_of_all(name, result.count, world_size_, counts));
  check_count(name, "result", result.count, parts.sum());
  check_memory(name, result.data, result.count);
  check_apart(OperationKind::kAllGather, name, input, parts.of(rank_), result.data, result.count,
              result.dtype);
  New operation = pool_.take(OperationKind::kAllGather, name);
  operation->buffer = result;
  operation->input = input;
  operation->out_of_place = input != nullptr;
  parts.write_to(operation->counts);
  return operation;
}

OperationCalls::New OperationCalls::gather(std::string_view name, const BufferView& input,
                                           void* result, int root, Counts counts) const {
  check_kind(name, input.memory);
  check_root(name, root);
  const CallParts parts(name, counts, world_size_, input.count);
  check_count(name, "input", input.count, parts.of(rank_));
  const bool in_place = rank_ == root && input.data == nullptr;
  if (!in_place) check_memory(name, input.data, input.count);
  if (rank_ == root) {
    check_memory(name, result, parts.sum());
    check_apart(OperationKind::kGather, name, input.data, input.count, result, parts.sum(),
                input.dtype);
  }
  New operation = pool_.take(OperationKind::kGather, name);
  operation->buffer = input;
  operation->buffer.data = result;
  operation->input = in_place ? own_part(result, parts.before(rank_), input.dtype) : input.data;
  operation->out_of_place = true;
  operation->root = root;
  parts.write_to(operation->counts);
  return operation;
}

OperationCalls::New OperationCalls::scatter(std::string_view name, const void* input,
                                            const BufferView& result, int root,
                                            Counts counts) const {
  check_kind(name, result.memory);
  check_root(name, root);
  const CallParts parts(name, counts, world_size_, result.count);
  check_count(name, "result", result.count, parts.of(rank_));
  const bool in_place = rank_ == root && result.data == nullptr;
  if (!in_place) check_memory(name, result.data, result.count);
  if (rank_ == root) {
    check_memory(name, input, parts.sum());
    check_apart(OperationKind::kScatter, name, input, parts.sum(), result.data, result.count,
                result.dtype);
  }
  New operation = pool_.take(OperationKind::kScatter, name);
  operation->buffer = result;
  if (in_place) operation->buffer.data = own_part(input, parts.before(rank_), result.dtype);
  operation->input = input;
  operation->out_of_place = true;
  operation->root = root;
  parts.write_to(operation->counts);
  return operation;
}

OperationCalls::New OperationCalls::all_to_all(std::string_view name, const void* input,
                                               const BufferView& result, Counts counts) const {
  check_kind(name, result.memory);
  std::size_t sent = result.count;
  if (!counts.empty()) {
    const PairSums sums(name, counts, rank_, world_size_);
    check_count(name, "result", result.count, sums.received);
    sent = sums.sent;
  }
  const std::size_t each = part_of_all(name, result.count, world_size_, counts);
  if (input == nullptr) check_exchange(name, counts, world_size_);
  check_memory(name, result.data, result.count);
  check_apart(OperationKind::kAllToAll, name, input, sent, result.data, result.count, result.dtype);
  New operation = pool_.take(OperationKind::kAllToAll, name);
  operation->buffer = result;
  operation->input = input;
  operation->out_of_place = input != nullptr;
  const bool has_one_count = is_even(counts);
  if (has_one_count) operation->counts.assign(1, counts.empty() ? each : counts.front());
  if (!has_one_count) operation->counts.assign(counts.begin(), counts.end());
  return operation;
}

OperationCalls::New OperationCalls::grouped(OperationKind kind, std::string_view name,
                                            const Tensors& tensors, int root,
                                            const Reduction& reduction) const {
  const DType dtype = tensors.dtype;
  require(!tensors.each.empty(), name, "there are no tensors");
  check_kind(name, tensors.memory);
  check_root(name, root);
  if (reduces(kind)) check_reduction(name, reduction, dtype);
  if (kind != OperationKind::kAllReduce && kind != OperationKind::kReduceScatter) {
    check_uncast(name, reduction);
  }
  const std::optional<DType> wire = wire_of(name, reduction, dtype, tensors.memory);
  const Uses uses = uses_of(kind, rank_ == root);
  const auto has_input = [](const TensorBuffers& tensor) {
    return tensor.input != nullptr && has_elements(tensor);
  };
  const bool out_of_place = !uses.is_in_place || std::ranges::any_of(tensors.each, has_input);
  const bool needs_input =
      uses.needs_input || (uses.is_in_place && uses.reads_input && out_of_place);
  const bool needs_result = uses.needs_result || !out_of_place;
  // The root of a broadcast has a result of its own out of place.
  const bool writes = uses.writes_result || (kind == OperationKind::kBroadcast && out_of_place);
  std::vector<UsedMemory> used;
  used.reserve(2 * tensors.each.size());
  for (std::size_t i = 0; i < tensors.each.size(); ++i) {
    const TensorBuffers& tensor = tensors.each[i];
    auto [input, result] = sizes_of(kind, name, tensor, rank_, world_size_);
    if (!out_of_place) result = std::max(input, result);
    require(!needs_input || tensor.input != nullptr || input == 0, name, "one tensor has no input");
    require(!needs_result || tensor.result != nullptr || result == 0, name,
            "one tensor has no result");
    if (kind == OperationKind::kAllToAll && !out_of_place) {
      check_exchange(name, tensor.counts, world_size_);
    }
    if (uses.reads_input) {
      check_apart(kind, name, tensor.input, input, tensor.result, result, dtype);
    }
    if (tensors.each.size() == 1) break;
    if (uses.reads_input && tensor.input != nullptr) {
      used.push_back({tensor.input, input * size_of(dtype), i, false});
    }
    if (tensor.result != nullptr && (writes || !out_of_place)) {
      used.push_back({tensor.result, result * size_of(dtype), i, writes});
    }
  }
  check_apart(kind, name, std::move(used));
  New operation = pool_.take(kind, name);
  operation->out_of_place = out_of_place;
  operation->root = root;
  if (reduces(kind)) {
    operation->op = reduction.op;
    operation->scales = reduction.scales;
    operation->wire = wire;
  }
  operation->buffer.dtype = dtype;
  operation->buffer.memory = tensors.memory;
  const auto ranks = static_cast<std::size_t>(world_size_);
  write_parts(*operation, tensors.each, kind == OperationKind::kAllToAll ? ranks * ranks : ranks);
  if (rank_ == root) find_own_parts(*operation, tensors.each);
  return operation;
}

/// Where the root of a gather or scatter names one buffer of a tensor, its part is in that.
void OperationCalls::find_own_parts(Operation& operation,
                                    std::span<const TensorBuffers> given) const {
  const bool gathers = operation.kind == OperationKind::kGather;
  if (!gathers && operation.kind != OperationKind::kScatter) return;
  for (std::size_t i = 0; i < given.size(); ++i) {
    TensorBuffers& tensor = operation.tensors[i];
    const CallParts parts(operation.name, given[i].counts, world_size_, given[i].count);
    const std::size_t before = parts.before(rank_);
    if (gathers && tensor.input == nullptr) {
      tensor.input = own_part(tensor.result, before, operation.buffer.dtype);
    }
    if (!gathers && tensor.result == nullptr) {
      tensor.result = own_part(tensor.input, before, operation.buffer.dtype);
    }
  }
}

}  // namespace kolo
