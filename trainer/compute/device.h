#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include "comm/base/dtype.h"
#include "trainer/compute/products.h"

namespace kolo::trainer {

/// oneDNN's view of the processor, and the dtype in which products are computed on it. Matrix
/// products are kept here; the layer that owns another primitive makes it once per shape.
///
/// Threads: one. Two devices in one process are independent.
class Device {
 public:
  /// Before: `precision` is one of `parse_precision`, and `can_compute` it.
  explicit Device(DType precision = DType::kFloat32)
      : engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        products_(engine_, stream_),
        precision_(precision) {}

  const dnnl::engine& engine() const { return engine_; }
  dnnl::stream& stream() { return stream_; }
  Products& products() { return products_; }
  /// Dtype of the operands of products; see Note [Mixed precision] in trainer/precision.
  DType precision() const { return precision_; }
  /// Dtype in which operands are stored: float16 is emulated in float32.
  DType operand_dtype() const {
    return precision_ == DType::kBFloat16 ? DType::kBFloat16 : DType::kFloat32;
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  Products products_;
  DType precision_;
};

}  // namespace kolo::trainer
