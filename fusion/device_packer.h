#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/device/device.h"
#include "comm/schedule/stream_packer.h"
#include "fusion/chunk_table.h"
#include "fusion/rebindable.h"

namespace kolo {

struct DevicePackerOptions {
  DType bucket_dtype = DType::kFloat32;
  std::size_t bucket_count = 0;        ///< Elements.
  std::vector<std::size_t> cuts = {};  ///< Where ranges begin or end; see `ChunkTable`.
  double unpack_scale = 1.0;           ///< Folded into the pass that unpacks.
  /// If not null, device memory that is set to 1 when a value unpacked is infinite or NaN.
  std::uint32_t* non_finite = nullptr;
};

/// The executor's view of the tensors of one staged device bucket: a range is one launch per dtype
/// of its tensors, cast and scaled on the way. The chunk table lies in device memory; it is
/// uploaded once, before the first launch, and again after a `rebind`: a steady step sends no
/// metadata, allocates nothing and uploads nothing.
///
/// Threads: the executor's.
class DevicePacker final : public StreamPacker, public Rebindable {
 public:
  /// `segments` point to device memory, or to nothing until they are rebound; `device` outlives the
  /// packer. Plan time. Errors: as ChunkTable, and KoloError(kResources).
  DevicePacker(Device& device, std::span<const Segment> segments,
               const DevicePackerOptions& options);

  /// Points segment `index` to other memory. Before: no copy of this packer is under way, and
  /// `input` is null: device buckets are in place.
  void rebind(std::size_t index, void* data, const void* input) override;

  void pack(Stream& stream, std::size_t offset, std::size_t count, void* bucket) override;
  void unpack(Stream& stream, std::size_t offset, std::size_t count, const void* bucket) override;

 private:
  void upload_before(Stream& stream);
  void copy(Stream& stream, std::size_t offset, std::size_t count, BatchedCopy what);

  DeviceKernels& kernels_;
  const DevicePackerOptions options_;
  ChunkTable table_;
  std::vector<std::size_t> first_chunk_;  // of each run in the memory below
  DeviceMemory pinned_, uploaded_;        // the chunks of all runs, one behind the other
  std::unique_ptr<Event> upload_;
  bool is_uploaded_ = false;
};

}  // namespace kolo
