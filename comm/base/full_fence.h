#pragma once

#include <atomic>

namespace kolo {

/// What the thread wrote before is visible to all others before it reads anything after. The thread
/// sanitizer knows no fences: it reports nothing that one orders, if only atomics are ordered so.
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
