#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kolo {

/// Class of a failure. Each class has its own exit status, which launchers pass on, so that a
/// script can tell what went wrong.
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
  kConfig,     ///< Options are unknown, malformed or contradict each other.
  kShutdown,   ///< The runtime was closed before the operation finished.
  kCancelled,  ///< The program took the operation back.
};
inline constexpr ErrorCode kLastErrorCode = ErrorCode::kCancelled;

/// The name of the class, for people: "peer lost", "mismatch", ...
std::string_view to_string(ErrorCode code);

/// The process exit status of an error class (64 usage, 65 data, 69 peer lost, ...).
int exit_status(ErrorCode code);

/// One failure as a value, which is copied to every ticket and crosses threads and ranks.
/// Fields that do not apply are -1 or empty.
struct Error {
  ErrorCode code = ErrorCode::kInternal;  ///< Class.
  int rank = -1;                          ///< Rank that found the failure.
  int peer = -1;                          ///< Rank that caused it.
  std::string group = {};                 ///< Group that these are ranks of; empty: the job.
  std::string verb = {};                  ///< mark, agree, plan, start, run, complete or wait.
  std::string bucket = {};                ///< Bucket or tensor.
  std::string what = {};                  ///< The sentence a person reads.
  bool logged = false;  ///< True if this process has already written it to its log.

  /// One line with the fields that apply: "rank 3: peer 1: agree of 'fc1.weight': ...";
  /// "group 'pp' [2, 5]: rank 0: ..." with a group.
  std::string to_string() const;
};

/// The exception that carries an `Error` to the caller.
class KoloError : public std::runtime_error {
 public:
  /// Makes `what()` the text of `error`.
  explicit KoloError(Error error);
  /// The failure with all its fields.
  const Error& error() const noexcept { return error_; }

 private:
  Error error_;
};

/// A call broke its contract. Thrown by the call itself, before any traffic.
class UsageError : public KoloError {
 public:
  /// An error of class kUsage with the text `what`. `group` is the group in which the call was
  /// made; empty if it was made in the job.
  explicit UsageError(std::string what, std::string group = {});
};

}  // namespace kolo
