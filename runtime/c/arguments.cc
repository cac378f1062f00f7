#include "runtime/c/arguments.h"

#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "comm/native/device_factory.h"
#include "comm/native/group_factory.h"
#include "runtime/options/version.h"

namespace kolo {
namespace {

// Statuses are error codes plus one, because zero means no error. A test compares the names.
static_assert(KOLO_CANCELLED == static_cast<int>(kLastErrorCode) + 1);

constexpr kolo_status status_of(ErrorCode code) { return static_cast<kolo_status>(code) + 1; }

std::optional<ErrorCode> code_of(kolo_status status) {
  if (status <= KOLO_OK || status > KOLO_CANCELLED) return std::nullopt;
  return static_cast<ErrorCode>(status - 1);
}

/// An error, and the C struct that refers to its texts.
struct LastError {
  Error error;
  std::string text;
  kolo_error shown{};
};

// The error of the calling thread's last failed call, like errno.
thread_local std::unique_ptr<LastError> last_error;  // NOLINT

// A kolo_dtype is the value of DType plus one, because zero means no dtype; the other enumerations
// have equal values in C and C++. A test compares the names, and checks that none is missing.
static_assert(KOLO_HOST == static_cast<int>(MemoryKind::kHost));
static_assert(KOLO_DEVICE == static_cast<int>(MemoryKind::kDevice));

constexpr bool is_dtype(kolo_dtype dtype) {
  return dtype > KOLO_SAME_DTYPE && dtype <= static_cast<kolo_dtype>(std::size(kAllDTypes));
}
constexpr bool is_op(kolo_op op) {
  return op >= KOLO_SUM && op < static_cast<kolo_op>(std::size(kEveryReduceOp));
}

}  // namespace

kolo_status note_error(Error error) noexcept {
  const kolo_status status = status_of(error.code);
  try {
    auto noted = std::make_unique<LastError>();
    noted->text = error.to_string();
    noted->error = std::move(error);
    noted->shown = {.size = sizeof(kolo_error),
                    .status = status,
                    .rank = noted->error.rank,
                    .peer = noted->error.peer,
                    .group = noted->error.group.c_str(),
                    .verb = noted->error.verb.c_str(),
                    .tensor = noted->error.bucket.c_str(),
                    .what = noted->error.what.c_str(),
                    .text = noted->text.c_str()};
    last_error = std::move(noted);
  } catch (const std::bad_alloc&) {
    last_error = nullptr;  // There is no memory for more than the status.
  }
  return status;
}

DType dtype_of(kolo_dtype dtype) {
  check(dtype != KOLO_SAME_DTYPE, "the dtype of elements is not set");
  check(is_dtype(dtype), [&] { return fmt::format("{} is not a dtype", dtype); });
  return static_cast<DType>(dtype - 1);
}

kolo_dtype dtype_of(DType dtype) { return static_cast<kolo_dtype>(dtype) + 1; }

std::optional<DType> wire_dtype_of(kolo_dtype dtype) {
  if (dtype == KOLO_SAME_DTYPE) return std::nullopt;
  return dtype_of(dtype);
}

ReduceOp op_of(kolo_op op) {
  check(is_op(op), [&] { return fmt::format("{} is not an operation", op); });
  return static_cast<ReduceOp>(op);
}

MemoryKind memory_of(kolo_memory memory) {
  check(memory == KOLO_HOST || memory == KOLO_DEVICE,
        [&] { return fmt::format("{} is not a kind of memory", memory); });
  return static_cast<MemoryKind>(memory);
}

BufferView buffer_of(const kolo_buffer& buffer) {
  return {buffer.data, buffer.count, dtype_of(buffer.dtype), memory_of(buffer.memory)};
}

kolo_buffer buffer_of(const BufferView& view) {
  return {.data = view.data,
          .count = view.count,
          .dtype = dtype_of(view.dtype),
          .memory = view.memory == MemoryKind::kDevice ? KOLO_DEVICE : KOLO_HOST};
}

CallArguments::CallArguments(const kolo_call* call) {
  const kolo_call given = complete(call, kolo_call KOLO_CALL_INIT, "call");
  name = text_or_empty(given.name);
  scales = {.before = given.scale_before, .after = given.scale_after};
  stream = {given.stream};
  wire_dtype = wire_dtype_of(given.wire_dtype);
}

void CallArguments::check_unscaled() const {
  check(scales == Scales(), "only reductions are scaled");
  check(!wire_dtype, "only all-reduce and reduce-scatter cast elements to a wire dtype");
}

}  // namespace kolo

// `to_string` returns string literals, so `data()` ends with a null byte.

const char* kolo_dtype_name(kolo_dtype dtype) {
  return kolo::is_dtype(dtype) ? kolo::to_string(kolo::dtype_of(dtype)).data() : nullptr;
}

size_t kolo_dtype_size(kolo_dtype dtype) {
  return kolo::is_dtype(dtype) ? kolo::size_of(kolo::dtype_of(dtype)) : 0;
}

const char* kolo_op_name(kolo_op op) {
  return kolo::is_op(op) ? kolo::to_string(kolo::op_of(op)).data() : nullptr;
}

int kolo_op_takes(kolo_op op, kolo_dtype dtype) {
  return kolo::is_op(op) && kolo::is_dtype(dtype) &&
                 kolo::takes(kolo::op_of(op), kolo::dtype_of(dtype))
             ? 1
             : 0;
}

const kolo_error* kolo_last_error() {
  return kolo::last_error == nullptr ? nullptr : &kolo::last_error->shown;
}

const char* kolo_status_name(kolo_status status) {
  if (status == KOLO_OK) return "ok";
  const auto code = kolo::code_of(status);
  /// `to_string` returns a string literal, so `data()` ends with a null byte.
  return code ? kolo::to_string(*code).data() : "unknown";
}

int kolo_exit_status(kolo_status status) {
  if (status == KOLO_OK) return 0;
  return kolo::exit_status(kolo::code_of(status).value_or(kolo::ErrorCode::kInternal));
}

const char* kolo_version() { return kolo::kVersion; }

int kolo_built_with(const char* name) {
  const std::string_view library = kolo::text_or_empty(name);
  const bool has_cuda = library == "cuda" && kolo::is_built_with_cuda();
  return has_cuda || (library == "nccl" && kolo::is_built_with_nccl()) ? 1 : 0;
}
