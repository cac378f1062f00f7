#include "runtime/observe/timeline.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "comm/base/error.h"
#include "comm/base/log.h"

namespace kolo {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kEnd = "\n]\n";

/// Formats one line of JSON; a name may contain any bytes.
std::string line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Makes the event that names a process or a row.
Json naming(const char* what, int process, std::size_t row, std::string_view name) {
  return {{"name", what},
          {"ph", "M"},
          {"pid", process},
          {"tid", row},
          {"args", {{"name", std::string(name)}}}};
}

}  // namespace

struct Timeline::Event {
  std::string_view row;
  std::string_view name;
  Span span = {};
  Json arguments = Json::object();
};

Timeline::Timeline(const std::string& path, int rank)
    : rank_(rank), path_(fmt::format("{}.{}", path, rank)) {
  const MutexLock lock(mutex_);
  file_.open(path_);
  append("[\n" + line(naming("process_name", rank, 0, fmt::format("rank {}", rank))));
  if (!failure_.empty()) throw KoloError({.code = ErrorCode::kIo, .what = failure_});
}

Timeline::~Timeline() {
  const MutexLock lock(mutex_);
  if (failure_.empty()) file_ << kEnd;
}

void Timeline::expect_complete() {
  const MutexLock lock(mutex_);
  if (!failure_.empty()) throw KoloError({.code = ErrorCode::kIo, .what = failure_});
}

void Timeline::bucket(std::string_view set, std::size_t index, const Span& span) {
  const std::string name = fmt::format("bucket {} of '{}'", index, set);
  write({.row = name, .name = name, .span = span});
}

void Timeline::group(std::string_view set, const CompressionStats& stats, const Span& span) {
  const std::string row = fmt::format("{} of '{}'", stats.tensors, set);
  write({.row = row,
         .name = stats.k > 0 ? "sparse step" : "dense step",
         .span = span,
         .arguments = {{"path", stats.path},
                       {"predicted_ms", stats.predicted_ms},
                       {"measured_ms", stats.measured_ms},
                       {"payload_bytes", stats.payload_bytes},
                       {"density", stats.density},
                       {"residual_norm", stats.residual_norm},
                       {"gradient_norm", stats.gradient_norm},
                       {"skipped_steps", stats.skipped_steps}}});
}

void Timeline::wait(std::string_view set, const Span& span) {
  const std::string name = fmt::format("wait for '{}'", set);
  write({.row = "waiting", .name = name, .span = span});
}

void Timeline::write(const Event& event) {
  const MutexLock lock(mutex_);
  if (!failure_.empty()) return;
  std::string text;
  auto row = rows_.find(event.row);
  if (row == rows_.end()) {
    row = rows_.emplace(event.row, rows_.size() + 1).first;
    text = ",\n" + line(naming("thread_name", rank_, row->second, event.row));
  }
  const Json json = {{"name", std::string(event.name)},
                     {"ph", "X"},
                     {"pid", rank_},
                     {"tid", row->second},
                     {"ts", to_us(event.span.began.time_since_epoch())},
                     {"dur", to_us(event.span.ended - event.span.began)},
                     {"args", event.arguments}};
  append(text + ",\n" + line(json));
  if (!failure_.empty()) log::warn(failure_);
}

/// Appends text to the file. If that fails, removes the part of the text that was written, and ends
/// the list of events; in most cases there is room for the end.
void Timeline::append(const std::string& text) {
  if (file_ << text << std::flush) {
    bytes_ += text.size();
    return;
  }
  failure_ = fmt::format("timeline {}: {}{}", path_, std::strerror(errno),
                         bytes_ > 0 ? "; later events are missing" : "");
  file_.close();
  file_.clear();
  std::error_code ignored;
  std::filesystem::resize_file(path_, bytes_, ignored);
  file_.open(path_, std::ios::app);
  file_ << kEnd << std::flush;
}

}  // namespace kolo
