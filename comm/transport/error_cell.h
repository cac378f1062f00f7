#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "comm/base/error.h"

namespace kolo {

/// Room for the error with which a rank gives up, where its peers find it even after its end, and
/// for the verb in which it is stuck before that. All zeroes is an empty cell: it may live in fresh
/// shared memory.
///
/// Threads: any, of any process; `note_stuck` one.
class ErrorCell {
 public:
  static constexpr std::size_t kMostBytes = 1000;
  static constexpr std::size_t kVerbBytes = sizeof(std::uint64_t);

  /// Keeps the error, without the end of a long text, unless there is one already.
  void write(const Error& error);

  bool is_written() const { return state_.load(std::memory_order_acquire) == State::kWritten; }
  /// Empty if there is none, or what is there is no error.
  std::optional<Error> read() const;

  /// The rank has not come back from a call in this verb, of which the first `kVerbBytes` are kept;
  /// empty: it has.
  void note_stuck(std::string_view verb);
  /// Empty if the rank is not stuck.
  std::string stuck_in() const;

 private:
  enum class State : std::uint32_t { kEmpty, kBeingWritten, kWritten };

  std::atomic<std::uint64_t> stuck_in_{0};  // the bytes of the verb
  std::atomic<State> state_{State::kEmpty};
  std::uint32_t size_ = 0;  // constant once it is written, as are the bytes
  std::array<std::byte, kMostBytes> bytes_{};
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
              std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace kolo
