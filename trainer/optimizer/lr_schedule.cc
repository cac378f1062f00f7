#include "trainer/optimizer/lr_schedule.h"

#include <cmath>
#include <numbers>

#include "trainer/config_error.h"

namespace kolo::trainer {
namespace {

struct Fall {
  std::string_view name;
  LrFall left;
};

/// Every schedule; a new one adds its line.
constexpr Fall kFalls[] = {
    {"cosine", [](double progress) { return 0.5 * (1.0 + std::cos(std::numbers::pi * progress)); }},
    {"linear", [](double progress) { return 1.0 - progress; }},
    {"constant", [](double) { return 1.0; }},
};

}  // namespace

std::vector<std::string> lr_schedule_names() {
  std::vector<std::string> names;
  for (const Fall& fall : kFalls) names.emplace_back(fall.name);
  return names;
}

LrFall parse_lr_fall(std::string_view name) {
  for (const Fall& fall : kFalls) {
    if (fall.name == name) return fall.left;
  }
  throw_unknown_choice("--lr-schedule", name, lr_schedule_names());
}

float LrSchedule::at(std::size_t step) const {
  if (step < warmup_steps) {
    return peak_lr * static_cast<float>(step + 1) / static_cast<float>(warmup_steps);
  }
  // In the last step, and where the rise takes all steps, the fall is over.
  const double progress = step + 1 >= total_steps
                              ? 1.0
                              : static_cast<double>(step - warmup_steps) /
                                    static_cast<double>(total_steps - 1 - warmup_steps);
  return final_lr + (peak_lr - final_lr) * static_cast<float>(fall(progress));
}

}  // namespace kolo::trainer
