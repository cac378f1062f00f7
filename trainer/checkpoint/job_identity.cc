#include "trainer/checkpoint/job_identity.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace kolo::trainer {
namespace {

std::string value_in(const JobIdentity& job, std::string_view option) {
  const auto found = std::ranges::find(job.settings, option, &Setting::option);
  return found == job.settings.end() ? "not set" : found->value;
}

}  // namespace

std::string describe_other_job(const JobIdentity& saved, const JobIdentity& current) {
  if (saved.model != current.model) {
    return fmt::format("--model is {}, and was {}", current.model, saved.model);
  }
  for (const JobIdentity* job : {&current, &saved}) {
    for (const Setting& setting : job->settings) {
      const std::string now = value_in(current, setting.option);
      const std::string then = value_in(saved, setting.option);
      if (now != then) return fmt::format("{} is {}, and was {}", setting.option, now, then);
    }
  }
  return {};
}

}  // namespace kolo::trainer
