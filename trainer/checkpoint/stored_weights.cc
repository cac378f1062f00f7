#include "trainer/checkpoint/stored_weights.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include <fmt/format.h>

#include "comm/base/half.h"
#include "trainer/data/data_error.h"
#include "trainer/optimizer/weight_average.h"

namespace kolo::trainer {
namespace {

template <typename Half>
void widen(std::span<const std::byte> bytes, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    Half half;
    std::memcpy(&half, bytes.data() + i * sizeof half, sizeof half);
    values[i] = to_float(half);
  }
}

}  // namespace

StoredWeights::StoredWeights(const std::filesystem::path& path) : path_(path) {
  if (std::filesystem::is_directory(path)) {
    checkpoint_.emplace(path, 0, 1);
    tensors_ = checkpoint_->shared_tensors(WeightAverage::kMeans);
    if (tensors_.empty()) tensors_ = checkpoint_->shared_tensors(kWeights);
    std::ranges::move(checkpoint_->shared_tensors(kBuffers), std::back_inserter(tensors_));
  } else {
    file_.emplace(path);
    tensors_ = file_->tensors();
  }
}

const StoredTensor* StoredWeights::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &StoredTensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

void StoredWeights::copy(const StoredTensor& tensor, std::span<float> values) const {
  if (tensor.dtype == "F32") {
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  } else if (tensor.dtype == "BF16") {
    widen<BFloat16>(tensor.bytes, values);
  } else if (tensor.dtype == "F16") {
    widen<Float16>(tensor.bytes, values);
  } else {
    throw_data_error(path_,
                     fmt::format("'{}' is {}, not F32, F16 or BF16", tensor.name, tensor.dtype));
  }
}

}  // namespace kolo::trainer
