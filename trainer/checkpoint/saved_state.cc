#include "trainer/checkpoint/saved_state.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/check.h"
#include "trainer/errors.h"

namespace kolo::trainer {
namespace {

void require_sum(const SafetensorsFile& file, const FileSum& expected) {
  const FileSum actual = sum_of(file.bytes());
  if (actual == expected) return;
  throw_data_error(file.path(),
                   fmt::format("its XXH3 sum is {:016x}, and the manifest says {:016x}",
                               actual.xxh3, expected.xxh3));
}

void require_length(const std::filesystem::path& file, const FileSum& expected) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(file, error);
  if (error) throw_data_error(file, error.message());
  if (bytes == expected.bytes) return;
  throw_data_error(file, fmt::format("{} bytes, and the manifest says {}", bytes, expected.bytes));
}

void require_same_kind(const std::filesystem::path& file, const StoredTensor& tensor,
                       std::string_view dtype, const Shape& shape) {
  if (tensor.dtype == dtype && tensor.shape == shape) return;
  throw_data_error(
      file, fmt::format("'{}' is {} [{}], and this job has {} [{}]", tensor.name, tensor.dtype,
                        fmt::join(tensor.shape, ", "), dtype, fmt::join(shape, ", ")));
}

[[noreturn]] void throw_missing(const std::filesystem::path& path, std::string_view name) {
  throw_data_error(path, fmt::format("it has no '{}', which this job needs", name));
}

/// The name under which a job restores a stored piece; a shard has the name of its whole tensor.
/// Empty for pieces of a single rank.
std::string_view asked_name(std::string_view stored) {
  for (const std::string_view of_rank : {PieceNames::kOwn, PieceNames::kSum, PieceNames::kRank}) {
    if (stored.starts_with(of_rank)) return {};
  }
  if (stored.starts_with(PieceNames::kShard)) stored.remove_prefix(PieceNames::kShard.size());
  return stored;
}

double as_double(const std::filesystem::path& file, const StoredTensor& tensor) {
  require_same_kind(file, tensor, "F64", {});
  double value = 0.0;
  std::memcpy(&value, tensor.bytes.data(), sizeof value);
  return value;
}

}  // namespace

Snapshot::Snapshot(int rank, int ranks)
    : rank_(static_cast<std::size_t>(rank)), shared_bytes_(static_cast<std::size_t>(ranks)) {}

void Snapshot::clear() {
  count_ = 0;
  std::ranges::fill(shared_bytes_, 0);
}

void Snapshot::visit(Reach reach, std::string_view name, const Piece& piece) {
  if (reach == Reach::kShared) {
    visit_shared(name, piece);
  } else if (reach == Reach::kSavedHere) {
    add(std::string(name), piece);
  } else {
    add(std::string(PieceNames::kOwn).append(name), piece);
  }
}

void Snapshot::visit_shard(std::string_view name, const Piece& piece, std::size_t) {
  if (piece.bytes.empty()) return;
  const Shape elements{piece.bytes.size() / sizeof(float)};
  add(std::string(PieceNames::kShard).append(name), {piece.dtype, elements, piece.bytes});
}

/// Each shared piece is saved by the rank with the fewest bytes so far. All ranks visit the same
/// pieces in the same order, so they agree on this rank.
void Snapshot::visit_shared(std::string_view name, const Piece& piece) {
  const auto least = std::ranges::min_element(shared_bytes_);
  *least += piece.bytes.size();
  if (static_cast<std::size_t>(least - shared_bytes_.begin()) == rank_) {
    add(std::string(name), piece);
  }
}

void Snapshot::shared(std::string_view name, std::vector<double>& list) {
  visit_shared(name, {"F64", Shape{list.size()}, std::as_writable_bytes(std::span(list))});
}

void Snapshot::part_of_sum(std::string_view name, double& value) {
  add(std::string(PieceNames::kSum).append(name),
      {"F64", Shape{}, std::as_writable_bytes(std::span(&value, 1))});
}

void Snapshot::bytes_of_ranks(std::string_view name, std::vector<std::vector<std::byte>>& bytes) {
  check(bytes.size() == 1, "a rank saves its own bytes");
  add(std::string(PieceNames::kRank).append(name), {"U8", Shape{bytes[0].size()}, bytes[0]});
}

void Snapshot::add(std::string name, const Piece& piece) {
  if (count_ == copies_.size()) copies_.emplace_back();
  Copy& copy = copies_[count_++];
  copy.memory.assign(piece.bytes.begin(), piece.bytes.end());
  copy.tensor = {.name = std::move(name),
                 .dtype = std::string(piece.dtype),
                 .shape = piece.shape,
                 .bytes = copy.memory};
}

std::vector<StoredTensor> Snapshot::tensors() const {
  std::vector<StoredTensor> tensors;
  for (std::size_t i = 0; i < count_; ++i) tensors.push_back(copies_[i].tensor);
  return tensors;
}

SavedState::SavedState(const std::filesystem::path& checkpoint, int rank, int ranks)
    : checkpoint_(checkpoint),
      rank_(static_cast<std::size_t>(rank)),
      ranks_(static_cast<std::size_t>(ranks)),
      manifest_(read_manifest(checkpoint)) {
  const auto named = step_of(checkpoint);
  if (named && *named != manifest_.step) {
    throw_data_error(checkpoint / Manifest::kFileName,
                     fmt::format("it is that of step {}", manifest_.step));
  }
  for (std::size_t i = 0; i < manifest_.files.size(); ++i) {
    const Manifest::File& file = manifest_.files[i];
    require_length(checkpoint / file.name, file.sum);
    files_.emplace_back(checkpoint / file.name);
    if (i % ranks_ == rank_) require_sum(files_.back(), file.sum);
  }
}

std::vector<StoredTensor> SavedState::shared_tensors(std::string_view prefix) const {
  std::vector<StoredTensor> found;
  for (const SafetensorsFile& file : files_) {
    for (const StoredTensor& tensor : file.tensors()) {
      if (!tensor.name.starts_with(prefix)) continue;
      found.push_back(tensor);
      found.back().name.erase(0, prefix.size());
    }
  }
  std::ranges::sort(found, {}, &StoredTensor::name);
  return found;
}

void SavedState::visit(Reach reach, std::string_view name, const Piece& piece) {
  if (reach == Reach::kOwn && has_other_ranks()) {
    throw_config_error(fmt::format(
        "{}: '{}' is the state of one rank and has no meaning on {} ranks: resume on {}",
        checkpoint_.string(), name, ranks_, files_.size()));
  }
  if (reach == Reach::kShared) return visit_shard(name, piece, 0);
  const StoredTensor& tensor = find_in(files_[rank_], std::string(PieceNames::kOwn).append(name));
  require_same_kind(checkpoint_, tensor, piece.dtype, piece.shape);
  std::ranges::copy(tensor.bytes, piece.bytes.begin());
}

void SavedState::visit_shard(std::string_view name, const Piece& piece, std::size_t begin) {
  const StoredTensor* const whole = look_for_shared(name);
  if (whole == nullptr) return copy_from_shards(name, piece, begin);
  require_same_kind(checkpoint_, *whole, piece.dtype, piece.shape);
  std::ranges::copy(whole->bytes.subspan(begin, piece.bytes.size()), piece.bytes.begin());
}

void SavedState::copy_from_shards(std::string_view name, const Piece& piece, std::size_t begin) {
  const std::string full = std::string(PieceNames::kShard).append(name);
  const std::size_t end = begin + piece.bytes.size();
  std::size_t first = 0;  // offset of the next shard, in bytes
  for (const SafetensorsFile& file : files_) {
    const StoredTensor* const shard = file.find(full);
    if (shard == nullptr) continue;
    const std::size_t last = first + shard->bytes.size();
    require_same_kind(file.path(), *shard, piece.dtype, {shard->bytes.size() / sizeof(float)});
    if (first < end && last > begin) {
      const std::size_t from = std::max(first, begin);
      const auto overlap = shard->bytes.subspan(from - first, std::min(last, end) - from);
      std::ranges::copy(overlap, piece.bytes.begin() + static_cast<std::ptrdiff_t>(from - begin));
    }
    first = last;
  }
  if (first == 0) throw_missing(checkpoint_, name);
  const std::size_t expected = element_count(piece.shape) * sizeof(float);
  if (first != expected) {
    throw_data_error(checkpoint_, fmt::format("the shards of '{}' have {} bytes, and this job has "
                                              "{}",
                                              name, first, expected));
  }
}

void SavedState::shared(std::string_view name, std::vector<double>& list) {
  const StoredTensor& tensor = find_shared(name);
  list.resize(tensor.bytes.size() / sizeof(double));
  require_same_kind(checkpoint_, tensor, "F64", {list.size()});
  std::ranges::copy(tensor.bytes, std::as_writable_bytes(std::span(list)).begin());
}

/// Rank r adds up the parts of the former ranks r, r + ranks, r + 2 · ranks, …
void SavedState::part_of_sum(std::string_view name, double& value) {
  value = 0.0;
  for (std::size_t i = rank_; i < files_.size(); i += ranks_) {
    const std::string full = std::string(PieceNames::kSum).append(name);
    value += as_double(files_[i].path(), find_in(files_[i], full));
  }
}

void SavedState::bytes_of_ranks(std::string_view name, std::vector<std::vector<std::byte>>& bytes) {
  bytes.clear();
  for (std::size_t i = 0; i < files_.size(); ++i) {
    if (!has_other_ranks() && i != rank_) continue;
    const std::string full = std::string(PieceNames::kRank).append(name);
    const StoredTensor& tensor = find_in(files_[i], full);
    bytes.emplace_back(tensor.bytes.begin(), tensor.bytes.end());
  }
}

const StoredTensor* SavedState::look_for_shared(std::string_view name) {
  taken_.emplace(name);
  for (const SafetensorsFile& file : files_) {
    if (const StoredTensor* tensor = file.find(name)) return tensor;
  }
  return nullptr;
}

const StoredTensor& SavedState::find_shared(std::string_view name) {
  const StoredTensor* const tensor = look_for_shared(name);
  if (tensor == nullptr) throw_missing(checkpoint_, name);
  return *tensor;
}

const StoredTensor& SavedState::find_in(const SafetensorsFile& file,
                                        const std::string& name) const {
  if (const StoredTensor* tensor = file.find(name)) return *tensor;
  throw_missing(file.path(), name);
}

std::vector<std::uint8_t> SavedState::left() const {
  std::vector<std::uint8_t> left;
  for (const SafetensorsFile& file : files_) {
    for (const StoredTensor& tensor : file.tensors()) {
      const std::string_view name = asked_name(tensor.name);
      left.push_back(!name.empty() && !taken_.contains(name));
    }
  }
  return left;
}

void SavedState::require_none(std::span<const std::uint8_t> left) const {
  std::size_t next = 0;
  for (const SafetensorsFile& file : files_) {
    for (const StoredTensor& tensor : file.tensors()) {
      if (left[next++] == 0) continue;
      throw_data_error(file.path(), fmt::format("this job has no '{}'", asked_name(tensor.name)));
    }
  }
}

}  // namespace kolo::trainer
