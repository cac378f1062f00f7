#pragma once

#include <exception>
#include <new>

#include <kolo/kolo_c.h>

#include "comm/base/error.h"

namespace kolo {

/// Notes the error as this thread's last one. Returns its status.
kolo_status note_error(Error error) noexcept;

/// Calls `function`, which may throw. Returns its outcome as a status.
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

}  // namespace kolo
