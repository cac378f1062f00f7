#pragma once

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kolo {

/// Class of a failure. Processes exit with the status of the class (`exit_status`), which tells
/// scripts what went wrong.
enum class ErrorCode {
  kUsage,      ///< The caller broke the contract of a call.
  kData,       ///< A data set or checkpoint is missing, truncated or malformed.
  kPeerLost,   ///< Another rank died, froze or became unreachable.
  kInternal,   ///< An invariant of Kolo itself does not hold.
  kResources,  ///< Out of descriptors, memory or arena space.
  kIo,         ///< A system call on a file or socket failed.
  kTimeout,    ///< A deadline passed although every peer is alive.
  kStall,      ///< Ranks waited too long for tensors that others had not submitted.
  kMismatch,   ///< Ranks disagree about a tensor's name, shape, dtype or operation.
  kAuth,       ///< A peer did not know the secret of the job.
  kConfig,     ///< Options are unknown, malformed or contradictory.
  kShutdown,   ///< The runtime was closed before the operation completed.
  kCancelled,  ///< The program cancelled the operation.
};
inline constexpr ErrorCode kLastErrorCode = ErrorCode::kCancelled;

/// Returns the name of the class: "peer lost", "mismatch", ...
std::string_view to_string(ErrorCode code);

/// Returns the process exit status for a class: 64 for kUsage, 65 for kData, 69 for kPeerLost, ...
int exit_status(ErrorCode code);

/// One failure as a value, which is copied between threads and ranks. Fields that do not apply are
/// -1 or empty.
struct Error {
  ErrorCode code = ErrorCode::kInternal;  ///< Class of the failure.
  int rank = -1;                          ///< Rank that detected the failure.
  int peer = -1;                          ///< Rank that caused the failure.
  std::string group = {};                 ///< Group of `rank` and `peer`, or empty for the job.
  std::string verb = {};                  ///< Phase: mark, agree, plan, start, run, complete, ...
  std::string bucket = {};                ///< Name of the bucket or tensor.
  std::string what = {};                  ///< Description for people.
  bool logged = false;                    ///< Whether this process has logged the error.

  /// Formats the fields that apply in one line: "rank 3: peer 1: agree of 'fc1.weight': ...", or
  /// with a group "group 'pp' [2, 5]: rank 0: ...".
  std::string to_string() const;
};

/// The exception type of all errors of Kolo.
class KoloError : public std::runtime_error {
 public:
  /// Makes an exception whose `what()` is the text of `error`.
  explicit KoloError(Error error);
  /// The error with all its fields.
  const Error& error() const noexcept { return error_; }

 private:
  Error error_;
};

/// An error of class kUsage: the caller broke the contract of a call. The call itself throws it,
/// before it sends anything.
class UsageError : public KoloError {
 public:
  /// Makes an error with the text `what`. `group` is the group of the call, empty for the job.
  explicit UsageError(std::string what, std::string group = {});
};

// Kernels may be compiled with another C++ library than the code that they call: they see and throw
// no object of it.

[[noreturn]] void throw_usage_error(const char* what, std::size_t size);
[[noreturn]] void throw_internal_error(const char* what, std::size_t size, const char* file,
                                       int line);

}  // namespace kolo
