#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "trainer/data/batch.h"
#include "trainer/data/dataset.h"

namespace kolo::trainer {

/// Memory of one batch, which holds one batch after another.
///
/// Threads: one at a time.
class BatchMemory {
 public:
  BatchMemory(const SampleFormat& format, std::size_t batch);

  /// Copies `samples` samples of `dataset`, the i-th of them with index `index_of(i)`. The tensors
  /// of the result are views of this memory, valid until the next call.
  /// Before: samples is at most the size of the batch; the data set has the format.
  Batch fill(const Dataset& dataset, std::uint64_t epoch, std::size_t samples,
             const std::function<std::size_t(std::size_t i)>& index_of);

 private:
  /// Memory of one field.
  struct Column {
    DType dtype;
    std::size_t sample_bytes;
    std::vector<std::byte> bytes;

    TensorSlot slot(std::size_t sample);
    TensorView view(std::size_t samples) const;
  };

  static std::vector<Column> columns(const std::vector<Field>& fields, std::size_t batch);

  std::size_t batch_;
  std::vector<Column> inputs_;
  std::vector<Column> targets_;
};

}  // namespace kolo::trainer
