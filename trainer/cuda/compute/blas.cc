#include "trainer/cuda/compute/blas.h"

#include <cublasLt.h>

#include <map>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "comm/base/error.h"
#include "comm/base/log.h"
#include "comm/base/unique_handle.h"

namespace kolo::trainer::cuda {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

void check_blas(cublasStatus_t status, std::string_view call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw KoloError(
      {.code = status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorCode::kResources : ErrorCode::kInternal,
       .what = fmt::format("{}: {}", call, cublasLtGetStatusString(status))});
}

/// How UniqueHandle closes a cuBLAS handle: with `kDestroy`.
template <typename Handle, auto kDestroy>
struct BlasTraits {
  using Value = Handle;
  static Value invalid() noexcept { return nullptr; }
  static void close(Value handle) noexcept {
    if (kDestroy(handle) != CUBLAS_STATUS_SUCCESS) log::error("closing a handle of cuBLAS failed");
  }
};
using LtHandle = UniqueHandle<BlasTraits<cublasLtHandle_t, cublasLtDestroy>>;
using OperationHandle = UniqueHandle<BlasTraits<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>>;
using LayoutHandle = UniqueHandle<BlasTraits<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>>;
using PreferenceHandle =
    UniqueHandle<BlasTraits<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>>;

cudaDataType_t blas_type(DType dtype) {
  if (dtype == DType::kBFloat16) return CUDA_R_16BF;
  if (dtype == DType::kFloat16) return CUDA_R_16F;
  return CUDA_R_32F;
}

cublasLtEpilogue_t library_epilogue(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::kBiasRelu:
      return CUBLASLT_EPILOGUE_RELU_BIAS;
    case Epilogue::kBiasGelu:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::kGeluGradient:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::kBiasGradient:
      return CUBLASLT_EPILOGUE_BGRADB;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

bool uses_bias(Epilogue e) {
  return e == Epilogue::kBias || e == Epilogue::kBiasRelu || e == Epilogue::kBiasGelu ||
         e == Epilogue::kBiasGradient;
}
bool uses_aux(Epilogue e) { return e == Epilogue::kBiasGelu || e == Epilogue::kGeluGradient; }

template <typename T>
void set(const OperationHandle& operation, cublasLtMatmulDescAttributes_t attribute, T value) {
  check_blas(cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof(value)),
             "cublasLtMatmulDescSetAttribute");
}

LayoutHandle make_layout(const ColumnMajor::Matrix& m, DType dtype, std::size_t batch) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_blas(cublasLtMatrixLayoutCreate(&layout, blas_type(dtype), m.rows, m.columns,
                                        static_cast<std::int64_t>(m.stride)),
             "cublasLtMatrixLayoutCreate");
  LayoutHandle handle(layout);
  const auto count = static_cast<std::int32_t>(batch);
  const auto stride = static_cast<std::int64_t>(m.stride * m.columns);
  check_blas(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                              sizeof(count)),
             "cublasLtMatrixLayoutSetAttribute");
  check_blas(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                              &stride, sizeof(stride)),
             "cublasLtMatrixLayoutSetAttribute");
  return handle;
}

// The alignment in bytes of all matrices of a batch. They begin at multiples of their size, in
// memory aligned to 16 bytes.
std::uint32_t alignment_of(const ColumnMajor::Matrix& m, DType dtype) {
  const std::size_t bytes = m.stride * m.columns * size_of(dtype);
  std::uint32_t alignment = 16;
  while (bytes % alignment != 0) alignment /= 2;
  return alignment;
}

std::string describe(const MatmulShape& s) {
  return fmt::format("[{0}, {2}] x [{2}, {1}] of {3} into {4}, batch {5}, epilogue {6}", s.rows,
                     s.columns, s.depth, to_string(s.operand), to_string(s.result), s.batch,
                     static_cast<int>(s.epilogue));
}

}  // namespace

ColumnMajor to_column_major(const MatmulShape& s) {
  const bool a_plain = s.a == Layout::kPlain;
  const bool b_plain = s.b == Layout::kPlain;
  ColumnMajor m{.a = {.rows = b_plain ? s.columns : s.depth,
                      .columns = b_plain ? s.depth : s.columns,
                      .is_transposed = !b_plain},
                .b = {.rows = a_plain ? s.depth : s.rows,
                      .columns = a_plain ? s.rows : s.depth,
                      .is_transposed = !a_plain},
                .d = {.rows = s.columns, .columns = s.rows, .is_transposed = false}};
  m.a.stride = m.a.rows;
  m.b.stride = s.a_stride != 0 ? s.a_stride : m.b.rows;
  m.d.stride = s.d_stride != 0 ? s.d_stride : m.d.rows;
  return m;
}

class Blas::Plan {
 public:
  explicit Plan(const MatmulShape& shape) : shape_(shape), matrices_(to_column_major(shape)) {
    cublasLtMatmulDesc_t operation = nullptr;
    check_blas(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "cublasLtMatmulDescCreate");
    operation_ = OperationHandle(operation);
    set(operation_, CUBLASLT_MATMUL_DESC_TRANSA,
        static_cast<std::int32_t>(matrices_.a.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
    set(operation_, CUBLASLT_MATMUL_DESC_TRANSB,
        static_cast<std::int32_t>(matrices_.b.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
    set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE,
        static_cast<std::uint32_t>(library_epilogue(shape.epilogue)));
    if (uses_aux(shape.epilogue)) {
      set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
          static_cast<std::int64_t>(shape.columns));
    }
    // These addresses serve only the choice of an algorithm, which depends on their alignment.
    void* const aligned = reinterpret_cast<void*>(std::uintptr_t{16});
    set_pointers(aligned, aligned);
    a_ = make_layout(matrices_.a, shape.operand, shape.batch);
    b_ = make_layout(matrices_.b, shape.operand, shape.batch);
    d_ = make_layout(matrices_.d, shape.result, shape.batch);
  }

  // Chooses the library's best algorithm. Returns whether there is one.
  bool choose_algorithm(cublasLtHandle_t lt) {
    if (uses_aux(shape_.epilogue) && shape_.columns % 8 != 0) return false;  // the library's rule
    cublasLtMatmulPreference_t preference = nullptr;
    check_blas(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const PreferenceHandle handle(preference);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check_blas(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
                 "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kWorkspaceBytes});
    // With this scheme, partial sums are float32 and added in a fixed order in a separate step.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(matrices_.a, shape_.operand));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(matrices_.b, shape_.operand));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(matrices_.d, shape_.result));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(matrices_.d, shape_.result));
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(lt, operation_.get(), a_.get(), b_.get(), d_.get(), d_.get(),
                                       preference, 1, &result, &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
      return false;
    }
    check_blas(status, "cublasLtMatmulAlgoGetHeuristic");
    if (found == 0 || result.state != CUBLAS_STATUS_SUCCESS) return false;
    algorithm_ = result.algo;
    return true;
  }

  // Enqueues the product. The library copies the pointers during the call, so plans may be reused.
  void run(cublasLtHandle_t lt, void* workspace, cudaStream_t stream,
           const MatmulArguments& x) const {
    set_pointers(
        shape_.epilogue == Epilogue::kBiasGradient ? x.bias_gradient : const_cast<void*>(x.bias),
        x.aux);
    check_blas(cublasLtMatmul(lt, operation_.get(), &x.alpha, x.b, a_.get(), x.a, b_.get(), &x.beta,
                              x.c != nullptr ? x.c : x.d, d_.get(), x.d, d_.get(), &algorithm_,
                              workspace, kWorkspaceBytes, stream),
               "cublasLtMatmul");
  }

 private:
  void set_pointers(void* bias, void* aux) const {
    if (uses_bias(shape_.epilogue)) set(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (uses_aux(shape_.epilogue)) set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
  }

  MatmulShape shape_;
  ColumnMajor matrices_;
  OperationHandle operation_;
  LayoutHandle a_, b_, d_;
  cublasLtMatmulAlgo_t algorithm_{};
};

struct Blas::State {
  DeviceMemory workspace;
  cudaStream_t stream;
  LtHandle lt;
  std::map<MatmulShape, std::optional<Plan>> plans;  // empty if the library has no algorithm
};

Blas::Blas(kolo::Device& device, Stream& stream) : state_(std::make_unique<State>()) {
  state_->workspace = device.allocate(kWorkspaceBytes, MemoryKind::kDevice);
  state_->stream = static_cast<cudaStream_t>(stream.native());
  cublasLtHandle_t lt = nullptr;
  check_blas(cublasLtCreate(&lt), "cublasLtCreate");
  state_->lt = LtHandle(lt);
}

Blas::~Blas() = default;

const Blas::Plan* Blas::find(const MatmulShape& shape) {
  auto [at, is_new] = state_->plans.try_emplace(shape);
  if (is_new) {
    at->second.emplace(shape);
    if (!at->second->choose_algorithm(state_->lt.get())) at->second.reset();
  }
  return at->second ? &*at->second : nullptr;
}

const Blas::Plan& Blas::get(const MatmulShape& shape) {
  const Plan* plan = find(shape);
  if (plan == nullptr) {
    throw KoloError({.code = ErrorCode::kInternal,
                     .what = "cuBLAS has no algorithm for a product " + describe(shape)});
  }
  return *plan;
}

void Blas::run(const Plan& plan, const MatmulArguments& arguments) {
  plan.run(state_->lt.get(), state_->workspace.data(), state_->stream, arguments);
}

}  // namespace kolo::trainer::cuda
