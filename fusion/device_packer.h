#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/base/buffer_view.h"
#include "comm/base/mutex.h"
#include "comm/device/device.h"
#include "comm/schedule/packer.h"
#include "fusion/chunk_table.h"
#include "fusion/pack_kernels.h"

namespace kolo {

struct DevicePackerOptions {
  DType bucket_dtype = DType::kFloat32;
  std::size_t bucket_count = 0;        ///< Number of elements of the bucket.
  std::vector<std::size_t> cuts = {};  ///< Boundaries of copied ranges; see `ChunkTable`.
  double unpack_scale = 1.0;           ///< Factor that unpacking applies.
  /// Contributions are in separate memory, at `Segment::input`.
  bool out_of_place = false;
  /// If not null: device memory that unpacking sets to 1 if an unpacked value is infinite or NaN.
  std::uint32_t* non_finite = nullptr;
};

/// Packs and unpacks the tensors of one staged device bucket for the executor. A range needs one
/// launch per dtype of its tensors, which casts and scales in the same pass. Chunk tables are in
/// device memory; they are uploaded before the first launch and after a `rebind`, so other launches
/// upload and allocate nothing.
///
/// Threads: the executor's.
class DevicePacker final : public StreamPacker, public Rebindable {
 public:
  /// `segments` point to device memory, or are null until `rebind`; `device` must outlive the
  /// packer. Call it at plan time. Errors: as ChunkTable; KoloError(kResources).
  DevicePacker(Device& device, std::span<const Segment> segments,
               const DevicePackerOptions& options);

  /// Sets the addresses of segment `index`. Before: no copy of this packer is in progress, and
  /// `input` is null unless the bucket is out of place.
  void rebind(std::size_t index, void* data, const void* input) override;

  /// Sets the factor for contributions that are packed from now on.
  void set_pack_scale(double scale) { pack_scale_ = scale; }

  void pack(Stream& stream, std::size_t offset, std::size_t count, void* bucket) override;
  void unpack(Stream& stream, std::size_t offset, std::size_t count, const void* bucket) override;

 private:
  /// A chunk table and its copy in device memory.
  class Table {
   public:
    Table(Device& device, std::span<const Segment> segments, const DevicePackerOptions& options);

    void rebind(std::size_t index, void* data);
    std::size_t runs() const { return first_chunk_.size(); }
    DType dtype(std::size_t run) const { return table_.runs()[run].tensor_dtype; }
    /// Returns the chunks of a run in a range, in device memory, for work that is enqueued on
    /// `stream` afterwards.
    std::span<const CopyChunk> chunks(std::size_t run, std::size_t offset, std::size_t count,
                                      Stream& stream);

   private:
    void upload_before(Stream& stream);

    ChunkTable table_;
    std::vector<std::size_t> first_chunk_;  // by run: index of its first chunk in the memory below
    DeviceMemory pinned_, uploaded_;        // the chunks of all runs, one run after the other
    std::unique_ptr<Event> upload_;
    bool is_uploaded_ = false;
  };

  void copy(Table& table, Stream& stream, std::size_t offset, std::size_t count, BatchedCopy what);

  DeviceKernels& kernels_;
  const DevicePackerOptions options_;
  double pack_scale_ = 1.0;
  Table results_;
  std::optional<Table> contributions_;  // set if contributions are in separate memory
};

/// Sets tensors in device memory to zero, on its own stream. Allocates once per tensor.
///
/// Threads: any.
class DeviceClear {
 public:
  /// `device` must outlive this object.
  explicit DeviceClear(Device& device) : device_(device) {}

  /// Enqueues zeros for tensor number `index` after `event` and `former`, which may be null, then
  /// records `event` again. Before: `view` is the same in all calls with this number. Errors:
  /// KoloError(kResources).
  void clear(std::size_t index, const BufferView& view, Event& event, const Event* former)
      KOLO_EXCLUDES(mutex_);

 private:
  Device& device_;
  Mutex mutex_;
  std::unique_ptr<Stream> stream_ KOLO_GUARDED_BY(mutex_);
  std::map<std::size_t, DevicePacker> packers_ KOLO_GUARDED_BY(mutex_);  // by tensor number
};

}  // namespace kolo
