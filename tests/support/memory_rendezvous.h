#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/base/check.h"
#include "comm/base/error.h"
#include "comm/base/mutex.h"
#include "comm/rendezvous/store_rendezvous.h"

namespace kolo {

/// A key-value store for a job whose ranks are threads of this process. Threads: any.
class MemoryStore final : public KeyValueStore {
 public:
  void set(const std::string& key, const std::string& value) override {
    const MutexLock lock(mutex_);
    ensure(values_.emplace(key, value).second, "'" + key + "' is set twice");
    changed_.notify_all();
  }

  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
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

/// A rank's handle of a store that all ranks share.
class SharedStore final : public KeyValueStore {
 public:
  explicit SharedStore(std::shared_ptr<KeyValueStore> store) : store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value) override { store_->set(key, value); }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    return store_->get(key, timeout);
  }

 private:
  const std::shared_ptr<KeyValueStore> store_;  // the ranks end in any order
};

/// Makes rendezvous endpoints, indexed by rank, for a job whose ranks are threads of this process.
inline std::vector<std::unique_ptr<Rendezvous>> make_memory_rendezvous(
    int size, std::chrono::milliseconds timeout) {
  const auto store = std::make_shared<MemoryStore>();
  std::vector<std::unique_ptr<Rendezvous>> endpoints;
  for (int rank = 0; rank < size; ++rank) {
    endpoints.push_back(std::make_unique<StoreRendezvous>(
        std::make_unique<SharedStore>(store),
        StoreRendezvous::Config{.rank = rank, .size = size, .timeout = timeout}));
  }
  return endpoints;
}

}  // namespace kolo
