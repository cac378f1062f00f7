#include "trainer/checkpoint/saved_state.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainer/checkpoint/run_folder.h"
#include "trainer/checkpoint/snapshot.h"
#include "trainer/config_error.h"
#include "trainer/data/data_error.h"

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

/// The name of a piece that a job may ask for: shards have that of their tensor. Empty for pieces
/// of one rank.
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
  std::size_t first = 0;  // byte of the next shard
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

/// Rank r takes the parts of the former ranks r, r + ranks, ...
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

void SavedState::require_all_taken() const {
  for (const SafetensorsFile& file : files_) {
    for (const StoredTensor& tensor : file.tensors()) {
      const std::string_view name = asked_name(tensor.name);
      if (!name.empty() && !taken_.contains(name)) {
        throw_data_error(file.path(), fmt::format("this job has no '{}'", name));
      }
    }
  }
}

}  // namespace kolo::trainer
