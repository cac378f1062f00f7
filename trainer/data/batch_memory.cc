#include "trainer/data/batch_memory.h"

#include <algorithm>
#include <span>

namespace kolo::trainer {

TensorSlot BatchMemory::Column::slot(std::size_t sample) {
  return {dtype, std::span(bytes).subspan(sample * sample_bytes, sample_bytes)};
}

TensorView BatchMemory::Column::view(std::size_t samples) const {
  return {dtype, std::span(bytes).first(samples * sample_bytes)};
}

std::vector<BatchMemory::Column> BatchMemory::columns(const std::vector<Field>& fields,
                                                      std::size_t batch) {
  std::vector<Column> columns;
  for (const Field& field : fields) {
    columns.push_back({.dtype = field.dtype,
                       .sample_bytes = field.bytes(),
                       .bytes = std::vector<std::byte>(batch * field.bytes())});
  }
  return columns;
}

BatchMemory::BatchMemory(const SampleFormat& format, std::size_t batch)
    : batch_(batch),
      inputs_(columns(format.inputs, batch)),
      targets_(columns(format.targets, batch)) {}

Batch BatchMemory::fill(const Dataset& dataset, std::uint64_t epoch, std::size_t samples,
                        const std::function<std::size_t(std::size_t i)>& index_of) {
  std::vector<TensorSlot> inputs;
  std::vector<TensorSlot> targets;
  for (std::size_t i = 0; i < samples; ++i) {
    inputs.clear();
    targets.clear();
    for (Column& column : inputs_) inputs.push_back(column.slot(i));
    for (Column& column : targets_) targets.push_back(column.slot(i));
    dataset.copy(index_of(i), epoch, inputs, targets);
  }
  Batch batch{.samples = samples, .epoch = epoch};
  for (Column& column : inputs_) {
    std::fill(column.bytes.begin() + static_cast<std::ptrdiff_t>(samples * column.sample_bytes),
              column.bytes.end(), std::byte{0});
    batch.inputs.push_back(column.view(batch_));
  }
  for (const Column& column : targets_) batch.targets.push_back(column.view(samples));
  return batch;
}

}  // namespace kolo::trainer
