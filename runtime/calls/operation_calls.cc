#include "runtime/calls/operation_calls.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "fusion/overlap.h"
#include "runtime/calls/call_parts.h"

namespace kolo {
namespace {

void require(bool condition, std::string_view name, std::string_view what) {
  if (!condition) refuse_call(name, what);
}

/// Throws UsageError for pinned memory.
void check_kind(std::string_view name, MemoryKind memory) {
  require(memory != MemoryKind::kPinned, name, "pinned memory is host memory; call it that");
}

/// Memory kind and dtype of the elements of a call.
struct Place {
  DType dtype = DType::kFloat32;
  MemoryKind memory = MemoryKind::kHost;
};

/// Returns the dtype and memory kind of all buffers except default-constructed ones. Throws
/// UsageError if they differ.
Place common_place(std::string_view name, const Tensors& tensors) {
  std::optional<Place> common;
  const auto join = [&](const ConstBuffer& buffer) {
    const bool says_something = buffer.data != nullptr || buffer.count > 0 ||
                                buffer.dtype != Place().dtype || buffer.memory != Place().memory;
    if (!says_something) return;
    if (!common) common = {buffer.dtype, buffer.memory};
    if (buffer.dtype == common->dtype && buffer.memory == common->memory) return;
    refuse_call(name, fmt::format("there are buffers of {} in {} memory and of {} in {} memory; "
                                  "those of one call have one dtype and one kind of memory",
                                  to_string(common->dtype), to_string(common->memory),
                                  to_string(buffer.dtype), to_string(buffer.memory)));
  };
  for (const Tensor& tensor : tensors) {
    if (!tensor.is_in_place) join(tensor.input);
    join(tensor.result);
  }
  return common.value_or(Place());
}

/// Checks that the two buffers do not overlap.
void check_apart(std::string_view name, const ConstBuffer& input, const BufferView& result) {
  if (input.data == nullptr || result.data == nullptr) return;
  const auto* const from = static_cast<const std::byte*>(input.data);
  const auto* const to = static_cast<const std::byte*>(result.data);
  if (std::less_equal<>()(from + input.bytes(), to)) return;
  if (std::less_equal<>()(to + result.bytes(), from)) return;
  refuse_call(name, "input and result overlap; pass one buffer to work in place");
}

/// Checks that no tensor is written to the memory of another. A broadcast may list a tensor twice,
/// such as tied weights: both writes have the same values.
void check_apart(OperationKind kind, std::string_view name, std::vector<UsedMemory> ranges) {
  if (kind == OperationKind::kBroadcast) drop_repeated(ranges);
  if (const auto overlap = find_overlap(std::move(ranges))) {
    refuse_call(name, fmt::format("tensors {} and {} of the list share memory; a list has each "
                                  "tensor once, in memory of its own",
                                  overlap->first, overlap->second));
  }
}

/// The use of a tensor's buffers by an operation on this rank.
struct Uses {
  bool takes_all = false;  ///< The input has a part for each rank.
  bool gives_all = false;  ///< The result has a part for each rank.
  bool has_input = true;   ///< The rank has an input if the tensor is out of place.
  bool has_result = true;
  bool writes_result = true;   ///< The result is written, in place or out of place.
  bool is_up_to_root = false;  ///< The root alone decides whether it works in place.
  bool one_is_input = false;   ///< A single buffer is the input, and there is no result.
};

Uses uses_of(OperationKind kind, bool is_root, bool in_place) {
  const bool from_root = is_from_root(kind), to_root = is_to_root(kind);
  const bool up_to_root = is_up_to_root(kind);
  return {.takes_all = takes_parts(kind),
          .gives_all = gives_parts(kind),
          .has_input = !from_root || is_root,
          .has_result = !to_root || is_root || (in_place && !up_to_root),
          .writes_result = to_root ? is_root : !(from_root && is_root && in_place),
          .is_up_to_root = up_to_root,
          .one_is_input = up_to_root && from_root == is_root};
}

/// Returns `tensor` without the buffers that the rank does not use.
Tensor used_of(Tensor tensor, const Uses& uses) {
  if (tensor.is_in_place && uses.is_up_to_root) {
    tensor.is_in_place = false;
    if (uses.one_is_input) tensor.input = std::exchange(tensor.result, {});
  }
  if (!uses.has_input || tensor.is_in_place) tensor.input = {};
  if (!uses.has_result) tensor.result = {};
  return tensor;
}

/// One tensor of an operation at a rank. Creating it checks that the sizes of its buffers fit each
/// other and the counts of its parts.
struct CalledTensor {
  Tensor used;
  TensorBuffers buffers = {};

  CalledTensor(OperationKind kind, std::string_view name, const Tensor& tensor, const Uses& uses,
               int rank, int world_size)
      : used(used_of(tensor, uses)) {
    require(used.counts.empty() || has_parts(kind), name,
            "this operation knows no parts, so it takes no counts");
    const auto is_absent = [](const auto& buffer) {
      return buffer.data == nullptr && buffer.count == 0;
    };
    // The part of a root with a single buffer is in that buffer.
    const bool is_root = uses.has_input && uses.has_result;
    const bool finds_input =
        uses.is_up_to_root && uses.gives_all && is_root && is_absent(used.input);
    const bool finds_result =
        uses.is_up_to_root && uses.takes_all && is_root && is_absent(used.result);
    const bool has_input = uses.has_input && !used.is_in_place && !finds_input;
    const bool has_result = uses.has_result && !finds_result;
    // Without counts the length of a part follows from a buffer of one part, or else from a buffer
    // of all parts.
    const bool is_one_of_all = used.is_in_place && (uses.takes_all || uses.gives_all);
    std::size_t each = 0;
    if (!used.counts.empty()) {
      each = used.counts.front();
    } else if (has_result && !uses.gives_all && !is_one_of_all) {
      each = used.result.count;
    } else if (has_input && !uses.takes_all) {
      each = used.input.count;
    } else {
      each = part_of_all(name, has_input ? used.input.count : used.result.count, world_size);
    }
    std::size_t input = 0, result = 0, before = 0;
    if (has_pairs(kind) && !used.counts.empty()) {
      const PairSums sums(name, used.counts, rank, world_size);
      input = sums.sent;
      result = sums.received;
      if (used.is_in_place) check_exchange(name, used.counts, world_size);
    } else {
      const CallParts parts(name, used.counts, world_size, each);
      before = parts.before(rank);
      input = uses.takes_all ? parts.sum() : parts.of(rank);
      result = uses.gives_all ? parts.sum() : parts.of(rank);
    }
    if (used.is_in_place) result = std::max(input, result);
    const bool has_counts = !used.counts.empty();
    if (has_input) check_buffer(name, "input", used.input, input, has_counts);
    if (has_result) check_buffer(name, "result", used.result, result, has_counts);
    buffers = {.input = used.input.data, .result = used.result.data, .count = each};
    if (finds_input) buffers.input = own_part(used.result.data, before, used.result.dtype);
    if (finds_result) buffers.result = own_part(used.input.data, before, used.input.dtype);
  }
};

/// Returns the wire dtype if it differs from the dtype of the elements, else nothing.
std::optional<DType> wire_of(std::string_view name, const Reduction& reduction, DType dtype,
                             MemoryKind memory) {
  if (!reduction.wire_dtype || *reduction.wire_dtype == dtype) return std::nullopt;
  const DType wire = *reduction.wire_dtype;
  const bool is_cast = wire == DType::kBFloat16 &&
                       (dtype == DType::kFloat32 || dtype == DType::kFloat64) &&
                       memory == MemoryKind::kHost;
  if (!is_cast) {
    refuse_call(name, fmt::format("{} does not travel as {}: float32 and float64 in host memory "
                                  "travel as bfloat16",
                                  to_string(dtype), to_string(wire)));
  }
  require(reduction.scales == Scales(), name, "elements that are cast are not scaled as well");
  return wire;
}

void check_uncast(std::string_view name, const Reduction& reduction) {
  require(!reduction.wire_dtype, name,
          "only all-reduce and reduce-scatter cast elements to a wire dtype");
}

/// Appends the counts of a tensor's parts to the operation, if the parts of any tensor differ.
void append_counts(Operation& operation, const CalledTensor& tensor, std::size_t parts) {
  const PartCounts given = tensor.used.counts;
  std::vector<std::size_t>& counts = operation.counts;
  if (given.empty()) counts.resize(counts.size() + parts, tensor.buffers.count);
  counts.insert(counts.end(), given.begin(), given.end());
}

/// Checks tensor `i` of a call and returns it. If there are several, an error names the wrong one.
CalledTensor called(OperationKind kind, std::string_view name, const Tensors& tensors,
                    std::size_t i, const Uses& uses, int rank, int world_size) {
  try {
    const CalledTensor tensor(kind, name, tensors[i], uses, rank, world_size);
    check_apart(name, tensor.used.input, tensor.used.result);
    return tensor;
  } catch (const UsageError& error) {
    if (tensors.size() == 1) throw;
    throw UsageError(fmt::format("{} (tensor {} of the list)", error.error().what, i));
  }
}

/// Throws UsageError if device memory that tensor `i` of a call uses is not of `device`.
void check_device(std::string_view name, const Tensors& tensors, std::size_t i, const Tensor& used,
                  Device& device) {
  const auto check_buffer = [&](const ConstBuffer& buffer, std::string_view which) {
    if (buffer.memory != MemoryKind::kDevice) return;
    const std::string problem = device.problem_with(buffer.data, buffer.bytes());
    if (problem.empty()) return;
    const std::string where =
        tensors.size() > 1 ? fmt::format(" (tensor {} of the list)", i) : std::string();
    refuse_call(name, fmt::format("the {} is in {}{}", which, problem, where));
  };
  check_buffer(used.input, "input");
  check_buffer(used.result, used.is_in_place ? "buffer" : "result");
}

}  // namespace

OperationCalls::New OperationCalls::plain(OperationKind kind) const {
  New operation = pool_.take(kind, kind == OperationKind::kBarrier ? "barrier" : "");
  operation->space = NameSpace::kRuntime;
  return operation;
}

OperationCalls::New OperationCalls::make(OperationKind kind, std::string_view name,
                                         const Tensors& tensors, int root,
                                         const Reduction& reduction) const {
  require(!tensors.empty(), name, "there are no tensors");
  const Place place = common_place(name, tensors);
  check_kind(name, place.memory);
  if (root < 0 || root >= world_size_) {
    refuse_call(name, fmt::format("the root {} is not a rank", root));
  }
  if (reduces(kind)) check_reduction(name, reduction, place.dtype);
  if (!reduces(kind) || has_root(kind)) check_uncast(name, reduction);
  New operation = pool_.take(kind, name);
  operation->dtype = place.dtype;
  operation->memory = place.memory;
  operation->root = root;
  if (reduces(kind)) {
    operation->op = reduction.op;
    operation->scales = reduction.scales;
    operation->wire = wire_of(name, reduction, place.dtype, place.memory);
  }
  const bool are_even = std::ranges::all_of(tensors, is_even, &Tensor::counts);
  const auto ranks = static_cast<std::size_t>(world_size_);
  const std::size_t parts = has_pairs(kind) ? ranks * ranks : ranks;
  std::vector<UsedMemory> used;  // only if there are several tensors
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Uses uses = uses_of(kind, rank_ == root, tensors[i].is_in_place);
    if (!uses.is_up_to_root && tensors[i].is_in_place != tensors.front().is_in_place) {
      refuse_call(
          name,
          fmt::format("tensors 0 and {} differ: one works in place and the other does not", i));
    }
    const CalledTensor tensor = called(kind, name, tensors, i, uses, rank_, world_size_);
    if (device_ != nullptr) check_device(name, tensors, i, tensor.used, *device_);
    const auto& [input, result, counts, in_place] = tensor.used;
    if (tensors.size() > 1) {
      used.push_back({input.data, input.bytes(), i, false});
      used.push_back({result.data, result.bytes(), i, uses.writes_result});
    }
    operation->out_of_place = !in_place;
    operation->tensors.push_back(tensor.buffers);
    if (are_even) continue;
    operation->tensors.back().count = 0;
    append_counts(*operation, tensor, parts);
  }
  if (tensors.size() > 1) check_apart(kind, name, std::move(used));
  return operation;
}

}  // namespace kolo
