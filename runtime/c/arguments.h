#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <kolo/kolo_c.h>

#include "comm/base/check.h"
#include "comm/base/error.h"
#include "runtime/api/kolo.h"

namespace kolo {

// Functions that turn the results of calls into statuses.

/// Stores the error as the calling thread's last one. Returns its status.
kolo_status note_error(Error error) noexcept;

/// Calls `function`, which may throw. Returns its result as a status.
template <typename Function>
kolo_status guarded(const Function& function) noexcept {
  try {
    function();
    return KOLO_OK;
  } catch (const KoloError& e) {
    return note_error(e.error());
  } catch (const std::bad_alloc&) {
    return note_error({.code = ErrorCode::kResources, .what = "out of memory"});
  } catch (const std::exception& e) {
    return note_error({.code = ErrorCode::kInternal, .what = e.what()});
  } catch (...) {
    return note_error({.code = ErrorCode::kInternal, .what = "an exception of an unknown type"});
  }
}

// Functions that convert arguments of kolo_c.h to arguments of the C++ interface. They throw
// UsageError, which names the argument.

/// Reads a struct that begins with `size`. Fields that the program's older header lacks come from
/// `defaults`, as do all fields if `given` is null.
template <typename Struct>
Struct complete(const Struct* given, const Struct& defaults, std::string_view name) {
  Struct result = defaults;
  if (given == nullptr) return result;
  check(given->size >= sizeof given->size && given->size <= sizeof(Struct), [&] {
    return fmt::format("{}.size is {}, not the {} of this version; set it by the _INIT macro", name,
                       given->size, sizeof(Struct));
  });
  std::memcpy(&result, given, given->size);
  return result;
}

inline std::string_view text_or_empty(const char* text) { return text == nullptr ? "" : text; }

template <typename Pointer>
void check_given(Pointer* pointer, std::string_view name) {
  check(pointer != nullptr, [&] { return fmt::format("{} is null", name); });
}

/// Works like `guarded`, for a call whose `handle` must not be null.
template <typename Handle, typename Function>
kolo_status guarded_on(Handle* handle, std::string_view name, const Function& function) noexcept {
  return guarded([&] {
    check_given(handle, name);
    function();
  });
}

DType dtype_of(kolo_dtype dtype);
kolo_dtype dtype_of(DType dtype);
/// Returns an empty result for KOLO_SAME_DTYPE.
std::optional<DType> wire_dtype_of(kolo_dtype dtype);
ReduceOp op_of(kolo_op op);
MemoryKind memory_of(kolo_memory memory);
BufferView buffer_of(const kolo_buffer& buffer);
kolo_buffer buffer_of(const BufferView& view);

/// The contents of a `kolo_call`.
struct CallArguments {
  explicit CallArguments(const kolo_call* call);

  Reduction reduction(kolo_op op) const { return {op_of(op), scales, wire_dtype}; }
  /// Throws UsageError if the call has a scale or a wire dtype; for operations that do not reduce.
  void check_unscaled() const;

  std::string_view name;
  Scales scales;
  NativeStream stream;
  std::optional<DType> wire_dtype;
};

}  // namespace kolo
