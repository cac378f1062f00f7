#include "trainer/data/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <zlib.h>

#include "comm/base/unique_handle.h"
#include "trainer/errors.h"

namespace kolo::trainer {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const fs::path& path) { return path.filename().native().starts_with('.'); }

/// Whether a directory holds no texts of its own, but what a program made: a build tree, tokens, a
/// sweep or a run.
bool is_made(const fs::path& directory) {
  const auto has = [&](const char* name) { return fs::exists(directory / name); };
  return has("CMakeCache.txt") || has("tokens.json") || has("sweep.json") ||
         (has("config.toml") && has("metrics.jsonl"));
}

bool is_text(const fs::path& file) {
  constexpr std::array<std::string_view, 6> kExtensions = {".md", ".txt", ".h",
                                                           ".cc", ".py",  ".sh"};
  const std::string extension = file.extension().string();
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end();
}

std::vector<fs::path> text_files(const fs::path& directory) {
  std::vector<fs::path> files;
  for (auto entry = fs::recursive_directory_iterator(directory);
       entry != fs::recursive_directory_iterator(); ++entry) {
    const fs::path& path = entry->path();
    if (entry->is_directory()) {
      if (is_hidden(path) || is_made(path)) entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && !is_hidden(path) && is_text(path)) {
      files.push_back(path);
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::variant<MappedFile, std::vector<std::uint8_t>> open(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return MappedFile(path);
  std::vector<std::uint8_t> text;
  for (const fs::path& file : corpus_files(path)) {
    const MappedFile mapped(file);
    text.insert(text.end(), mapped.bytes().begin(), mapped.bytes().end());
  }
  return text;
}

}  // namespace

fs::path find_plain_or_packed(const fs::path& file) {
  if (is_there(file)) return file;
  const fs::path packed = file.string() + ".gz";
  if (is_there(packed)) return packed;
  throw_data_error(file, "no such file, with or without .gz");
}

MappedFile::MappedFile(const std::filesystem::path& file) {
  const FileDescriptor descriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!descriptor || ::fstat(descriptor.get(), &status) != 0) {
    throw_data_error(file, std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) throw_data_error(file, "not a regular file");
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor.get(), 0);
  if (address == MAP_FAILED) throw_data_error(file, std::strerror(errno));
  address_ = address;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : address_(std::exchange(other.address_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (address_ != nullptr) ::munmap(address_, size_);
}

PackedFile::PackedFile(const std::filesystem::path& file)
    : file_(file), handle_(::gzopen(file.c_str(), "rb"), &::gzclose) {
  if (handle_ == nullptr) throw_data_error(file_, std::strerror(errno));
}

std::size_t PackedFile::read(std::span<std::uint8_t> into) {
  const int got = ::gzread(handle_.get(), into.data(), static_cast<unsigned>(into.size_bytes()));
  // For a truncated stream, gzread returns the readable part, and gzerror reports the truncation.
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

std::vector<fs::path> corpus_files(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return {path};
  std::vector<fs::path> files;
  std::uintmax_t bytes = 0;
  try {
    files = text_files(path);
    for (const fs::path& file : files) bytes += fs::file_size(file);
  } catch (const fs::filesystem_error& error) {
    throw_data_error(error.path1(), error.code().message());
  }
  if (bytes == 0) {
    throw_data_error(path,
                     "this directory holds no text files (*.md, *.txt, *.h, *.cc, *.py, *.sh)");
  }
  return files;
}

Corpus::Corpus(const std::filesystem::path& path) : text_(open(path)) {}

std::span<const std::uint8_t> Corpus::bytes() const {
  if (const auto* mapped = std::get_if<MappedFile>(&text_)) return mapped->bytes();
  return std::get<std::vector<std::uint8_t>>(text_);
}

}  // namespace kolo::trainer
