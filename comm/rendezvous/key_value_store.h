#pragma once

#include <chrono>
#include <string>

namespace kolo {

/// Strings under keys, shared by the ranks of a job: the store of a launcher or a framework.
/// Programs with their own store implement this interface.
///
/// Keys are printable ASCII, a few dozen characters long. Values are any bytes.
/// Threads: one at a time. Errors: failures of the store are KoloError(kIo).
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;

  /// Stores a value, visible to all ranks, under a key that has no value yet.
  virtual void set(const std::string& key, const std::string& value) = 0;

  /// Waits until a key has a value and returns it. `timeout` is at least 1 ms. Errors:
  /// KoloError(kTimeout) if there is no value in time; the call may be repeated.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
};

}  // namespace kolo
