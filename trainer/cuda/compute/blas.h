#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/base/dtype.h"
#include "comm/device/device.h"

namespace kolo::trainer::cuda {

/// Whether memory holds an operand as it is in the product, or its transpose; both are row-major.
enum class Layout : std::uint8_t { kPlain, kTransposed };

/// An operation on a product before it is stored. It saves a pass over memory.
enum class Epilogue : std::uint8_t {
  kNone,
  kBias,          ///< Adds bias[column].
  kBiasRelu,      ///< Adds bias[column], then applies ReLU.
  kBiasGelu,      ///< Adds bias[column], stores the sum in `aux`, then applies GELU.
  kGeluGradient,  ///< Multiplies by the derivative of GELU at `aux`.
  kBiasGradient,  ///< Also stores the row sums of `a`, in the dtype of d, in `bias_gradient`.
};

/// The shape of a product d = epilogue(alpha · a · b + beta · c), or of a batch of such products
/// with matrices adjacent in memory.
///
/// Shape: d and c are [rows, columns] of `result`; a is [rows, depth] and b [depth, columns], both
///        of `operand`. Sums are float32.
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
  // Elements from one row in memory to the next; 0: rows are adjacent.
  std::size_t a_stride = 0;
  std::size_t d_stride = 0;

  friend auto operator<=>(const MatmulShape&, const MatmulShape&) = default;
};

/// The arguments of a product, in device memory aligned to 16 bytes.
struct MatmulArguments {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  const void* c = nullptr;     ///< Read only if beta is not 0; if null, d is used in its place.
  const void* bias = nullptr;  ///< For kBias, kBiasRelu and kBiasGelu: [columns] of `result`.
  void* bias_gradient = nullptr;
  void* aux = nullptr;  ///< For GELU: [rows, columns] of `result`; kBiasGelu writes it,
                        ///< kGeluGradient reads it.
  float alpha = 1.0f;
  float beta = 0.0f;
};

/// The matrices of a product in the library's column-major order: dᵀ = bᵀ · aᵀ. The library's A is
/// b, and its m is `columns`. In memory, a row-major matrix is identical to its transpose in
/// column-major order.
struct ColumnMajor {
  struct Matrix {
    std::size_t rows;  ///< Rows in memory, before transposition.
    std::size_t columns;
    bool is_transposed;
    std::size_t stride = 0;  ///< Elements from one column to the next.
  };
  Matrix a;
  Matrix b;
  Matrix d;
};

ColumnMajor to_column_major(const MatmulShape& shape);

/// Computes products with cuBLASLt on one stream, with its own workspace.
///
/// The algorithm for a shape is chosen once, when its plan is made. Only algorithms that add
/// partial sums in a fixed order are considered.
///
/// Threads: one. `device` and `stream` outlive this object.
/// Errors:  KoloError with cuBLAS's text.
/// Source:  NVIDIA, "cuBLAS library", chapter "Using the cuBLASLt API".
class Blas {
 public:
  class Plan;

  Blas(kolo::Device& device, Stream& stream);
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  /// Returns the plan for a shape, or null if the library has no algorithm for it. Not every
  /// epilogue exists for every dtype and width.
  const Plan* find(const MatmulShape& shape);
  /// As `find`, for a shape that must have a plan. Errors: KoloError(kInternal) naming the shape.
  const Plan& get(const MatmulShape& shape);

  /// Enqueues a product, or a batch of products.
  void run(const Plan& plan, const MatmulArguments& arguments);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kolo::trainer::cuda
