#pragma once

#include <string>
#include <vector>

namespace kolo::trainer {

/// A value that must not change when training resumes, named by the option that sets it.
struct Setting {
  std::string option;
  std::string value;
  friend bool operator==(const Setting&, const Setting&) = default;
};

/// The job that a checkpoint belongs to.
struct JobIdentity {
  std::string model;
  std::vector<Setting> settings;
  friend bool operator==(const JobIdentity&, const JobIdentity&) = default;
};

/// A sentence that names the setting of `saved` that differs from `current`; empty if none does.
std::string describe_other_job(const JobIdentity& saved, const JobIdentity& current);

}  // namespace kolo::trainer
