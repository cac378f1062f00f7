#include "runtime/calls/operation.h"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include "runtime/buckets/storage_type.h"

namespace kolo {
namespace {

/// Most parts, tensors or tables that a text lists; it has a hash in place of a longer list.
constexpr std::size_t kMostInText = 16;

/// Returns the scales that are equal on all ranks; a premultiplied sum's `scales.before` is not.
Scales common_scales(const Operation& operation) {
  Scales scales = operation.scales;
  if (operation.op == ReduceOp::kPremulSum) scales.before = 1;
  return scales;
}

std::uint64_t hash_of(const std::vector<std::size_t>& numbers) {
  return XXH3_64bits(numbers.data(), numbers.size() * sizeof(std::size_t));
}

std::vector<std::size_t> counts_of(const std::vector<TensorBuffers>& tensors) {
  std::vector<std::size_t> counts;
  counts.reserve(tensors.size());
  for (const TensorBuffers& tensor : tensors) counts.push_back(tensor.count);
  return counts;
}

/// Formats tensors with uneven parts: "float32 [10, 0] + [7, 7]".
std::string describe_uneven_tensors(const Operation& operation) {
  const std::vector<std::size_t>& counts = operation.counts;
  const std::size_t tensors = operation.tensors.size();
  const std::size_t parts = counts.size() / tensors;
  const std::string_view dtype = to_string(operation.dtype);
  if (counts.size() > kMostInText) {
    const std::string of = tensors == 1 ? "" : fmt::format("{} tensors of ", tensors);
    return fmt::format("{} in {}{} parts (hash {:016x})", dtype, of, parts, hash_of(counts));
  }
  std::vector<std::string> each;
  for (std::size_t i = 0; i < tensors; ++i) {
    const auto of_tensor = std::span(counts).subspan(i * parts, parts);
    each.push_back(fmt::format("[{}]", fmt::join(of_tensor, ", ")));
  }
  return fmt::format("{} {}", dtype, fmt::join(each, " + "));
}

/// Formats tensors: "float32 [10] + [20]", or "float32 [10] + [20] each" if they have parts.
std::string describe_tensors(const Operation& operation) {
  if (!operation.counts.empty()) return describe_uneven_tensors(operation);
  const std::vector<std::size_t> counts = counts_of(operation.tensors);
  const std::string_view dtype = to_string(operation.dtype);
  const std::string_view each = has_parts(operation.kind) ? " each" : "";
  if (counts.size() <= kMostInText) {
    return fmt::format("{} [{}]{}", dtype, fmt::join(counts, "] + ["), each);
  }
  return fmt::format("{} in {} tensors (hash {:016x}){}", dtype, counts.size(), hash_of(counts),
                     each);
}

std::string_view name_of(RowForm form) {
  constexpr std::string_view kNames[] = {"auto", "rows", "table"};
  return kNames[static_cast<std::size_t>(form)];
}

/// Formats tables of one dtype in memory of one kind: "float32 [10, 4] + [20, 8] on device".
std::string describe(const std::vector<RowTable>& tables) {
  const std::string_view dtype = tables.empty() ? "" : to_string(tables.front().dtype);
  std::vector<std::string> shapes;
  for (const RowTable& table : tables) {
    shapes.push_back(fmt::format("[{}, {}]", table.height, table.width));
  }
  const bool is_on_device = !tables.empty() && tables.front().memory == MemoryKind::kDevice;
  const std::string_view place = is_on_device ? " on device" : "";
  std::string text = fmt::format("{}", fmt::join(shapes, " + "));
  if (tables.size() <= kMostInText) return fmt::format("{} {}{}", dtype, text, place);
  return fmt::format("{} in {} tables (hash {:016x}){}", dtype, tables.size(),
                     XXH3_64bits(text.data(), text.size()), place);
}

}  // namespace

std::string to_string(const RowCall& call) {
  const RowOptions& options = call.options;
  return fmt::format("sparse_all_reduce {} {}, result {}, exchange {}", describe(call.tables),
                     describe(options.op, options.scales), name_of(options.result),
                     name_of(options.exchange));
}

std::string Operation::signature() const {
  if (kind == OperationKind::kClose) return "a call of close";
  return fmt::format("'{}': {}", name, rows ? to_string(*rows) : arguments());
}

std::string Operation::arguments() const {
  std::string text(call_name(kind));
  if (kind == OperationKind::kBarrier) return text;
  text += " " + describe_tensors(*this);
  if (reduces(kind)) text += " " + describe(op, common_scales(*this));
  if (wire) text += fmt::format(" as {}", to_string(*wire));
  if (has_root(kind)) text += fmt::format(" {} rank {}", is_to_root(kind) ? "to" : "from", root);
  if (out_of_place && !is_up_to_root(kind) && !has_pairs(kind)) text += " out of place";
  if (sends_copy()) text += " in place";
  return memory == MemoryKind::kDevice ? text + " on device" : text;
}

const std::string& Operation::default_name() {
  if (!described || !described->shape.fits(*this)) {
    described = {.shape = OperationShape::of(*this), .text = arguments()};
  }
  return described->text;
}

std::size_t Operation::count_in(std::size_t tensor, std::size_t part) const {
  if (tensors.empty()) return 0;
  if (counts.empty()) return tensors[tensor].count;
  return counts[tensor * (counts.size() / tensors.size()) + part];
}

CollectiveSpec Operation::spec_of_tensors(int world_size) const {
  const auto ranks = static_cast<std::size_t>(world_size);
  const std::size_t parts = has_pairs(kind) ? ranks * ranks : has_parts(kind) ? ranks : 1;
  const std::size_t numbers = StorageType::of(dtype).per_element;
  std::vector<CollectiveSpec> specs;
  for (std::size_t tensor = 0; tensor < std::max<std::size_t>(tensors.size(), 1); ++tensor) {
    const std::size_t count = count_in(tensor, 0) * numbers;
    specs.push_back(CollectiveSpec::of(
        has_elements(kind) ? kind : OperationKind::kAllReduce, root, world_size,
        counts.empty() ? PartExtents(parts, count)
                       : PartExtents(std::span(counts).subspan(tensor * parts, parts), numbers)));
  }
  return CollectiveSpec::of_tensors(specs);
}

OperationShape OperationShape::of(const Operation& operation) {
  return {.kind = operation.kind,
          .counts = operation.counts,
          .tensors = counts_of(operation.tensors),
          .dtype = operation.dtype,
          .memory = operation.memory,
          .out_of_place = operation.out_of_place,
          .op = operation.op,
          .scales = common_scales(operation),
          .wire = operation.wire,
          .root = operation.root,
          .rows = operation.rows};
}

bool OperationShape::fits(const Operation& operation) const {
  return kind == operation.kind && counts == operation.counts &&
         std::ranges::equal(tensors, operation.tensors, {}, {}, &TensorBuffers::count) &&
         dtype == operation.dtype && memory == operation.memory &&
         out_of_place == operation.out_of_place && op == operation.op &&
         scales == common_scales(operation) && wire == operation.wire && root == operation.root &&
         rows == operation.rows;
}

}  // namespace kolo
