#include "runtime/calls/stand_in.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "comm/base/aligned_memory.h"
#include "comm/base/byte_codec.h"
#include "comm/base/check.h"
#include "comm/kernels/reduce_kernels.h"
#include "runtime/buckets/storage_type.h"

namespace kolo {
namespace {

/// Size of a fill pattern in bytes, a multiple of the size of every dtype.
constexpr std::size_t kPatternBytes = std::size_t{1} << 20;

constexpr NameSpace kAllSpaces[] = {NameSpace::kUser, NameSpace::kStep, NameSpace::kRuntime};
constexpr RowForm kAllForms[] = {RowForm::kAuto, RowForm::kRows, RowForm::kTable};
constexpr MemoryKind kAllMemories[] = {MemoryKind::kHost, MemoryKind::kDevice};

/// An operation that owns its buffers, in host or device memory.
struct StandIn : Operation {
  AlignedMemory result_memory, input_memory;
  std::shared_ptr<StandInMemory::Block> result_block, input_block;
};

/// Memory for the results and for the inputs of all tensors; `input` is null in place.
struct WholeBuffers {
  std::byte* result = nullptr;
  std::byte* input = nullptr;
};

/// Allocates both buffers, and fills `count` elements of the contribution, if any, with the
/// identity of the reduction.
WholeBuffers give_host_memory(StandIn& part, std::size_t bytes, std::size_t count, DType dtype,
                              ReduceOp op) {
  part.result_memory = allocate_aligned(bytes);
  if (part.out_of_place) part.input_memory = allocate_aligned(bytes);
  const WholeBuffers buffers{part.result_memory.get(), part.input_memory.get()};
  std::byte* const contribution = part.out_of_place ? buffers.input : buffers.result;
  if (count > 0) fill_identity({contribution, count, dtype}, op);
  return buffers;
}

/// Works like `give_host_memory`, in device memory; `ready` is the event after the fill.
WholeBuffers give_device_memory(StandIn& part, StandInMemory& memory, std::size_t bytes,
                                std::size_t count, DType dtype, ReduceOp op) {
  part.result_block = memory.take(bytes);
  std::shared_ptr<StandInMemory::Block> contribution = part.result_block;
  if (part.out_of_place) part.input_block = contribution = memory.take(bytes);
  const WholeBuffers buffers{part.result_block->data(),
                             part.out_of_place ? contribution->data() : nullptr};
  if (count == 0) return buffers;
  contribution->fill(memory.copies().up(), count, dtype, op);
  part.ready = std::shared_ptr<const Event>(contribution, &contribution->filled());
  return buffers;
}

/// Divides the buffers among the tensors of an operation with `parts` parts.
void share_out(const WholeBuffers& buffers, Operation& operation, std::size_t parts) {
  std::size_t first = 0;
  for (std::size_t i = 0; i < operation.tensors.size(); ++i) {
    const std::size_t offset = first * size_of(operation.dtype);
    TensorBuffers& tensor = operation.tensors[i];
    if (buffers.input != nullptr) tensor.input = buffers.input + offset;
    tensor.result = buffers.result + offset;
    for (std::size_t part = 0; part < parts; ++part) first += operation.count_in(i, part);
  }
}

/// Returns whether scaling would change the identity of the reduction.
bool scale_spoils(const OperationShape& shape) {
  const double before = shape.scales.before;
  const Identity identity = traits_of(shape.op).identity;
  if (identity == Identity::kOne) return before != 1;
  return (identity == Identity::kLowest || identity == Identity::kHighest) && before <= 0;
}

void write(ByteWriter& writer, const Scales& scales) {
  writer.number(std::bit_cast<std::uint64_t>(scales.before));
  writer.number(std::bit_cast<std::uint64_t>(scales.after));
}

Scales read_scales(ByteReader& reader) {
  const auto before = std::bit_cast<double>(reader.number<std::uint64_t>());
  const auto after = std::bit_cast<double>(reader.number<std::uint64_t>());
  return {.before = before, .after = after};
}

/// Encoded bytes of a table's height, width, dtype and memory.
constexpr std::size_t kTableBytes = 2 * sizeof(std::uint64_t) + 2;

void write(ByteWriter& writer, const RowCall& rows) {
  writer.number(narrow<std::uint32_t>(rows.tables.size()));
  for (const RowTable& table : rows.tables) {
    writer.number(std::uint64_t{table.height});
    writer.number(std::uint64_t{table.width});
    writer.number(static_cast<std::uint8_t>(DType{table.dtype}));
    writer.number(static_cast<std::uint8_t>(table.memory));
  }
  writer.number(static_cast<std::uint8_t>(rows.options.op));
  writer.number(static_cast<std::uint8_t>(rows.options.result));
  writer.number(static_cast<std::uint8_t>(rows.options.exchange));
  write(writer, rows.options.scales);
}

RowCall read_rows(ByteReader& reader) {
  RowCall rows;
  for (std::size_t left = reader.list(kTableBytes); left > 0; --left) {
    rows.tables.push_back({.height = reader.number<std::uint64_t>(),
                           .width = reader.number<std::uint64_t>(),
                           .dtype = reader.choice(kAllDTypes),
                           .memory = reader.choice(kAllMemories)});
  }
  rows.options.op = reader.choice(kEveryReduceOp);
  rows.options.result = reader.choice(kAllForms);
  rows.options.exchange = reader.choice(kAllForms);
  rows.options.scales = read_scales(reader);
  return rows;
}

}  // namespace

StandInMemory::Block::Block(Device& device, std::size_t bytes)
    : memory_(device.allocate(bytes, MemoryKind::kDevice)),
      pattern_(device.allocate(std::min(bytes, kPatternBytes), MemoryKind::kPinned)),
      filled_(device.make_event()) {}

void StandInMemory::Block::fill(Stream& up, std::size_t count, DType dtype, ReduceOp op) {
  const std::size_t at_once = std::min(count, pattern_.bytes() / size_of(dtype));
  const BufferView pattern{pattern_.data(), at_once, dtype, MemoryKind::kPinned};
  BufferView host = pattern;
  host.memory = MemoryKind::kHost;
  fill_identity(host, op);
  for (std::size_t first = 0; first < count; first += at_once) {
    BufferView source = pattern;
    source.count = std::min(at_once, count - first);
    BufferView target = source;
    target.data = data() + first * size_of(dtype);
    target.memory = MemoryKind::kDevice;
    up.copy(target, source);
  }
  up.record(*filled_);
}

std::shared_ptr<StandInMemory::Block> StandInMemory::take(std::size_t bytes) {
  std::shared_ptr<Block>* best = nullptr;
  for (std::shared_ptr<Block>& block : blocks_) {
    const bool is_free = block.use_count() == 1 && block->bytes() >= bytes;
    if (is_free && (best == nullptr || block->bytes() < (*best)->bytes())) best = &block;
  }
  if (best != nullptr) return *best;
  blocks_.push_back(std::make_shared<Block>(copies_.device(), bytes));
  return blocks_.back();
}

std::vector<std::byte> to_bytes(const OperationTerms& terms) {
  const OperationShape& shape = terms.shape;
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  writer.text(terms.name);
  writer.number(static_cast<std::uint8_t>(shape.kind));
  writer.number(narrow<std::uint32_t>(shape.counts.size()));
  for (const std::size_t count : shape.counts) writer.number(std::uint64_t{count});
  writer.number(narrow<std::uint32_t>(shape.tensors.size()));
  for (const std::size_t count : shape.tensors) writer.number(std::uint64_t{count});
  writer.number(static_cast<std::uint8_t>(shape.dtype));
  writer.number(static_cast<std::uint8_t>(shape.memory));
  writer.number(static_cast<std::uint8_t>(shape.out_of_place ? 1 : 0));
  writer.number(static_cast<std::uint8_t>(shape.op));
  write(writer, shape.scales);
  writer.number(static_cast<std::uint8_t>(shape.wire ? 1 : 0));
  writer.number(static_cast<std::uint8_t>(shape.wire.value_or(shape.dtype)));
  writer.rank(shape.root);
  writer.number(static_cast<std::uint8_t>(terms.space));
  writer.number(static_cast<std::uint8_t>(shape.rows ? 1 : 0));
  if (shape.rows) write(writer, *shape.rows);
  return bytes;
}

std::optional<OperationTerms> operation_terms_from(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  OperationTerms terms;
  OperationShape& shape = terms.shape;
  terms.name = reader.text();
  shape.kind = reader.choice(kAllOperationKinds);
  shape.counts.resize(reader.list(sizeof(std::uint64_t)));
  for (std::size_t& count : shape.counts) count = reader.number<std::uint64_t>();
  shape.tensors.resize(reader.list(sizeof(std::uint64_t)));
  for (std::size_t& count : shape.tensors) count = reader.number<std::uint64_t>();
  shape.dtype = reader.choice(kAllDTypes);
  shape.memory = reader.choice(kAllMemories);
  shape.out_of_place = reader.number<std::uint8_t>() != 0;
  shape.op = reader.choice(kEveryReduceOp);
  shape.scales = read_scales(reader);
  const bool has_wire = reader.number<std::uint8_t>() != 0;
  const DType wire = reader.choice(kAllDTypes);
  if (has_wire) shape.wire = wire;
  shape.root = reader.rank();
  terms.space = reader.choice(kAllSpaces);
  if (reader.number<std::uint8_t>() != 0) shape.rows = read_rows(reader);
  if (!reader.ok() || !reader.at_end()) return std::nullopt;
  return terms;
}

std::string_view obstacle_to(const OperationShape& shape, int rank) {
  if (shape.rows) return {};  // A joined rank has no rows.
  if (shape.kind == OperationKind::kBarrier) return {};
  if (shape.kind == OperationKind::kClose) return "all ranks must join first";
  if (gives_parts(shape.kind)) return "it has nothing to contribute";
  if (has_root(shape.kind) && shape.root == rank) return "it is the root";
  if (reduces(shape.kind) && scale_spoils(shape)) {
    return "no element leaves a result alone when it is scaled";
  }
  return {};
}

std::shared_ptr<Operation> make_stand_in(const OperationTerms& terms, int world_size,
                                         StandInMemory* memory) {
  const OperationShape& shape = terms.shape;
  auto part = std::make_shared<StandIn>();
  part->kind = shape.kind;
  part->name = terms.name;
  part->space = terms.space;
  part->dtype = shape.dtype;
  part->memory = shape.memory;
  part->counts = shape.counts;
  for (const std::size_t count : shape.tensors) part->tensors.push_back({.count = count});
  part->op = shape.op;
  part->scales = shape.scales;
  part->wire = shape.wire;
  part->out_of_place = shape.out_of_place;
  part->root = shape.root;
  if (shape.kind == OperationKind::kBarrier) return part;
  // Sized as if this rank had all parts; memory that is not used is not committed.
  const CollectiveSpec spec = part->spec(world_size);
  const std::size_t numbers = spec.count();
  const StorageType storage = StorageType::of(shape.dtype);
  const std::size_t bytes = numbers * size_of(storage.dtype);
  const std::size_t contributed = is_from_root(shape.kind) ? 0 : numbers;
  const ReduceOp op = carried(shape.op, shape.dtype);
  const bool is_on_host = shape.memory == MemoryKind::kHost;
  check(is_on_host || memory != nullptr, "a stand-in in device memory needs some");
  const WholeBuffers buffers =
      is_on_host ? give_host_memory(*part, bytes, contributed, storage.dtype, op)
                 : give_device_memory(*part, *memory, bytes, contributed, storage.dtype, op);
  share_out(buffers, *part, spec.size());
  return part;
}

}  // namespace kolo
