#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <kolo/kolo_c.h>

/// Jobs whose ranks are threads that use only Kolo's C interface.
namespace c_test {

/// Throws the thread's last error unless `status` is KOLO_OK.
inline void ok(kolo_status status) {
  if (status == KOLO_OK) return;
  throw std::runtime_error(kolo_last_error()->text);
}

/// Throws std::runtime_error if the condition is false.
inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// A key-value store in this process, for the callbacks of `kolo_store`.
class Store {
 public:
  /// One rank's access to the store. It must exist until `kolo_open` returns.
  struct View {
    Store* store = nullptr;
    std::string last;
  };

  static kolo_store callbacks(View& view) {
    kolo_store store = KOLO_STORE_INIT;
    store.context = &view;
    store.set = [](void* context, const char* key, const void* value, size_t bytes) {
      Store& all = *static_cast<View*>(context)->store;
      const std::lock_guard lock(all.mutex_);
      all.values_[key] = std::string(static_cast<const char*>(value), bytes);
      all.changed_.notify_all();
      return 0;
    };
    store.get = [](void* context, const char* key, int64_t timeout_ms, const void** value,
                   size_t* bytes) {
      View& mine = *static_cast<View*>(context);
      std::unique_lock lock(mine.store->mutex_);
      auto& values = mine.store->values_;
      if (!mine.store->changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                                         [&] { return values.contains(key); })) {
        return static_cast<int>(KOLO_TIMEOUT);
      }
      mine.last = values.at(key);
      *value = mine.last.data();
      *bytes = mine.last.size();
      return 0;
    };
    return store;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

/// Opens rank `rank` of a job whose ranks are threads.
inline kolo_runtime* open_rank(Store& shared, int rank, int ranks,
                               const std::vector<kolo_setting>& more) {
  Store::View view{.store = &shared, .last = {}};
  const kolo_store store = Store::callbacks(view);
  std::vector<kolo_setting> settings{{"node_id", "a"},
                                     {"arena_bytes", "4M"},
                                     {"group_arena_bytes", "16M"},
                                     {"mismatch_after", "50"},
                                     {"calibrate", "off"}};
  kolo_open_options options = KOLO_OPEN_OPTIONS_INIT;
  settings.insert(settings.end(), more.begin(), more.end());
  options.settings = settings.data();
  options.num_settings = settings.size();
  options.store = &store;
  options.rank = rank;
  options.world_size = ranks;
  kolo_runtime* runtime = nullptr;
  ok(kolo_open(&options, &runtime));
  return runtime;
}

/// Calls `body` on every rank, each in a thread, and releases the runtimes. `more` adds settings.
inline void run_job(int ranks, const std::function<void(kolo_runtime*)>& body,
                    const std::vector<kolo_setting>& more = {}) {
  Store store;
  std::vector<std::thread> threads;
  std::vector<std::string> failures(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      kolo_runtime* runtime = nullptr;
      try {
        runtime = open_rank(store, rank, ranks, more);
        body(runtime);
      } catch (const std::exception& e) {
        failures[static_cast<std::size_t>(rank)] = e.what();
        if (runtime != nullptr) kolo_abort(runtime, "failed the test");
      }
      kolo_release(runtime);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

inline kolo_buffer view(std::vector<float>& data) {
  return {data.data(), data.size(), KOLO_FLOAT32, KOLO_HOST};
}

inline kolo_tensor in_place(std::vector<float>& data) {
  return KOLO_TENSOR(data.data(), data.size(), KOLO_FLOAT32);
}

inline kolo_tensor to(const std::vector<float>& input, std::vector<float>& result) {
  return KOLO_TENSOR_TO(input.data(), input.size(), result.data(), result.size(), KOLO_FLOAT32);
}

inline kolo_tensor input_alone(const std::vector<float>& input) {
  return KOLO_TENSOR_TO(input.data(), input.size(), nullptr, 0, KOLO_FLOAT32);
}

}  // namespace c_test
