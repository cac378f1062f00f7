#include "runtime/wait/caught.h"

#include <exception>
#include <new>
#include <string>
#include <utility>

namespace kolo {
namespace {

/// Short enough that a std::string with this text needs no heap memory.
constexpr const char* kNoMemory = "out of memory";

Error completed(Error error, int rank, const Activity& activity) {
  // Internal errors are this rank's own. Other errors may occur on all ranks, and then must have
  // equal texts, without a rank.
  if (error.rank < 0 && error.code == ErrorCode::kInternal) error.rank = rank;
  if (error.verb.empty()) error.verb = to_string(activity.verb());
  if (error.bucket.empty()) error.bucket = activity.bucket();
  return error;
}

Error named(ErrorCode code, int rank, const Activity& activity, std::string what) {
  return {.code = code,
          .rank = rank,
          .verb = std::string(to_string(activity.verb())),
          .bucket = std::string(activity.bucket()),
          .what = std::move(what)};
}

}  // namespace

Error caught_error(int rank, const Activity& activity) noexcept {
  try {
    try {
      throw;
    } catch (const KoloError& e) {
      return completed(e.error(), rank, activity);
    } catch (const std::bad_alloc& e) {
      return named(ErrorCode::kResources, rank, activity,
                   std::string(kNoMemory) + " (" + e.what() + ")");
    } catch (const std::exception& e) {
      return named(ErrorCode::kInternal, rank, activity, e.what());
    } catch (...) {
      return named(ErrorCode::kInternal, rank, activity, "an exception of an unknown type");
    }
  } catch (...) {
    return {.code = ErrorCode::kResources, .rank = rank, .what = kNoMemory};
  }
}

Error copied(const Error& error) noexcept {
  try {
    return error;
  } catch (...) {
    return {.code = error.code, .rank = error.rank, .peer = error.peer, .what = kNoMemory};
  }
}

}  // namespace kolo
