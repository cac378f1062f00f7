#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "comm/base/check.h"
#include "comm/base/mutex.h"
#include "runtime/gradients/gradient_group.h"

namespace kolo {

/// Registrations of gradient sets that have timed out. Peers count each once, so a call that is
/// made again goes on with the first one.
///
/// Threads: any.
class LateRegistrations {
 public:
  /// Keeps one that is not decided.
  void keep(std::shared_ptr<GradientGroup> group) {
    const MutexLock lock(mutex_);
    groups_[group->name()] = std::move(group);
  }

  /// Takes out the one that `again` repeats; null if there is none.
  /// Errors: UsageError if `again` has the name of one, but other gradients or other memory.
  std::shared_ptr<GradientGroup> take(const GradientGroup& again) {
    const MutexLock lock(mutex_);
    const auto late = groups_.find(again.name());
    if (late == groups_.end()) return nullptr;
    check(late->second->describe() == again.describe() && has_same_memory(*late->second, again),
          "the registration of gradient set '" + again.name() +
              "' has timed out and is not decided; repeat it with the same gradients");
    return std::move(groups_.extract(late).mapped());
  }

 private:
  static bool has_same_memory(const GradientGroup& one, const GradientGroup& other) {
    return std::ranges::equal(one.gradients(), other.gradients(), {}, &GradientSpec::data,
                              &GradientSpec::data);
  }

  Mutex mutex_;
  std::map<std::string, std::shared_ptr<GradientGroup>> groups_ KOLO_GUARDED_BY(mutex_);
};

}  // namespace kolo
