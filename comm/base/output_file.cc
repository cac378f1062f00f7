#include "comm/base/output_file.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "comm/base/error.h"

namespace kolo {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path) {
  throw KoloError({.code = ErrorCode::kIo,
                   .what = "cannot write " + path.string() + ": " + std::strerror(errno)});
}

void write(const fs::path& path, std::string_view text, std::ios::openmode mode) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | mode);
  file << text;
  if (!file.flush()) fail(path);
}

/// The file to which `path` refers, following symbolic links.
fs::path target_of(const std::string& path) {
  std::error_code is_new;
  const fs::path target = fs::canonical(path, is_new);
  return is_new ? fs::path(path) : target;
}

/// Whether `target` is replaced by renaming: a regular file, or a path that does not exist.
bool is_replaced(const fs::path& target) {
  std::error_code ignored;
  return fs::is_regular_file(target, ignored) || !fs::exists(target, ignored);
}

fs::path partial(const fs::path& target) { return fs::path(target) += ".partial"; }

}  // namespace

void expect_writable(const std::string& path) {
  const fs::path target = target_of(path);
  const fs::path written = is_replaced(target) ? partial(target) : target;
  std::error_code ignored;
  const bool is_new = !fs::exists(written, ignored);
  errno = 0;
  if (!std::ofstream(written, std::ios::binary | std::ios::app)) fail(target);
  if (is_new) fs::remove(written, ignored);
}

void write_file(const std::string& path, std::string_view text) {
  const fs::path target = target_of(path);
  if (!is_replaced(target)) return write(target, text, std::ios::trunc);
  const fs::path written = partial(target);
  std::error_code error;
  try {
    write(written, text, std::ios::trunc);
    fs::rename(written, target, error);
    errno = error.value();
    if (error) fail(target);
  } catch (const KoloError&) {
    fs::remove(written, error);
    throw;
  }
}

void append_file(const std::string& path, std::string_view text) {
  std::error_code is_new;
  const std::uintmax_t before = fs::file_size(path, is_new);
  try {
    write(path, text, std::ios::app);
  } catch (const KoloError&) {
    std::error_code ignored;
    fs::resize_file(path, is_new ? 0 : before, ignored);
    throw;
  }
}

}  // namespace kolo
