#include "trainer/data/packed_file.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "trainer/data/data_error.h"

namespace kolo::trainer {

PackedFile::PackedFile(const std::filesystem::path& file)
    : file_(file), handle_(::gzopen(file.c_str(), "rb"), &::gzclose) {
  if (handle_ == nullptr) throw_data_error(file_, std::strerror(errno));
}

std::size_t PackedFile::read(std::span<std::uint8_t> into) {
  const int got = ::gzread(handle_.get(), into.data(), static_cast<unsigned>(into.size_bytes()));
  // gzread returns the part of a truncated stream that it could read; gzerror reports the
  // truncation.
  int code = Z_OK;
  const char* message = ::gzerror(handle_.get(), &code);
  if (got < 0 || code == Z_BUF_ERROR || code == Z_DATA_ERROR) {
    const std::string reason = code == Z_ERRNO ? std::strerror(errno) : message;
    throw_data_error(file_, offset_ + static_cast<std::uint64_t>(std::max(got, 0)), reason);
  }
  offset_ += static_cast<std::uint64_t>(got);
  return static_cast<std::size_t>(got);
}

void PackedFile::read_all(std::span<std::uint8_t> into, const std::string& what) {
  if (read(into) < into.size()) fail("the file ends within " + what);
}

void PackedFile::fail(const std::string& what) const { throw_data_error(file_, offset_, what); }

std::string read_text(const std::filesystem::path& file) {
  constexpr std::size_t kBytesAtOnce = std::size_t{1} << 20;
  PackedFile packed(file);
  std::string text;
  while (true) {
    const std::size_t begin = text.size();
    text.resize(begin + kBytesAtOnce);
    const std::span<std::uint8_t> space(reinterpret_cast<std::uint8_t*>(text.data()) + begin,
                                        kBytesAtOnce);
    const std::size_t got = packed.read(space);
    text.resize(begin + got);
    if (got < kBytesAtOnce) return text;
  }
}

}  // namespace kolo::trainer
