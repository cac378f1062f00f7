#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "comm/base/clock.h"
#include "comm/base/mutex.h"
#include "runtime/options/plan_summary.h"

namespace kolo {

/// Writes the iterations of a rank's gradient sets to a file of trace events for Perfetto and
/// chrome://tracing: one row for each bucket of a set and one for waiting, in microseconds.
///
/// Every rank writes a separate file, PATH.RANK, by its host's steady clock, so that the ranks of a
/// host line up. Each event is a complete line, so the file of a killed job only lacks the end of
/// the list. If a file cannot grow further, it ends with the last event that fits, and the log says
/// so once.
///
/// Threads: any.
class Timeline {
 public:
  /// Errors: KoloError(kIo) if the file cannot be written.
  Timeline(const std::string& path, int rank);
  /// Ends the list of events.
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  struct Span {
    TimePoint began = {};
    TimePoint ended = {};

    double milliseconds() const {
      return std::chrono::duration<double, std::milli>(ended - began).count();
    }
  };

  /// Writes the event of a bucket, from its start to its end on this rank.
  void bucket(std::string_view set, std::size_t index, const Span& span);
  /// Works like `bucket`, for a compressed bucket; adds the statistics of its step.
  void group(std::string_view set, const CompressionStats& stats, const Span& span);
  /// Writes the event of a call of `wait`.
  void wait(std::string_view set, const Span& span);
  /// Throws KoloError(kIo) if events are missing from the file.
  void expect_complete();

 private:
  struct Event;
  void write(const Event& event);
  void append(const std::string& text) KOLO_REQUIRES(mutex_);

  const int rank_;
  const std::string path_;
  Mutex mutex_;
  std::map<std::string, std::size_t, std::less<>> rows_ KOLO_GUARDED_BY(mutex_);
  std::ofstream file_ KOLO_GUARDED_BY(mutex_);
  /// Bytes written so far, up to the end of an event.
  std::uintmax_t bytes_ KOLO_GUARDED_BY(mutex_) = 0;
  std::string failure_ KOLO_GUARDED_BY(mutex_);  ///< Why events are missing, or empty.
};

}  // namespace kolo
