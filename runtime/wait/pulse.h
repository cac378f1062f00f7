#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kolo {

/// The activity of the thread that drives the engines: a verb of the path of a gradient, or work
/// for all engines of a rank.
enum class EngineVerb : std::uint8_t {
  kMark,
  kAgree,
  kPlan,
  kStart,
  kRun,
  kComplete,
  kCreate,  ///< Creates a group.
  kWait,    ///< The transport sleeps, or prepares to sleep.
};

/// Returns the name of a verb in `Error::verb`.
constexpr std::string_view to_string(EngineVerb verb) {
  constexpr std::array<std::string_view, 8> kNames = {"mark", "agree",    "plan",   "start",
                                                      "run",  "complete", "create", "wait"};
  return kNames[static_cast<std::size_t>(verb)];
}

/// Shows other threads the driving thread's current verb, and whether it has advanced since the
/// last reading.
///
/// Threads: `beat` is the driving thread's, `read` any.
/// Cost:    `beat` is one relaxed store.
class Pulse {
 public:
  struct Reading {
    std::uint64_t beats = 0;  ///< Number of beats so far.
    EngineVerb verb = EngineVerb::kMark;

    friend bool operator==(const Reading&, const Reading&) = default;
  };

  /// Called when the driving thread begins `verb`.
  void beat(EngineVerb verb) noexcept {
    word_.store(++beats_ << kVerbBits | static_cast<std::uint64_t>(verb),
                std::memory_order_relaxed);
  }

  Reading read() const noexcept {
    const std::uint64_t word = word_.load(std::memory_order_relaxed);
    return {.beats = word >> kVerbBits,
            .verb = static_cast<EngineVerb>(word & ((1U << kVerbBits) - 1))};
  }

 private:
  static constexpr unsigned kVerbBits = 3;

  std::uint64_t beats_ = 0;  // written by the driving thread
  std::atomic<std::uint64_t> word_{0};
};

}  // namespace kolo
