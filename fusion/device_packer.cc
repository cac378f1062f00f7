#include "fusion/device_packer.h"

#include <algorithm>
#include <span>

#include "comm/base/check.h"

namespace kolo {
namespace {

CopyChunk* chunks_in(const DeviceMemory& memory) {
  return reinterpret_cast<CopyChunk*>(memory.data());
}

BufferView bytes_of(const DeviceMemory& memory) {
  return {memory.data(), memory.bytes(), DType::kUInt8, memory.kind()};
}

// Returns the address of element 0 of a bucket whose element `offset` is at `place`.
void* element_zero(const void* place, std::size_t offset, DType dtype) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(place) - offset * size_of(dtype));
}

std::vector<Segment> inputs_of(std::span<const Segment> segments) {
  std::vector<Segment> inputs(segments.begin(), segments.end());
  for (Segment& each : inputs) each.data = const_cast<void*>(each.input);  // only read
  return inputs;
}

}  // namespace

DevicePacker::Table::Table(Device& device, std::span<const Segment> segments,
                           const DevicePackerOptions& options)
    : table_(segments, options.bucket_dtype, options.bucket_count, options.cuts),
      upload_(device.make_event()) {
  std::size_t count = 0;
  for (const ChunkTable::Run& run : table_.runs()) {
    first_chunk_.push_back(count);
    count += run.chunks.size();
  }
  if (count == 0) return;
  pinned_ = device.allocate(count * sizeof(CopyChunk), MemoryKind::kPinned);
  uploaded_ = device.allocate(count * sizeof(CopyChunk), MemoryKind::kDevice);
  for (std::size_t r = 0; r < first_chunk_.size(); ++r) {
    std::ranges::copy(table_.runs()[r].chunks, chunks_in(pinned_) + first_chunk_[r]);
  }
}

void DevicePacker::Table::rebind(std::size_t index, void* data) {
  ensure(upload_->done(), "rebound while a copy is under way");
  const auto [r, part] = table_.rebind(index, data);
  const auto chunks = std::span(table_.runs()[r].chunks);
  std::ranges::copy(chunks.subspan(part.begin, part.end - part.begin),
                    chunks_in(pinned_) + first_chunk_[r] + part.begin);
  is_uploaded_ = false;
}

void DevicePacker::Table::upload_before(Stream& stream) {
  if (!is_uploaded_) {
    stream.copy(bytes_of(uploaded_), bytes_of(pinned_));
    stream.record(*upload_);
    is_uploaded_ = true;
  } else if (!upload_->done()) {
    stream.wait(*upload_);  // another stream uploaded it
  }
}

std::span<const CopyChunk> DevicePacker::Table::chunks(std::size_t run, std::size_t offset,
                                                       std::size_t count, Stream& stream) {
  const auto [begin, end] = table_.part(run, offset, count);
  if (begin == end) return {};
  upload_before(stream);
  return {chunks_in(uploaded_) + first_chunk_[run] + begin, end - begin};
}

DevicePacker::DevicePacker(Device& device, std::span<const Segment> segments,
                           const DevicePackerOptions& options)
    : kernels_(device.kernels()), options_(options), results_(device, segments, options) {
  if (options.out_of_place) contributions_.emplace(device, inputs_of(segments), options);
}

void DevicePacker::rebind(std::size_t index, void* data, const void* input) {
  results_.rebind(index, data);
  if (contributions_) return contributions_->rebind(index, const_cast<void*>(input));
  ensure(input == nullptr, "this device bucket is not out of place");
}

void DevicePacker::pack(Stream& stream, std::size_t offset, std::size_t count, void* bucket) {
  copy(contributions_ ? *contributions_ : results_, stream, offset, count,
       {.direction = CopyDirection::kPack,
        .bucket = element_zero(bucket, offset, options_.bucket_dtype),
        .scale = pack_scale_});
}

void DevicePacker::unpack(Stream& stream, std::size_t offset, std::size_t count,
                          const void* bucket) {
  copy(results_, stream, offset, count,
       {.direction = CopyDirection::kUnpack,
        .bucket = element_zero(bucket, offset, options_.bucket_dtype),
        .scale = options_.unpack_scale,
        .non_finite = options_.non_finite});
}

void DevicePacker::copy(Table& table, Stream& stream, std::size_t offset, std::size_t count,
                        BatchedCopy what) {
  for (std::size_t r = 0; r < table.runs(); ++r) {
    what.chunks = table.chunks(r, offset, count, stream);
    if (what.chunks.empty()) continue;
    what.tensor_dtype = table.dtype(r);
    what.bucket_dtype = options_.bucket_dtype;
    kernels_.copy_batched(stream, what);
  }
}

void DeviceClear::clear(std::size_t index, const BufferView& view, Event& event,
                        const Event* former) {
  const MutexLock lock(mutex_);
  if (!stream_) stream_ = device_.make_stream();
  // A bucket without tensors is one gap, and gaps are packed as zeros.
  const DevicePackerOptions options{.bucket_dtype = view.dtype, .bucket_count = view.count};
  DevicePacker& packer =
      packers_.try_emplace(index, device_, std::span<const Segment>(), options).first->second;
  stream_->wait(event);
  if (former != nullptr) stream_->wait(*former);
  packer.pack(*stream_, 0, view.count, view.data);
  stream_->record(event);
}

}  // namespace kolo
