#include "trainer/report/listeners.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <isa-l/crc.h>
#include <nlohmann/json.hpp>

#include "comm/base/error.h"
#include "comm/base/log.h"
#include "comm/base/output_file.h"
#include "trainer/checkpoint/stored_weights.h"

namespace kolo::trainer {
namespace {

static_assert(std::endian::native == std::endian::little);  // byte order of event files

template <typename T>
void append_plain(std::string& bytes, T value) {
  char plain[sizeof value];
  std::memcpy(plain, &value, sizeof value);
  bytes.append(plain, sizeof value);
}

// A field of a protocol buffer is a key of number and wire type, then the value.
enum class WireType : std::uint8_t { kVarint = 0, k64Bit = 1, kBytes = 2, k32Bit = 5 };

void append_varint(std::string& message, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) message += static_cast<char>(value | 0x80);
  message += static_cast<char>(value);
}

void append_key(std::string& message, unsigned field, WireType type) {
  append_varint(message, field << 3 | static_cast<unsigned>(type));
}

void append_number(std::string& message, unsigned field, std::uint64_t value) {
  append_key(message, field, WireType::kVarint);
  append_varint(message, value);
}

void append_bytes(std::string& message, unsigned field, std::string_view bytes) {
  append_key(message, field, WireType::kBytes);
  append_varint(message, bytes.size());
  message += bytes;
}

std::string event_at(std::size_t step) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::string event;
  append_key(event, 1, WireType::k64Bit);  // Event.wall_time
  append_plain(event, now.count());
  append_number(event, 2, step);  // Event.step
  return event;
}

std::uint32_t masked_crc(std::string_view bytes) {
  auto* data = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));  // only read
  const std::uint32_t crc = ~crc32_iscsi(data, static_cast<int>(bytes.size()), ~0u);
  return std::rotr(crc, 15) + 0xa282ead8u;
}

std::filesystem::path new_path(const std::filesystem::path& folder) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::system_clock::now().time_since_epoch());
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return folder / fmt::format("events.out.tfevents.{:010}.{}.{}", seconds.count(), host,
                              static_cast<int>(::getpid()));
}

using Json = nlohmann::ordered_json;

/// Returns the file's lines of steps up to `step`, without an incomplete last line of a killed job.
std::string lines_until(const std::filesystem::path& file, std::size_t step) {
  std::ifstream in(file);
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const Json json = Json::parse(line, nullptr, false);
    const auto at = json.is_object() ? json.find("step") : json.end();
    if (at == json.end() || !at->is_number_unsigned()) continue;
    if (at->get<std::size_t>() <= step) kept += line + "\n";
  }
  return kept;
}

}  // namespace

Progress::Progress(std::FILE* out, Style style, std::string rate_unit)
    : out_(out), style_(style), rate_unit_(std::move(rate_unit)) {}

void Progress::report(const ProgressReport& r) {
  const std::string skipped =
      r.skipped_steps > 0 ? fmt::format("  {} skipped", r.skipped_steps) : std::string();
  if (style_ == Style::kTerminal) {
    fmt::print(out_,
               "\r\033[Kstep {}/{}  loss {:.4f}  lr {:.2e}  norm {:.3f}  {:.1f} ms/step  "
               "{:.0f} {}/s  comm {:.0f} %  eta {}{}",
               r.step, r.total_steps, r.train_loss, r.lr, r.gradient_norm, r.step_ms, r.rate,
               rate_unit_, 100.0 * r.exposed_share, format_seconds(r.seconds_left), skipped);
    line_is_open_ = true;
  } else {
    if (!std::exchange(header_printed_, true)) {
      fmt::print(out_, "{:>8} {:>9} {:>9} {:>9} {:>8} {:>10} {:>6} {:>8}\n", "step", "loss", "lr",
                 "norm", "ms/step", rate_unit_ + "/s", "comm%", "eta");
    }
    fmt::print(out_, "{:>8} {:>9.4f} {:>9.2e} {:>9.3f} {:>8.2f} {:>10.0f} {:>6.1f} {:>8}{}\n",
               r.step, r.train_loss, r.lr, r.gradient_norm, r.step_ms, r.rate,
               100.0 * r.exposed_share, format_seconds(r.seconds_left), skipped);
  }
  std::fflush(out_);
}

void Progress::evaluating(std::size_t done, std::size_t total) {
  // Evaluations of less than kBetweenLines print no line.
  constexpr std::chrono::seconds kBetweenLines{10};
  const auto now = std::chrono::steady_clock::now();
  if (done <= 1) last_line_ = now;
  if (style_ == Style::kTerminal) {
    fmt::print(out_, "\r\033[Kevaluating {}/{}", done, total);
    line_is_open_ = true;
  } else if (now - last_line_ >= kBetweenLines) {
    last_line_ = now;
    fmt::print(out_, "         evaluating: {} of {} batches\n", done, total);
  }
  std::fflush(out_);
}

void Progress::evaluation(std::size_t step, double loss, const Metric& metric, double value) {
  note(fmt::format("{:>8} held-out loss {:.4f}, {}", step, loss, describe(metric, value)));
}

void Progress::note(std::string_view text) {
  fmt::print(out_, "{}{}\n", std::exchange(line_is_open_, false) ? "\n" : "", text);
  std::fflush(out_);
}

Progress::Style progress_style(std::string_view choice, std::FILE* out) {
  if (choice == "terminal") return Progress::Style::kTerminal;
  const bool on_terminal = ::isatty(::fileno(out)) == 1 && ::isatty(STDERR_FILENO) == 1;
  return choice == "auto" && on_terminal ? Progress::Style::kTerminal : Progress::Style::kLines;
}

std::string format_seconds(double seconds) {
  const auto whole = static_cast<long>(std::lround(std::max(0.0, seconds)));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

EventFile::EventFile(const std::filesystem::path& folder, std::size_t first_step)
    : path_(new_path(folder)) {
  std::string version = event_at(0);
  append_bytes(version, 3, "brain.Event:2");  // Event.file_version
  append(version);

  std::string start = event_at(first_step);
  std::string session;
  append_number(session, 1, 1);     // SessionLog.status: START
  append_bytes(start, 7, session);  // Event.session_log
  append(start);
}

void EventFile::add(std::size_t step, std::string_view name, double value) {
  std::string number;
  append_bytes(number, 1, name);            // Summary.Value.tag
  append_key(number, 2, WireType::k32Bit);  // Summary.Value.simple_value
  append_plain(number, static_cast<float>(value));
  std::string summary;
  append_bytes(summary, 1, number);  // Summary.value
  std::string event = event_at(step);
  append_bytes(event, 5, summary);  // Event.summary
  append(event);
}

void EventFile::write() {
  std::error_code ignored;  // an error shows when the file is written
  std::filesystem::create_directories(path_.parent_path(), ignored);
  append_file(path_, pending_);
  pending_.clear();
}

void EventFile::append(std::string_view event) {
  std::string length;
  append_plain(length, static_cast<std::uint64_t>(event.size()));
  pending_ += length;
  append_plain(pending_, masked_crc(length));
  pending_ += event;
  append_plain(pending_, masked_crc(event));
}

RunLog::RunLog(std::filesystem::path folder, std::string config, TextFiles vocabularies)
    : folder_(std::move(folder)),
      config_(std::move(config)),
      vocabularies_(std::move(vocabularies)) {}

void RunLog::begin(std::size_t step) {
  first_step_ = step;
  events_.emplace(folder_ / "tensorboard", step + 1);
  write_all();
}

void RunLog::report(const ProgressReport& r) {
  pending_lines_ += Json({{"step", r.step},
                          {"seconds", r.seconds},
                          {"train_loss", r.train_loss},
                          {"lr", r.lr},
                          {"gradient_norm", r.gradient_norm},
                          {"step_ms", r.step_ms},
                          {"rate", r.rate},
                          {"exposed_share", r.exposed_share},
                          {"skipped_steps", r.skipped_steps}})
                        .dump() +
                    "\n";
  for (const auto& [name, value] : {std::pair{"loss/training", r.train_loss},
                                    {"step/learning_rate", r.lr},
                                    {"step/gradient_norm", r.gradient_norm},
                                    {"step/ms", r.step_ms},
                                    {"step/exposed_share", r.exposed_share},
                                    {"step/rate", r.rate}}) {
    events_->add(r.step, name, value);
  }
  write_all();
}

void RunLog::evaluation(std::size_t step, double loss, const Metric& metric, double value) {
  pending_lines_ +=
      Json({{"step", step}, {"eval_loss", loss}, {"eval_" + metric.name, value}}).dump() + "\n";
  events_->add(step, "loss/held_out", loss);
  events_->add(step, metric.name + "/held_out", value);
  write_all();
}

bool RunLog::is_complete() { return write_all(); }

/// Writes all pending data. Data that cannot be written stays pending.
bool RunLog::write_all() {
  try {
    if (!has_begun_) {
      std::error_code ignored;  // an error shows when a file is written
      std::filesystem::create_directories(folder_, ignored);
      write_file(folder_ / "config.toml", config_);
      if (!vocabularies_.empty()) write_text_files(vocabularies_, folder_ / kTokenizerFolder);
      write_file(metrics(), lines_until(metrics(), first_step_));
      has_begun_ = true;
    }
    append_file(metrics(), pending_lines_);
    pending_lines_.clear();
    events_->write();
    return true;
  } catch (const KoloError& error) {
    if (!std::exchange(has_failed_, true)) {
      log::warn(fmt::format("{}; training goes on, and numbers of this run may be missing",
                            error.error().what));
    }
    return false;
  }
}

}  // namespace kolo::trainer
