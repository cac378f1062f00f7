#pragma once

#include <string>
#include <vector>

namespace kolo::trainer {

/// The value of an option that must not change when training resumes.
struct Setting {
  std::string option;
  std::string value;
  friend bool operator==(const Setting&, const Setting&) = default;
};

/// The setting of a hash of the text that a job reads; older checkpoints lack it.
inline constexpr const char* kTextSetting = "the text of --data";

/// The model and options that identify the job of a checkpoint.
struct JobIdentity {
  std::string model;
  std::vector<Setting> settings;
  friend bool operator==(const JobIdentity&, const JobIdentity&) = default;
};

/// The first difference between two jobs: "OPTION is NOW, and was SAVED". Empty if they are equal.
std::string describe_other_job(const JobIdentity& saved, const JobIdentity& current);

}  // namespace kolo::trainer
