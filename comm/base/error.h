#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kolo {

/// Class of a failure. Every class has its own process exit status, so that a launcher, which
/// passes exit statuses through, tells a script what went wrong.
enum class ErrorCode {
  kUsage,      ///< The caller broke the contract of a call.
  kData,       ///< A data set or checkpoint is missing, truncated or malformed.
  kPeerLost,   ///< Another rank died, froze or became unreachable.
  kInternal,   ///< An invariant of Kolo itself does not hold.
  kResources,  ///< Out of descriptors, memory or arena space.
  kIo,         ///< A system call on a file or socket failed.
  kTimeout,    ///< A deadline passed although every peer is alive.
  kStall,      ///< Some ranks wait too long for tensors that others have not submitted.
  kMismatch,   ///< Ranks disagree about a tensor's name, shape, dtype or operation.
  kAuth,       ///< A peer did not know the job's secret.
  kConfig,     ///< Options are unknown, malformed or contradict each other.
  kShutdown,   ///< The runtime was closed before the operation finished.
};

std::string_view to_string(ErrorCode code);

/// The process exit status of an error class (64 usage, 65 data, 69 peer lost, ...).
int exit_status(ErrorCode code);

/// One failure as a value: it is copied to every ticket and crosses threads and ranks.
/// Fields that do not apply are -1 or empty.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  int rank = -1;            ///< Rank that noticed.
  int peer = -1;            ///< Rank it was noticed about.
  std::string verb = {};    ///< mark, agree, start, run or complete.
  std::string bucket = {};  ///< Bucket or tensor.
  std::string what = {};    ///< The sentence a person reads.
  bool logged = false;      ///< This process has written it to its log; see `log::report`.

  /// "rank 3: peer 1: agree of 'fc1.weight': ..." with the fields that apply.
  std::string to_string() const;
};

/// The exception that carries an `Error` to the user's thread.
class KoloError : public std::runtime_error {
 public:
  explicit KoloError(Error error);
  const Error& error() const noexcept { return error_; }

 private:
  Error error_;
};

/// The caller's bug; thrown at the call, before any traffic.
class UsageError : public KoloError {
 public:
  explicit UsageError(std::string what);
};

}  // namespace kolo
