#include "runtime/c/arguments.h"

#include <iterator>

namespace kolo {
namespace {

// Numbers of the C interface are those of the enumerations, and stay as they are.
static_assert(KOLO_FLOAT32 == static_cast<int>(DType::kFloat32));
static_assert(KOLO_FLOAT64 == static_cast<int>(DType::kFloat64));
static_assert(KOLO_FLOAT16 == static_cast<int>(DType::kFloat16));
static_assert(KOLO_BFLOAT16 == static_cast<int>(DType::kBFloat16));
static_assert(KOLO_INT32 == static_cast<int>(DType::kInt32));
static_assert(KOLO_INT64 == static_cast<int>(DType::kInt64));
static_assert(KOLO_UINT8 == static_cast<int>(DType::kUInt8));
static_assert(KOLO_INT8 == static_cast<int>(DType::kInt8));
static_assert(KOLO_BOOL == static_cast<int>(DType::kBool));
static_assert(KOLO_COMPLEX64 == static_cast<int>(DType::kComplex64));
static_assert(KOLO_COMPLEX128 == static_cast<int>(DType::kComplex128));
static_assert(KOLO_FLOAT8_E4M3 == static_cast<int>(DType::kFloat8E4M3));
static_assert(KOLO_FLOAT8_E5M2 == static_cast<int>(DType::kFloat8E5M2));

static_assert(KOLO_SUM == static_cast<int>(ReduceOp::kSum));
static_assert(KOLO_MIN == static_cast<int>(ReduceOp::kMin));
static_assert(KOLO_MAX == static_cast<int>(ReduceOp::kMax));
static_assert(KOLO_PROD == static_cast<int>(ReduceOp::kProd));
static_assert(KOLO_AVERAGE == static_cast<int>(ReduceOp::kAverage));
static_assert(KOLO_BIT_AND == static_cast<int>(ReduceOp::kBitAnd));
static_assert(KOLO_BIT_OR == static_cast<int>(ReduceOp::kBitOr));
static_assert(KOLO_BIT_XOR == static_cast<int>(ReduceOp::kBitXor));
static_assert(KOLO_PREMUL_SUM == static_cast<int>(ReduceOp::kPremulSum));

static_assert(KOLO_HOST == static_cast<int>(MemoryKind::kHost));
static_assert(KOLO_DEVICE == static_cast<int>(MemoryKind::kDevice));

}  // namespace

DType dtype_of(kolo_dtype dtype) {
  check(dtype >= 0 && dtype < static_cast<int>(std::size(kAllDTypes)),
        fmt::format("{} is not a dtype", dtype));
  return static_cast<DType>(dtype);
}

std::optional<DType> wire_dtype_of(kolo_dtype dtype) {
  if (dtype == KOLO_SAME_DTYPE) return std::nullopt;
  return dtype_of(dtype);
}

ReduceOp op_of(kolo_op op) {
  check(op >= 0 && op < static_cast<int>(std::size(kAllReduceOps)),
        fmt::format("{} is not an operation", op));
  return static_cast<ReduceOp>(op);
}

MemoryKind memory_of(kolo_memory memory) {
  check(memory == KOLO_HOST || memory == KOLO_DEVICE,
        fmt::format("{} is not a kind of memory", memory));
  return static_cast<MemoryKind>(memory);
}

BufferView buffer_of(const kolo_buffer& buffer) {
  return {buffer.data, buffer.count, dtype_of(buffer.dtype), memory_of(buffer.memory)};
}

kolo_buffer buffer_of(const BufferView& view) {
  return {.data = view.data,
          .count = view.count,
          .dtype = static_cast<kolo_dtype>(view.dtype),
          .memory = view.memory == MemoryKind::kDevice ? KOLO_DEVICE : KOLO_HOST};
}

CallArguments::CallArguments(const kolo_call* call) {
  const kolo_call given = complete(call, kolo_call KOLO_CALL_INIT, "call");
  name = text_or_empty(given.name);
  scales = {.before = given.scale_before, .after = given.scale_after};
  if (given.counts != nullptr) counts = {given.counts, given.num_counts};
  stream = {given.stream};
  memory = memory_of(given.memory);
  if (given.wire_dtype != nullptr) wire_dtype = wire_dtype_of(*given.wire_dtype);
}

void CallArguments::check_unscaled() const {
  check(scales == Scales(), "only reductions are scaled");
  check(!wire_dtype, "only all-reduce and reduce-scatter cast elements to a wire dtype");
}

void CallArguments::check_whole() const {
  check(counts.empty(), "this operation knows no parts, so it takes no counts");
}

}  // namespace kolo
