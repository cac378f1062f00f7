#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "comm/base/clock.h"
#include "comm/base/error.h"
#include "comm/base/unique_handle.h"

namespace kolo {

/// Where a rank of another node brings the error that ends the job when the thread that has its
/// connections is stuck in a call: another thread of it comes here instead.
///
///   the stuck rank                       this rank
///   knock(address, error)  --- TCP --->  answer(), when its driver looks next or `fd` wakes it
///
/// A visitor begins with the key of the door, which only the ranks of the job are told; any other
/// is turned away. Nobody connects unless a rank is stuck.
///
/// Threads: one; `knock` any.
class ErrorDoor {
 public:
  /// Longer texts of an error are cut, so that it arrives at once.
  static constexpr std::size_t kMostBytes = 1000;

  /// Opens a door at a free port. `host` is the address by which the other nodes reach this one.
  /// Errors: KoloError(kIo).
  explicit ErrorDoor(std::string host);

  /// For `knock`; opaque bytes.
  std::string address() const;
  /// Readable when somebody knocks.
  int fd() const { return listener_.get(); }

  /// The error of the first visitor with the key; the others, and who comes without an error, are
  /// turned away. Never blocks.
  std::optional<Error> answer();

  /// Brings `error` to a door. Returns whether it was open before `deadline`; somebody may answer
  /// later, or never.
  static bool knock(const std::string& address, const Error& error, TimePoint deadline);

 private:
  std::string host_;
  std::string key_;
  FileDescriptor listener_;
};

}  // namespace kolo
