#pragma once

#include <cudnn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <ranges>
#include <vector>

#include "comm/base/dtype.h"
#include "comm/base/unique_handle.h"
#include "trainer/cuda/compute/dnn.h"

namespace kolo::trainer::cuda {

/// A descriptor of cuDNN's graph interface. Errors: KoloError with cuDNN's text.
class GraphDescriptor {
 public:
  explicit GraphDescriptor(cudnnBackendDescriptorType_t type);

  cudnnBackendDescriptor_t get() const { return handle_.get(); }

  template <std::ranges::contiguous_range Values>
  void set_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               const Values& values) {
    set_bytes(name, type, std::ranges::size(values), std::ranges::data(values));
  }
  template <typename T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set_bytes(name, type, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const GraphDescriptor& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.get());
  }
  /// Ends the description. `try_finish` returns false if cuDNN refuses it.
  void finish();
  bool try_finish();

 private:
  void set_bytes(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                 std::size_t count, const void* values);

  UniqueHandle<DnnTraits<cudnnBackendDescriptor_t, cudnnBackendDestroyDescriptor>> handle_;
};

/// Returns the configurations of deterministic engines that cuDNN offers for a graph of operations,
/// first the one that it expects to be the fastest. `device` describes a device for a graph without
/// a handle.
std::vector<GraphDescriptor> deterministic_engines(const GraphDescriptor& graph,
                                                   const GraphDescriptor* device = nullptr);

/// Operations on tensors that cuDNN compiles into a few kernels, whose inner results do not go
/// through memory. Add tensors and operations, then compile, then run.
///
/// Shape:   tensors have four dimensions. An inner result is contiguous, and float32 unless an
///          argument says otherwise.
/// Threads: one. Stream: that of the `Dnn` that compiles the graph.
/// Errors:  KoloError with cuDNN's text.
class DnnGraph {
 public:
  using Sizes = std::array<std::int64_t, 4>;
  /// A tensor's place among those of its graph.
  using Tensor = std::size_t;

  /// Adds a tensor in device memory, aligned to 16 bytes. Strides are in elements.
  Tensor in_memory(DType dtype, const Sizes& sizes, const Sizes& strides);
  /// Adds one float32 number in host memory.
  Tensor number();
  Tensor inner(DType dtype, const Sizes& sizes);

  // Each of these adds an operation and returns its result: `to`, or else a new inner result.

  /// Multiplies matrices, which are the last two dimensions.
  Tensor multiply(Tensor a, Tensor b, std::optional<Tensor> to = {});
  /// Works element by element. The elements of a smaller `b` are repeated.
  Tensor apply(cudnnPointwiseMode_t mode, Tensor a, std::optional<Tensor> b = {},
               std::optional<Tensor> to = {});
  /// Takes `a` where the column is at most the row, and `b` elsewhere.
  Tensor causal(Tensor a, Tensor b);
  /// Reduces along the last dimension.
  Tensor reduce(cudnnReduceTensorOp_t operation, Tensor a);
  /// Exchanges the last two dimensions.
  Tensor transpose(Tensor a, DType dtype = DType::kFloat32);

  /// Returns the graph of all operations. `handle` may be null if the graph is not compiled.
  GraphDescriptor describe(cudnnHandle_t handle) const;

  /// Compiles the graph, which may take seconds, and reserves its workspace. Returns false if cuDNN
  /// has no deterministic engine for it. `dnn` must outlive this object.
  bool compile(Dnn& dnn);

  /// Enqueues the graph. `addresses` has one address for each `in_memory` and `number`, in the
  /// order of these calls.
  void run(std::initializer_list<const void*> addresses);

 private:
  struct Node {
    Sizes sizes, strides;
    GraphDescriptor descriptor;
  };
  /// A kind of operation: the names of its attributes.
  struct Kind;
  static const Kind kMultiply, kApply, kReduce, kTranspose;

  enum class Place : std::uint8_t { kMemory, kHost, kInner };
  Tensor add(cudnnDataType_t type, const Sizes& sizes, const Sizes& strides, Place place);
  Tensor add_inner(cudnnDataType_t type, const Sizes& sizes);
  Tensor add(const Kind& kind, std::optional<GraphDescriptor> what,
             std::initializer_list<Tensor> from, Tensor to);
  Tensor apply(cudnnPointwiseMode_t mode, std::initializer_list<Tensor> from, Tensor to,
               std::optional<std::int64_t> axis = {});

  std::vector<Node> tensors_;
  std::vector<std::int64_t> outer_;    // identifiers of tensors that are no inner results
  std::vector<GraphDescriptor> kept_;  // what other descriptors refer to
  std::vector<GraphDescriptor> operations_;
  Dnn* dnn_ = nullptr;
  std::optional<GraphDescriptor> plan_;
};

}  // namespace kolo::trainer::cuda
