#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "comm/base/clock.h"

namespace kolo {

/// What a rank did last, for people who wait for it.
struct LastAct {
  std::string text = {};  ///< "completed 'x': all_reduce ..."; empty: it has done nothing yet.
  std::chrono::milliseconds age{0};

  friend bool operator==(const LastAct&, const LastAct&) = default;
};

/// Remembers what this rank did last. Cost: a copy of `kMostBytes`, since names may go.
///
/// Threads: one.
class LastActNote {
 public:
  static constexpr std::size_t kMostBytes = 64;

  /// `verb` lives on; of `what` the first bytes are kept.
  void did(std::string_view verb, std::string_view what, TimePoint now) {
    verb_ = verb;
    size_ = what.size();
    std::copy_n(what.data(), std::min(size_, kMostBytes), what_.data());
    at_ = now;
  }

  LastAct at(TimePoint now) const {
    if (verb_.empty()) return {};
    std::string text(verb_);
    text += ' ';
    text.append(what_.data(), std::min(size_, kMostBytes));
    if (size_ > kMostBytes) text += "...";
    return {.text = std::move(text),
            .age = std::chrono::duration_cast<std::chrono::milliseconds>(now - at_)};
  }

 private:
  std::string_view verb_ = {};
  std::array<char, kMostBytes> what_{};
  std::size_t size_ = 0;
  TimePoint at_{};
};

}  // namespace kolo
