#include "trainer/checkpoint/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <xxhash.h>

#include "comm/base/check.h"
#include "comm/base/error.h"

namespace kolo::trainer {

FileSum sum_of(std::span<const std::byte> bytes) {
  return {.bytes = bytes.size(), .xxh3 = XXH3_64bits(bytes.data(), bytes.size())};
}

void DurableFile::FreeHash::operator()(XXH3_state_s* state) const noexcept {
  XXH3_freeState(state);
}

DurableFile::DurableFile(std::filesystem::path file)
    : path_(std::move(file)),
      descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)),
      hash_(XXH3_createState()) {
  if (!descriptor_) throw_io_error("write", path_, std::strerror(errno));
  ensure(hash_ != nullptr, "no memory for a hash");
  XXH3_64bits_reset(hash_.get());
}

DurableFile::~DurableFile() = default;

void DurableFile::write(std::span<const std::byte> bytes) {
  XXH3_64bits_update(hash_.get(), bytes.data(), bytes.size());
  bytes_ += bytes.size();
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_io_error("write", path_, std::strerror(errno));
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

FileSum DurableFile::finish() {
  if (::fsync(descriptor_.get()) != 0) throw_io_error("write", path_, std::strerror(errno));
  // A network file system may report a full disk only here.
  if (::close(descriptor_.release()) != 0) throw_io_error("write", path_, std::strerror(errno));
  return {.bytes = bytes_, .xxh3 = XXH3_64bits_digest(hash_.get())};
}

void sync_folder(const std::filesystem::path& folder) {
  const FileDescriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor || ::fsync(descriptor.get()) != 0) {
    throw_io_error("synchronise", folder, std::strerror(errno));
  }
}

void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  std::filesystem::rename(from, to, error);
  if (error) throw_io_error("rename to " + to.string(), from, error.message());
  sync_folder(to.parent_path().empty() ? "." : to.parent_path());
}

FileSum write_safetensors(const std::filesystem::path& file, std::vector<StoredTensor> tensors,
                          const Metadata& metadata) {
  order_for_alignment(tensors);
  const std::string header = safetensors_header(tensors, metadata);
  DurableFile out(file);
  out.write(std::as_bytes(std::span(header)));
  for (const StoredTensor& tensor : tensors) out.write(tensor.bytes);
  return out.finish();
}

void throw_io_error(const std::string& verb, const std::filesystem::path& path,
                    const std::string& cause) {
  throw KoloError(
      {.code = ErrorCode::kIo, .what = "cannot " + verb + " " + path.string() + ": " + cause});
}

}  // namespace kolo::trainer
