#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/base/dtype.h"
#include "comm/device/device.h"

namespace kolo::trainer::cuda {

/// Row-major layout of an operand in memory: as in the product, or transposed.
enum class Layout : std::uint8_t { kPlain, kTransposed };

/// An operation on a product before it is stored, which saves a pass over memory.
enum class Epilogue : std::uint8_t {
  kNone,
  kBias,          ///< Adds bias[column].
  kBiasRelu,      ///< Adds bias[column], then ReLU.
  kBiasGelu,      ///< Adds bias[column], stores the sum in `aux`, then GELU.
  kGeluGradient,  ///< Multiplies by the derivative of GELU at `aux`.
  kBiasGradient,  ///< Also stores the row sums of `a`, in the dtype of d, into `bias_gradient`.
};

/// d = epilogue(alpha · a · b + beta · c), or a batch of successive products.
///
/// Shape: d and c [rows, columns] of `result`, a [rows, depth] and b [depth, columns] of `operand`,
///        accumulated in float32.
struct MatmulShape {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t depth = 0;
  Layout a = Layout::kPlain;
  Layout b = Layout::kPlain;
  DType operand = DType::kFloat32;
  DType result = DType::kFloat32;
  std::size_t batch = 1;
  Epilogue epilogue = Epilogue::kNone;

  friend auto operator<=>(const MatmulShape&, const MatmulShape&) = default;
};

/// Device memory, aligned to 16 bytes.
struct MatmulArguments {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  const void* c = nullptr;     ///< If null, d is used. Read only if beta is not 0.
  const void* bias = nullptr;  ///< kBias…: [columns] of `result`.
  void* bias_gradient = nullptr;
  void* aux = nullptr;  ///< [rows, columns] of `result`, written forward and read backward.
  float alpha = 1.0f;
  float beta = 0.0f;
};

/// The matrices in the column-major order of the library: dᵀ = bᵀ · aᵀ. Its A is our b, its m our
/// columns; a row-major matrix is, byte for byte, its transpose in column-major order.
struct ColumnMajor {
  struct Matrix {
    std::size_t rows;  ///< Rows in memory, before any transposition.
    std::size_t columns;
    bool is_transposed;
  };
  Matrix a;
  Matrix b;
  Matrix d;
};

ColumnMajor to_column_major(const MatmulShape& shape);

/// Products on one stream through cuBLASLt, with their own workspace.
///
/// An algorithm is chosen once per shape, at plan time, and kept. Only algorithms that add partial
/// sums in a fixed order are considered.
///
/// Threads: one. `device` and `stream` outlive it.
/// Errors:  KoloError with cuBLAS's text.
/// Source:  NVIDIA, "cuBLAS library", chapter "Using the cuBLASLt API".
class Blas {
 public:
  class Plan;

  Blas(kolo::Device& device, Stream& stream);
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  /// The plan for a shape, or null if the library has no algorithm for it: not every epilogue
  /// exists for every dtype and width.
  const Plan* find(const MatmulShape& shape);
  /// As `find`, for shapes that must work. Errors: KoloError(kInternal) naming the shape.
  const Plan& get(const MatmulShape& shape);

  /// Enqueues one product (or batch).
  void run(const Plan& plan, const MatmulArguments& arguments);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kolo::trainer::cuda
