#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "comm/base/clock.h"
#include "comm/base/error.h"
#include "comm/base/unique_handle.h"

namespace kolo {

/// Receives the error that ends the job from a rank of another node whose connections are blocked:
/// if the thread that owns them is stuck in a call, another thread of that rank connects here.
///
///   the stuck rank                       this rank
///   knock(address, error)  --- TCP --->  answer(), at the rank's next look or when `fd` wakes it
///
/// A visitor first sends the key of the listener, which only the ranks of the job know; others are
/// rejected. Connections come only when a rank is stuck.
///
/// Threads: one; any for `knock`.
class OutOfBandAbort {
 public:
  /// Longer error texts are cut, so that they arrive in one piece.
  static constexpr std::size_t kMostBytes = 1000;

  /// Opens a listener at a free port. `host` is the address at which other nodes reach this one.
  /// Errors: KoloError(kIo).
  explicit OutOfBandAbort(std::string host);

  /// Address for `knock`, as opaque bytes.
  std::string address() const;
  /// Readable when a visitor connects.
  int fd() const { return listener_.get(); }

  /// The error of the first visitor with the key; rejects visitors without the key or without an
  /// error. Never blocks.
  std::optional<Error> answer();

  /// Delivers `error` to a listener. Returns whether the listener was open before `deadline`; the
  /// error may be answered later, or never.
  static bool knock(const std::string& address, const Error& error, TimePoint deadline);

 private:
  std::string host_;
  std::string key_;
  FileDescriptor listener_;
};

}  // namespace kolo
