#include "comm/base/output_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "comm/base/error.h"

namespace kolo {
namespace {

[[noreturn]] void fail(const std::string& path) {
  throw KoloError(
      {.code = ErrorCode::kIo, .what = "cannot write " + path + ": " + std::strerror(errno)});
}

void write(const std::string& path, std::string_view text, std::ios::openmode mode) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | mode);
  file << text;
  if (!file.flush()) fail(path);
}

}  // namespace

void expect_writable(const std::string& path) {
  std::error_code ignored;
  const bool is_new = !std::filesystem::exists(path, ignored);
  errno = 0;
  if (!std::ofstream(path, std::ios::binary | std::ios::app)) fail(path);
  if (is_new) std::filesystem::remove(path, ignored);
}

void write_file(const std::string& path, std::string_view text) {
  write(path, text, std::ios::trunc);
}

void append_file(const std::string& path, std::string_view text) {
  write(path, text, std::ios::app);
}

}  // namespace kolo
