#include "trainer/cuda/compute/dnn_graph.h"

#include <algorithm>
#include <utility>

#include "comm/base/check.h"

namespace kolo::trainer::cuda {
namespace {

/// Returns the values of an attribute, at most `most`.
template <typename T>
std::vector<T> values_of(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, std::vector<T> room) {
  std::int64_t count = 0;
  check_dnn(cudnnBackendGetAttribute(descriptor, name, type, narrow<std::int64_t>(room.size()),
                                     &count, room.data()),
            "cudnnBackendGetAttribute");
  room.resize(std::min(room.size(), static_cast<std::size_t>(count)));
  return room;
}

bool is_deterministic(const GraphDescriptor& config) {
  const GraphDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  values_of<cudnnBackendDescriptor_t>(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, {engine.get()});
  const auto notes = values_of(
      engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
      std::vector<cudnnBackendNumericalNote_t>(std::size_t{CUDNN_NUMERICAL_NOTE_TYPE_COUNT}));
  return !std::ranges::count(notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
}

DnnGraph::Sizes contiguous(const DnnGraph::Sizes& sizes) {
  return {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1};
}

}  // namespace

GraphDescriptor::GraphDescriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t descriptor = nullptr;
  check_dnn(cudnnBackendCreateDescriptor(type, &descriptor), "cudnnBackendCreateDescriptor");
  handle_ = decltype(handle_)(descriptor);
}

void GraphDescriptor::set_bytes(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                std::size_t count, const void* values) {
  check_dnn(cudnnBackendSetAttribute(get(), name, type, narrow<std::int64_t>(count), values),
            "cudnnBackendSetAttribute");
}

void GraphDescriptor::finish() { check_dnn(cudnnBackendFinalize(get()), "cudnnBackendFinalize"); }

bool GraphDescriptor::try_finish() { return cudnnBackendFinalize(get()) == CUDNN_STATUS_SUCCESS; }

std::vector<GraphDescriptor> deterministic_engines(const GraphDescriptor& graph,
                                                   const GraphDescriptor* device) {
  GraphDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
#if CUDNN_VERSION >= 90800
  if (device != nullptr) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *device);
#endif
  if (!heuristics.try_finish()) return {};
  std::int64_t count = 0;
  check_dnn(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
            "cudnnBackendGetAttribute");
  std::vector<GraphDescriptor> configs;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::int64_t i = 0; i < count; ++i) {
    configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    handles.push_back(configs.back().get());
  }
  handles = values_of(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                      CUDNN_TYPE_BACKEND_DESCRIPTOR, std::move(handles));
  configs.erase(configs.begin() + static_cast<std::ptrdiff_t>(handles.size()), configs.end());
  std::erase_if(configs, [](const GraphDescriptor& config) { return !is_deterministic(config); });
  return configs;
}

struct DnnGraph::Kind {
  cudnnBackendDescriptorType_t type;
  std::array<cudnnBackendAttributeName_t, 3> from;
  cudnnBackendAttributeName_t to;
  std::optional<cudnnBackendAttributeName_t> what;  ///< The operator.
};

const DnnGraph::Kind DnnGraph::kMultiply = {
    CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
    {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC},
    CUDNN_ATTR_OPERATION_MATMUL_CDESC,
    CUDNN_ATTR_OPERATION_MATMUL_DESC};
const DnnGraph::Kind DnnGraph::kApply = {
    CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
    {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
     CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
    CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
    CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR};
const DnnGraph::Kind DnnGraph::kReduce = {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
                                          {CUDNN_ATTR_OPERATION_REDUCTION_XDESC},
                                          CUDNN_ATTR_OPERATION_REDUCTION_YDESC,
                                          CUDNN_ATTR_OPERATION_REDUCTION_DESC};
const DnnGraph::Kind DnnGraph::kTranspose = {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
                                             {CUDNN_ATTR_OPERATION_RESHAPE_XDESC},
                                             CUDNN_ATTR_OPERATION_RESHAPE_YDESC,
                                             std::nullopt};

DnnGraph::Tensor DnnGraph::add(cudnnDataType_t type, const Sizes& sizes, const Sizes& strides,
                               Place place) {
  const auto id = narrow<std::int64_t>(tensors_.size());
  GraphDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  tensor.set_all(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, sizes);
  tensor.set_all(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::int64_t{16});
  tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, place == Place::kHost);
  tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, place == Place::kInner);
  tensor.finish();
  if (place != Place::kInner) outer_.push_back(id);
  tensors_.push_back({sizes, strides, std::move(tensor)});
  return tensors_.size() - 1;
}

DnnGraph::Tensor DnnGraph::add_inner(cudnnDataType_t type, const Sizes& sizes) {
  return add(type, sizes, contiguous(sizes), Place::kInner);
}

DnnGraph::Tensor DnnGraph::add(const Kind& kind, std::optional<GraphDescriptor> what,
                               std::initializer_list<Tensor> from, Tensor to) {
  GraphDescriptor operation(kind.type);
  if (what) {
    what->finish();
    operation.set(*kind.what, *what);
    kept_.push_back(*std::move(what));
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    operation.set(kind.from[i], tensors_[from.begin()[i]].descriptor);
  }
  operation.set(kind.to, tensors_[to].descriptor);
  operation.finish();
  operations_.push_back(std::move(operation));
  return to;
}

DnnGraph::Tensor DnnGraph::in_memory(DType dtype, const Sizes& sizes, const Sizes& strides) {
  return add(dnn_type(dtype), sizes, strides, Place::kMemory);
}

DnnGraph::Tensor DnnGraph::number() {
  return add(CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, Place::kHost);
}

DnnGraph::Tensor DnnGraph::inner(DType dtype, const Sizes& sizes) {
  return add_inner(dnn_type(dtype), sizes);
}

DnnGraph::Tensor DnnGraph::multiply(Tensor a, Tensor b, std::optional<Tensor> to) {
  GraphDescriptor product(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  product.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  Sizes sizes = tensors_[a].sizes;
  sizes[3] = tensors_[b].sizes[3];
  if (!to) to = add_inner(CUDNN_DATA_FLOAT, sizes);
  return add(kMultiply, std::move(product), {a, b}, *to);
}

DnnGraph::Tensor DnnGraph::apply(cudnnPointwiseMode_t mode, std::initializer_list<Tensor> from,
                                 Tensor to, std::optional<std::int64_t> axis) {
  GraphDescriptor pointwise(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  pointwise.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  pointwise.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  if (axis) pointwise.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, *axis);
  return add(kApply, std::move(pointwise), from, to);
}

DnnGraph::Tensor DnnGraph::apply(cudnnPointwiseMode_t mode, Tensor a, std::optional<Tensor> b,
                                 std::optional<Tensor> to) {
  if (!to) to = add_inner(CUDNN_DATA_FLOAT, tensors_[a].sizes);
  return b ? apply(mode, {a, *b}, *to) : apply(mode, {a}, *to);
}

DnnGraph::Tensor DnnGraph::causal(Tensor a, Tensor b) {
  const Sizes sizes = tensors_[a].sizes;
  const auto index = [&](std::int64_t axis) {
    return apply(CUDNN_POINTWISE_GEN_INDEX, {a}, add_inner(CUDNN_DATA_INT32, sizes), axis);
  };
  const Tensor row = index(2);
  const Tensor column = index(3);
  const Tensor is_taken =
      apply(CUDNN_POINTWISE_CMP_GE, {row, column}, add_inner(CUDNN_DATA_BOOLEAN, sizes));
  return apply(CUDNN_POINTWISE_BINARY_SELECT, {a, b, is_taken}, add_inner(CUDNN_DATA_FLOAT, sizes));
}

DnnGraph::Tensor DnnGraph::reduce(cudnnReduceTensorOp_t operation, Tensor a) {
  GraphDescriptor reduction(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  reduction.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  reduction.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, operation);
  Sizes sizes = tensors_[a].sizes;
  sizes[3] = 1;
  return add(kReduce, std::move(reduction), {a}, add_inner(CUDNN_DATA_FLOAT, sizes));
}

DnnGraph::Tensor DnnGraph::transpose(Tensor a, DType dtype) {
  Sizes sizes = tensors_[a].sizes, strides = tensors_[a].strides;
  std::swap(sizes[2], sizes[3]);
  std::swap(strides[2], strides[3]);
  return add(kTranspose, std::nullopt, {a}, add(dnn_type(dtype), sizes, strides, Place::kInner));
}

GraphDescriptor DnnGraph::describe(cudnnHandle_t handle) const {
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const GraphDescriptor& operation : operations_) operations.push_back(operation.get());
  GraphDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set_all(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations);
  if (handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  graph.finish();
  return graph;
}

bool DnnGraph::compile(Dnn& dnn) {
  dnn_ = &dnn;
  kept_.push_back(describe(dnn.handle()));
  for (GraphDescriptor& config : deterministic_engines(kept_.back())) {
    GraphDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, dnn.handle());
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (!plan.try_finish()) continue;
    const auto bytes = values_of<std::int64_t>(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                               CUDNN_TYPE_INT64, {0});
    dnn.reserve(narrow<std::size_t>(bytes.front()));
    plan_ = std::move(plan);
    kept_.push_back(std::move(config));
    return true;
  }
  return false;
}

void DnnGraph::run(std::initializer_list<const void*> addresses) {
  GraphDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set_all(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, outer_);
  pack.set_all(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, addresses);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, dnn_->workspace());
  pack.finish();
  check_dnn(cudnnBackendExecute(dnn_->handle(), plan_->get(), pack.get()), "cudnnBackendExecute");
}

}  // namespace kolo::trainer::cuda
