#pragma once

#include <atomic>

namespace kolo {

/// Makes all that this thread has written visible to others before it reads anything else. The
/// thread sanitizer knows no fences, and need not where they order atomics only.
inline void full_fence() noexcept {
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
  std::atomic_thread_fence(std::memory_order_seq_cst);
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
}

}  // namespace kolo
