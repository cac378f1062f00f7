#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "comm/base/clock.h"

namespace kolo {

/// What a rank did last, for people who wait for it.
struct LastAct {
  std::string text = {};  ///< "completed 'x': all_reduce ..."; empty: it has done nothing yet.
  std::chrono::milliseconds age{0};

  friend bool operator==(const LastAct&, const LastAct&) = default;
};

/// Remembers what this rank did last. What happens in every iteration only leaves a pointer: when
/// it happened is noticed at the next look, so an age is a lower bound.
///
/// Threads: one.
class LastActNote {
 public:
  /// A bucket has completed. `text` stays in place, and unchanged until `keep`.
  void completed(const std::string& text) {
    text_ = &text;
    ++acts_;
  }
  /// Something that happens rarely.
  void did(std::string what) {
    kept_ = std::move(what);
    text_ = nullptr;
    ++acts_;
  }
  /// The text of a completed bucket is about to change.
  void keep() {
    if (text_ == nullptr) return;
    kept_ = completed_text();
    text_ = nullptr;
  }
  /// Notices what was done since the last look.
  void look(TimePoint now) {
    if (std::exchange(seen_, acts_) != acts_) at_ = now;
  }

  /// Before: `look`, at the same time or before.
  LastAct at(TimePoint now) const {
    if (acts_ == 0) return {};
    return {.text = text_ != nullptr ? completed_text() : kept_,
            .age = std::chrono::duration_cast<std::chrono::milliseconds>(now - at_)};
  }

 private:
  static constexpr std::size_t kMostBytes = 64;

  std::string completed_text() const {
    std::string text = "completed " + text_->substr(0, kMostBytes);
    if (text_->size() > kMostBytes) text += "...";
    return text;
  }

  const std::string* text_ = nullptr;  // of the bucket that completed last
  std::string kept_;
  std::uint64_t acts_ = 0, seen_ = 0;
  TimePoint at_{};
};

}  // namespace kolo
