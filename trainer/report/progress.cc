#include "trainer/report/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace kolo::trainer {

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
  // Short evaluations need no line.
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

}  // namespace kolo::trainer
