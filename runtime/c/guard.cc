#include "runtime/c/guard.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "runtime/options/version.h"

namespace kolo {
namespace {

// Statuses are error codes plus one, because zero says that there is no error. A test compares the
// names.
static_assert(KOLO_CANCELLED == static_cast<int>(kLastErrorCode) + 1);

constexpr kolo_status status_of(ErrorCode code) { return static_cast<kolo_status>(code) + 1; }

std::optional<ErrorCode> code_of(kolo_status status) {
  if (status <= KOLO_OK || status > KOLO_CANCELLED) return std::nullopt;
  return static_cast<ErrorCode>(status - 1);
}

/// An error with the struct that shows it.
struct LastError {
  Error error;
  std::string text;
  kolo_error shown{};
};

// Belongs to the thread whose call failed, as errno does.
thread_local std::unique_ptr<LastError> last_error;  // NOLINT

}  // namespace

kolo_status note_error(Error error) noexcept {
  const kolo_status status = status_of(error.code);
  try {
    auto noted = std::make_unique<LastError>();
    noted->text = error.to_string();
    noted->error = std::move(error);
    noted->shown = {.size = sizeof(kolo_error),
                    .status = status,
                    .rank = noted->error.rank,
                    .peer = noted->error.peer,
                    .group = noted->error.group.c_str(),
                    .verb = noted->error.verb.c_str(),
                    .tensor = noted->error.bucket.c_str(),
                    .what = noted->error.what.c_str(),
                    .text = noted->text.c_str()};
    last_error = std::move(noted);
  } catch (const std::bad_alloc&) {
    last_error = nullptr;  // The status is all there is memory for.
  }
  return status;
}

}  // namespace kolo

const kolo_error* kolo_last_error() {
  return kolo::last_error == nullptr ? nullptr : &kolo::last_error->shown;
}

const char* kolo_status_name(kolo_status status) {
  if (status == KOLO_OK) return "ok";
  const auto code = kolo::code_of(status);
  return code ? kolo::to_string(*code).data() : "unknown";  // Of a literal.
}

int kolo_exit_status(kolo_status status) {
  if (status == KOLO_OK) return 0;
  return kolo::exit_status(kolo::code_of(status).value_or(kolo::ErrorCode::kInternal));
}

const char* kolo_version() { return kolo::kVersion; }
