#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "comm/base/clock.h"
#include "comm/base/error.h"
#include "comm/base/unique_handle.h"

namespace kolo {

/// Receives the error that ends the job from a rank of another node. If the thread that owns that
/// rank's connections is stuck in a call, another thread of that rank connects to this listener.
///
///   the stuck rank                       this rank
///   knock(address, error)  --- TCP --->  answer(), when this rank polls or `fd` wakes it
///
/// A visitor must send the key of the listener, which only the ranks of the job know.
///
/// Threads: one; any for `knock`.
class OutOfBandAbort {
 public:
  /// Size limit of a message in bytes; longer texts are cut, so that it arrives in one piece.
  static constexpr std::size_t kMostBytes = 1000;

  /// Opens a listener at a free port. `host` is the address at which other nodes reach this node.
  /// Errors: KoloError(kIo).
  explicit OutOfBandAbort(std::string host);

  /// The address for `knock`, as opaque bytes that include the key.
  std::string address() const;
  /// A descriptor that is readable when a visitor has connected.
  int fd() const { return listener_.get(); }

  /// Returns the error of the first visitor with the key, if any. Rejects visitors without key or
  /// error. Never blocks.
  std::optional<Error> answer();

  /// Sends `error` to the listener at `address`. Returns whether the connection was made and the
  /// error sent before `deadline`. The listening rank may read the error later, or never.
  static bool knock(const std::string& address, const Error& error, TimePoint deadline);

 private:
  std::string host_;
  std::string key_;
  FileDescriptor listener_;
};

}  // namespace kolo
