#include "comm/base/error.h"

#include <utility>

#include <fmt/format.h>

namespace kolo {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return "usage";
    case ErrorCode::kData:
      return "data";
    case ErrorCode::kPeerLost:
      return "peer lost";
    case ErrorCode::kInternal:
      return "internal";
    case ErrorCode::kResources:
      return "resources";
    case ErrorCode::kIo:
      return "I/O";
    case ErrorCode::kTimeout:
      return "time-out";
    case ErrorCode::kStall:
      return "stall";
    case ErrorCode::kMismatch:
      return "mismatch";
    case ErrorCode::kAuth:
      return "authentication";
    case ErrorCode::kConfig:
      return "configuration";
    case ErrorCode::kShutdown:
      return "shutdown";
    case ErrorCode::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

int exit_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return 64;
    case ErrorCode::kData:
      return 65;
    case ErrorCode::kPeerLost:
      return 69;
    case ErrorCode::kInternal:
    case ErrorCode::kShutdown:
    case ErrorCode::kCancelled:
      return 70;
    case ErrorCode::kResources:
      return 71;
    case ErrorCode::kIo:
      return 74;
    case ErrorCode::kTimeout:
    case ErrorCode::kStall:
      return 75;
    case ErrorCode::kMismatch:
      return 76;
    case ErrorCode::kAuth:
      return 77;
    case ErrorCode::kConfig:
      return 78;
  }
  return 70;
}

std::string Error::to_string() const {
  std::string text;
  if (!group.empty()) text += fmt::format("group {}: ", group);
  if (rank >= 0) text += fmt::format("rank {}: ", rank);
  if (peer >= 0 && peer != rank) text += fmt::format("peer {}: ", peer);
  if (!verb.empty()) text += verb;
  if (!bucket.empty()) text += fmt::format("{}'{}'", verb.empty() ? "" : " of ", bucket);
  if (!verb.empty() || !bucket.empty()) text += ": ";
  return text + what;
}

KoloError::KoloError(Error error)
    : std::runtime_error(error.to_string()), error_(std::move(error)) {}

UsageError::UsageError(std::string what, std::string group)
    : KoloError(
          Error{.code = ErrorCode::kUsage, .group = std::move(group), .what = std::move(what)}) {}

void throw_usage_error(const char* what, std::size_t size) {
  throw UsageError(std::string(what, size));
}

void throw_internal_error(const char* what, std::size_t size, const char* file, int line) {
  throw KoloError({.code = ErrorCode::kInternal,
                   .what = fmt::format("{} ({}:{})", std::string_view(what, size), file, line)});
}

}  // namespace kolo
