#include "trainer/checkpoint/safetensors.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>
#include <nlohmann/json.hpp>

#include "comm/base/check.h"
#include "comm/base/error.h"
#include "trainer/errors.h"

namespace kolo::trainer {
namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

constexpr std::size_t kLengthBytes = 8;
/// Largest size of a header in bytes; the reference implementation has the same limit.
constexpr std::uint64_t kMostHeaderBytes = 100'000'000;
/// Alignment of the data section in a file, in bytes.
constexpr std::size_t kDataAlignment = 64;
constexpr const char* kMetadataKey = "__metadata__";

struct Dtype {
  std::string_view name;
  std::size_t bytes;
};

constexpr Dtype kDtypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1},
    {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
    {"F32", 4},  {"F64", 8}, {"I64", 8}, {"U64", 8},     {"C64", 8},
};

/// Reads and checks the header of a file.
class HeaderReader {
 public:
  HeaderReader(const std::filesystem::path& file, std::span<const std::byte> bytes)
      : file_(file), bytes_(bytes) {
    if (bytes.size() < kLengthBytes) {
      fail(bytes.size(), "the file ends before the 8 bytes that give the length of its header");
    }
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), kLengthBytes);
    if (length > kMostHeaderBytes) {
      fail(0, fmt::format("a header of {} bytes, more than {}; not a safetensors file?", length,
                          kMostHeaderBytes));
    }
    if (length > bytes.size() - kLengthBytes) {
      fail(0, fmt::format("a header of {} bytes, but the file has only {}", length, bytes.size()));
    }
    header_ = {reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
               static_cast<std::size_t>(length)};
    data_ = bytes.subspan(kLengthBytes + header_.size());
  }

  void read(std::vector<StoredTensor>& tensors, Metadata& metadata) {
    const Json header = parse();
    for (const auto& [name, value] : header.items()) {
      if (name == kMetadataKey) {
        read_metadata(value, metadata);
      } else {
        tensors.push_back(read_tensor(name, value));
      }
    }
    require_no_gaps(tensors);
  }

 private:
  [[noreturn]] void fail(std::uint64_t offset, const std::string& what) const {
    throw_data_error(file_, offset, what);
  }

  /// Throws an error at the offset of a tensor's entry in the header.
  [[noreturn]] void fail(const std::string& name, const std::string& what) const {
    const std::size_t place = header_.find(Json(name).dump());
    fail(kLengthBytes + (place == std::string_view::npos ? 0 : place),
         fmt::format("'{}': {}", name, what));
  }

  Json parse() const {
    if (header_.empty() || header_.front() != '{') fail(kLengthBytes, "a header begins with '{'");
    std::vector<std::set<std::string>> names;  // names in each open object
    const auto refuse_repeated = [&](int depth, Json::parse_event_t event, Json& value) {
      const auto level = static_cast<std::size_t>(depth);
      if (event == Json::parse_event_t::object_start) {
        names.resize(level + 1);
        names.emplace_back();
      } else if (event == Json::parse_event_t::key) {
        const auto name = value.get<std::string>();
        if (!names[level].insert(name).second) fail(name, "the header has this name twice");
      }
      return true;
    };
    try {
      return Json::parse(header_, refuse_repeated);
    } catch (const Json::parse_error& error) {
      fail(kLengthBytes + (error.byte > 0 ? error.byte - 1 : 0),
           "the header is no JSON: " + std::string(error.what()));
    } catch (const Json::exception& error) {  // such as a number that is too large
      fail(kLengthBytes, "the header is no JSON: " + std::string(error.what()));
    }
  }

  void read_metadata(const Json& value, Metadata& metadata) const {
    if (!value.is_object()) fail(std::string(kMetadataKey), "is not an object");
    for (const auto& [name, text] : value.items()) {
      if (!text.is_string()) fail(name, "metadata that is not a text");
      metadata[name] = text.get<std::string>();
    }
  }

  std::size_t read_count(const std::string& name, const Json& value, const char* what) const {
    if (!value.is_number_unsigned()) {
      fail(name, fmt::format("{} that is not a number of at least 0", what));
    }
    return value.get<std::size_t>();
  }

  StoredTensor read_tensor(const std::string& name, const Json& value) const {
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") ||
        !value.contains("shape") || !value.contains("data_offsets")) {
      fail(name, "an entry has dtype, shape and data_offsets, and nothing else");
    }
    const Json& dtype = value["dtype"];
    const Json& shape = value["shape"];
    const Json& offsets = value["data_offsets"];
    if (!dtype.is_string()) fail(name, "a dtype that is not a text");
    if (!shape.is_array()) fail(name, "a shape that is not a list");
    if (!offsets.is_array() || offsets.size() != 2) fail(name, "data_offsets are two numbers");

    StoredTensor tensor{.name = name, .dtype = dtype.get<std::string>(), .shape = {}, .bytes = {}};
    const std::optional<std::size_t> element = safetensors_element_bytes(tensor.dtype);
    if (!element) fail(name, fmt::format("the dtype '{}' is not known", tensor.dtype));
    std::size_t expected = *element;
    bool is_empty = false;
    for (const Json& dimension : shape) {
      const std::size_t count = read_count(name, dimension, "a dimension");
      tensor.shape.push_back(count);
      is_empty = is_empty || count == 0;
    }
    for (const std::size_t count : tensor.shape) {
      if (is_empty) break;
      if (count > std::numeric_limits<std::size_t>::max() / expected) {
        fail(name, "a shape with more bytes than can be counted");
      }
      expected *= count;
    }
    if (is_empty) expected = 0;
    const std::size_t begin = read_count(name, offsets[0], "an offset");
    const std::size_t end = read_count(name, offsets[1], "an offset");
    if (begin > end || end > data_.size()) {
      fail(name, fmt::format("data_offsets [{}, {}] do not lie in the {} bytes of data", begin, end,
                             data_.size()));
    }
    if (end - begin != expected) {
      fail(name,
           fmt::format("{} bytes of data, but dtype and shape call for {}", end - begin, expected));
    }
    tensor.bytes = data_.subspan(begin, expected);
    return tensor;
  }

  void require_no_gaps(std::vector<StoredTensor>& tensors) const {
    // An empty tensor sorts before the tensor that begins at the same address.
    std::ranges::stable_sort(tensors, [](const StoredTensor& a, const StoredTensor& b) {
      return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
    });
    std::size_t end = 0;
    for (const StoredTensor& tensor : tensors) {
      const auto begin = static_cast<std::size_t>(tensor.bytes.data() - data_.data());
      if (begin != end) {
        fail(tensor.name, fmt::format("data begins at {}, but that of the tensor before ends at {}",
                                      begin, end));
      }
      end = begin + tensor.bytes.size();
    }
    if (end != data_.size()) {
      fail(bytes_.size() - data_.size() + end,
           fmt::format("{} bytes at the end belong to no tensor", data_.size() - end));
    }
  }

  const std::filesystem::path& file_;
  std::span<const std::byte> bytes_;
  std::string_view header_;
  std::span<const std::byte> data_;
};

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& file) : path_(file), file_(file) {
  HeaderReader(path_, bytes()).read(tensors_, metadata_);
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &StoredTensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

std::optional<std::size_t> safetensors_element_bytes(std::string_view dtype) {
  const auto* found = std::ranges::find(kDtypes, dtype, &Dtype::name);
  if (found == std::end(kDtypes)) return std::nullopt;
  return found->bytes;
}

void order_for_alignment(std::vector<StoredTensor>& tensors) {
  std::ranges::stable_sort(tensors, [](const StoredTensor& a, const StoredTensor& b) {
    return safetensors_element_bytes(a.dtype) > safetensors_element_bytes(b.dtype);
  });
}

std::string safetensors_header(const std::vector<StoredTensor>& tensors, const Metadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  std::size_t begin = 0;
  for (const StoredTensor& tensor : tensors) {
    const std::size_t element = safetensors_element_bytes(tensor.dtype).value_or(0);
    check(element > 0 && tensor.bytes.size() == element * element_count(tensor.shape),
          "the bytes of a stored tensor follow from dtype and shape: " + tensor.name);
    const std::size_t end = begin + tensor.bytes.size();
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string json = header.dump();
  json.resize((kLengthBytes + json.size() + kDataAlignment - 1) / kDataAlignment * kDataAlignment -
                  kLengthBytes,
              ' ');
  std::string text(kLengthBytes, '\0');
  const std::uint64_t length = json.size();
  std::memcpy(text.data(), &length, kLengthBytes);
  return text + json;
}

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
