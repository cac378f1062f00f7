#pragma once

#include <chrono>
#include <string>

namespace kolo {

/// A store of strings by key, shared by the ranks of a job. Launchers and frameworks provide such
/// stores; programs with another store implement this interface.
///
/// Keys are printable ASCII, a few dozen characters long. Values are arbitrary bytes.
/// Threads: one at a time. Errors: failures of the store are KoloError(kIo).
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;

  /// Stores a value for all ranks. Before: the key has no value.
  virtual void set(const std::string& key, const std::string& value) = 0;

  /// Waits until the key has a value and returns it. `timeout` is at least 1 ms. Errors:
  /// KoloError(kTimeout) if the key has no value in time; the caller may repeat the call.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
};

}  // namespace kolo
