#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/base/mutex.h"
#include "runtime/store/parameter_store.h"
#include "tests/runtime/api/runtime_calls.h"

/// Jobs whose ranks share a parameter store.
namespace kolo::test {

/// Calls `body` on every rank; of several errors the first one is reported.
inline void run_store(int ranks, const std::function<void(Runtime&)>& body) {
  Mutex mutex;
  std::string first;
  try {
    Options options = test_options();
    options.calibrate = "off";
    RuntimeJob(ranks, options).run([&](Runtime& runtime) {
      try {
        body(runtime);
      } catch (const std::exception& e) {
        const MutexLock lock(mutex);
        if (first.empty()) first = e.what();
        throw;
      }
    });
  } catch (const std::exception&) {
    throw std::runtime_error(first);
  }
}

inline StoreOptions store_of(const std::string& type) {
  StoreOptions options;
  options.type = type;
  options.split_bytes = 64;
  options.group.arena_bytes = std::size_t{4} << 20;
  return options;
}

/// Exact in each dtype of the tests, also as the sum of a few ranks.
template <typename T>
std::vector<T> values_of(int rank, int key, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>(3 * rank + 5 * key + static_cast<int>(i % 7));
  }
  return values;
}

template <typename T>
void add_pushed(const StoreUpdate& update) {
  auto* const value = static_cast<T*>(update.value.data);
  const auto* const pushed = static_cast<const T*>(update.pushed.data);
  for (std::size_t i = 0; i < update.value.count; ++i)
    value[i] = static_cast<T>(value[i] + pushed[i]);
}

template <typename T>
std::vector<T> sum_of(std::vector<T> sum, const std::vector<T>& more) {
  std::ranges::transform(sum, more, sum.begin(), [](T a, T b) { return static_cast<T>(a + b); });
  return sum;
}

template <typename T>
std::vector<T> pulled(ParameterStore& store, const std::string& key, std::size_t count) {
  std::vector<T> out(count);
  store.pull(key, out);
  return out;
}

}  // namespace kolo::test
