#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "comm/schedule/executor.h"
#include "fusion/pack_kernels.h"
#include "fusion/rebindable.h"

namespace kolo {

/// The executor's view of the tensors of one staged bucket: packs with the cast to the bucket's
/// dtype, unpacks with the cast back. Scaling happens in the reduction. Threads: the executor's.
class SegmentPacker final : public Packer, public Rebindable {
 public:
  SegmentPacker(DType bucket_dtype, std::vector<Segment> segments)
      : dtype_(bucket_dtype), segments_(std::move(segments)) {}

  void rebind(std::size_t index, void* data) override { segments_.at(index).data = data; }

  void pack(std::size_t offset, std::size_t count, void* bucket) override {
    kolo::pack(segments_, {.data = bucket, .count = count, .dtype = dtype_}, offset, 1.0);
  }

  void unpack(std::size_t offset, std::size_t count, const void* bucket) override {
    // BufferView has no const form; unpack only reads it.
    kolo::unpack(segments_, {.data = const_cast<void*>(bucket), .count = count, .dtype = dtype_},
                 offset, 1.0);
  }

 private:
  DType dtype_;
  std::vector<Segment> segments_;
};

}  // namespace kolo
