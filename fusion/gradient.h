#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/base/buffer_view.h"
#include "comm/base/dtype.h"

namespace kolo {

/// One gradient as the caller describes it.
struct GradientSpec {
  std::string name;                     ///< Unique within the set.
  std::vector<std::size_t> shape = {};  ///< Elements per dimension; empty means one element.
  DType dtype = DType::kFloat32;
  /// Where the gradient lives. Null: in memory of the runtime, see `GradientSet::view`.
  void* data = nullptr;
  MemoryKind memory = MemoryKind::kHost;  ///< kHost or kDevice.
  /// How it travels, as `CompressionSpec` reads it, e.g. "topk(0.01)"; empty: as the rules of the
  /// set say. Once registered: what that came to for this gradient, empty if it travels dense.
  std::string compression = {};
  /// Dtype of its bytes that travel; empty: the set's. A 16-bit `compression` sets it.
  std::optional<DType> wire_dtype = std::nullopt;

  /// Elements. Errors: UsageError if they are more than memory can hold.
  std::size_t count() const;
};

struct GradientOptions {
  ReduceOp op = ReduceOp::kAverage;
  /// Dtype of the floating-point bytes that travel; empty means the runtime's `wire_dtype` option,
  /// and if that is empty too, each gradient's own.
  std::optional<DType> wire_dtype = std::nullopt;
  /// Rules by name for gradients that name none themselves, as `CompressionRules` reads them; empty
  /// means the runtime's `compression` option.
  std::string compression = {};
};

/// What all ranks must describe alike, as text: a line for the set, then one per gradient. Its hash
/// is the set's fingerprint; its lines are quoted when ranks disagree.
std::string describe(std::span<const GradientSpec> gradients, const GradientOptions& options);

/// "float32 [3, 4]".
std::string describe_shape(DType dtype, std::span<const std::size_t> shape);

/// Throws UsageError on an empty set, an empty or repeated name, a shape that no memory can hold,
/// or a wire dtype that is no float.
void check_gradients(std::span<const GradientSpec> gradients, const GradientOptions& options);

}  // namespace kolo
