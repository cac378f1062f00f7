#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "comm/base/check.h"
#include "comm/base/error.h"
#include "comm/base/mutex.h"
#include "comm/rendezvous/key_value_store.h"

namespace kolo::test {

/// Values that the ranks of a job, threads of this process, share. Outlives their stores.
class SharedValues {
 public:
  void set(const std::string& key, const std::string& value) {
    const MutexLock lock(mutex_);
    ensure(values_.emplace(key, value).second, "'" + key + "' is set twice");
    changed_.notify_all();
  }

  std::string get(const std::string& key, std::chrono::milliseconds timeout) {
    check(timeout.count() > 0, "no time to wait");
    MutexLock lock(mutex_);
    const bool is_there = changed_.wait_for(
        lock, timeout, [&]() KOLO_REQUIRES(mutex_) { return values_.contains(key); });
    if (!is_there) throw KoloError({.code = ErrorCode::kTimeout, .what = "no '" + key + "'"});
    return values_.at(key);
  }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  std::map<std::string, std::string> values_ KOLO_GUARDED_BY(mutex_);
};

/// One rank's view of them.
class MemoryStore final : public KeyValueStore {
 public:
  explicit MemoryStore(SharedValues& values) : values_(values) {}

  void set(const std::string& key, const std::string& value) override { values_.set(key, value); }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    return values_.get(key, timeout);
  }

 private:
  SharedValues& values_;
};

}  // namespace kolo::test
