#pragma once

#include <string>
#include <vector>

namespace kolo::trainer {

/// A value that must be the same when training goes on, by the option that sets it.
struct Setting {
  std::string option;
  std::string value;
  friend bool operator==(const Setting&, const Setting&) = default;
};

/// Which job a checkpoint belongs to.
struct JobIdentity {
  std::string model;
  std::vector<Setting> settings;
  friend bool operator==(const JobIdentity&, const JobIdentity&) = default;
};

/// A sentence that says which setting of `saved` differs from `current`; empty if none does.
std::string describe_other_job(const JobIdentity& saved, const JobIdentity& current);

}  // namespace kolo::trainer
