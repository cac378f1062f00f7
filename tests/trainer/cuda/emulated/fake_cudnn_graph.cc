// Stands in for cuDNN's graph interface: the operations that compute/dnn_graph.cc describes, one
// after the other in float32, after cuDNN's documentation. It offers two engines, of which the
// first is not deterministic and refuses to run.

#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "tests/trainer/cuda/references.h"

namespace {

using kolo::DType;
using kolo::trainer::cuda::load_values;
using kolo::trainer::cuda::store_values;
using Sizes = std::array<std::int64_t, 4>;

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  std::map<cudnnBackendAttributeName_t, std::vector<std::byte>> values = {};
  std::map<cudnnBackendAttributeName_t, std::vector<const Descriptor*>> descriptors = {};
  bool is_finished = false;
  int engine = 0;  // for engines and their configurations

  template <typename T>
  std::vector<T> all(cudnnBackendAttributeName_t name) const {
    const auto found = values.find(name);
    if (found == values.end()) return {};
    std::vector<T> result(found->second.size() / sizeof(T));
    std::memcpy(result.data(), found->second.data(), result.size() * sizeof(T));
    return result;
  }
  template <typename T>
  T one(cudnnBackendAttributeName_t name) const {
    const auto found = all<T>(name);
    return found.empty() ? T{} : found.front();
  }
  const Descriptor* at(cudnnBackendAttributeName_t name) const {
    const auto found = descriptors.find(name);
    return found == descriptors.end() ? nullptr : found->second.front();
  }
};

Descriptor* of(cudnnBackendDescriptor_t descriptor) { return static_cast<Descriptor*>(descriptor); }

std::size_t bytes_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
      return sizeof(bool);
    case CUDNN_TYPE_INT64:
      return sizeof(std::int64_t);
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
      return sizeof(void*);
    default:
      return sizeof(int);
  }
}

struct Tensor {
  Sizes sizes = {}, strides = {};
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::int64_t id = 0;
  bool is_inner = false;

  explicit Tensor(const Descriptor& from)
      : type(from.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)),
        id(from.one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID)),
        is_inner(from.one<std::uint8_t>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0) {
    std::ranges::copy(from.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS), sizes.begin());
    std::ranges::copy(from.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES), strides.begin());
  }
  std::size_t count() const {
    return static_cast<std::size_t>(sizes[0] * sizes[1] * sizes[2] * sizes[3]);
  }
  DType dtype() const {
    if (type == CUDNN_DATA_BFLOAT16) return DType::kBFloat16;
    return type == CUDNN_DATA_HALF ? DType::kFloat16 : DType::kFloat32;
  }
  /// Calls visit(index, place in `values`) for all elements.
  template <typename Visit>
  void each(const Visit& visit) const {
    std::size_t place = 0;
    for (std::int64_t a = 0; a < sizes[0]; ++a) {
      for (std::int64_t b = 0; b < sizes[1]; ++b) {
        for (std::int64_t c = 0; c < sizes[2]; ++c) {
          for (std::int64_t d = 0; d < sizes[3]; ++d) visit(Sizes{a, b, c, d}, place++);
        }
      }
    }
  }
  /// The place of an element in `values`; indices beyond a size of 1 repeat the element.
  std::size_t place(const Sizes& index) const {
    std::int64_t place = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      place = place * sizes[i] + (sizes[i] == 1 ? 0 : index[i]);
    }
    return static_cast<std::size_t>(place);
  }
  std::size_t bytes_before(const Sizes& index) const {
    std::int64_t elements = 0;
    for (std::size_t i = 0; i < 4; ++i) elements += index[i] * strides[i];
    return static_cast<std::size_t>(elements) * kolo::size_of(dtype());
  }
};

bool repeats(const Tensor& small, const Tensor& large) {
  for (std::size_t i = 0; i < 4; ++i) {
    if (small.sizes[i] != 1 && small.sizes[i] != large.sizes[i]) return false;
  }
  return true;
}

float pointwise(const Descriptor& what, const Sizes& index, float x, float b, float t) {
  switch (what.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE)) {
    case CUDNN_POINTWISE_MUL:
      return x * b;
    case CUDNN_POINTWISE_ADD:
      return x + b;
    case CUDNN_POINTWISE_SUB:
      return x - b;
    case CUDNN_POINTWISE_DIV:
      return x / b;
    case CUDNN_POINTWISE_EXP:
      return std::exp(x);
    case CUDNN_POINTWISE_LOG:
      return std::log(x);
    case CUDNN_POINTWISE_CMP_GE:
      return x >= b ? 1.0f : 0.0f;
    case CUDNN_POINTWISE_BINARY_SELECT:
      return t != 0.0f ? x : b;
    case CUDNN_POINTWISE_GEN_INDEX:
      return static_cast<float>(
          index[static_cast<std::size_t>(what.one<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS))]);
    default:
      return NAN;
  }
}

/// Runs the operations of a graph.
class Run {
 public:
  explicit Run(const Descriptor& pack) {
    const auto ids = pack.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const auto addresses = pack.all<std::byte*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (std::size_t i = 0; i < ids.size(); ++i) addresses_[ids[i]] = addresses.at(i);
  }

  bool run(const Descriptor& operation) {
    switch (operation.type) {
      case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return multiply(operation);
      case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return apply(operation);
      case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return reduce(operation);
      case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return transpose(operation);
      default:
        return false;
    }
  }

 private:
  bool multiply(const Descriptor& operation) {
    const Tensor a(*operation.at(CUDNN_ATTR_OPERATION_MATMUL_ADESC)),
        b(*operation.at(CUDNN_ATTR_OPERATION_MATMUL_BDESC)),
        c(*operation.at(CUDNN_ATTR_OPERATION_MATMUL_CDESC));
    const Sizes& to = c.sizes;
    if (a.sizes != Sizes{to[0], to[1], to[2], b.sizes[2]} ||
        b.sizes != Sizes{to[0], to[1], a.sizes[3], to[3]}) {
      return false;
    }
    const auto left = values(a), right = values(b);
    return give(c, [&](const Sizes& at) {
      float sum = 0.0f;
      for (std::int64_t k = 0; k < a.sizes[3]; ++k) {
        sum += left[a.place({at[0], at[1], at[2], k})] * right[b.place({at[0], at[1], k, at[3]})];
      }
      return sum;
    });
  }

  bool apply(const Descriptor& operation) {
    const Descriptor& what = *operation.at(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const Descriptor* const x_of = operation.at(CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    const Descriptor* const b_of = operation.at(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    const Descriptor* const t_of = operation.at(CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    const Tensor x(*x_of), b(b_of == nullptr ? *x_of : *b_of), t(t_of == nullptr ? *x_of : *t_of),
        y(*operation.at(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
    if (y.sizes != x.sizes || !repeats(b, y) || !repeats(t, y)) return false;
    const auto xs = values(x), bs = values(b), ts = values(t);
    return give(y, [&](const Sizes& at) {
      return pointwise(what, at, xs[x.place(at)], bs[b.place(at)], ts[t.place(at)]);
    });
  }

  bool reduce(const Descriptor& operation) {
    const Descriptor& what = *operation.at(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    const Tensor x(*operation.at(CUDNN_ATTR_OPERATION_REDUCTION_XDESC)),
        y(*operation.at(CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
    if (y.sizes != Sizes{x.sizes[0], x.sizes[1], x.sizes[2], 1}) return false;
    const bool adds =
        what.one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_ADD;
    const auto xs = values(x);
    return give(y, [&](const Sizes& at) {
      float result = xs[x.place({at[0], at[1], at[2], 0})];
      for (std::int64_t k = 1; k < x.sizes[3]; ++k) {
        const float value = xs[x.place({at[0], at[1], at[2], k})];
        result = adds ? result + value : std::max(result, value);
      }
      return result;
    });
  }

  // Both tensors are views of the same elements in memory.
  bool transpose(const Descriptor& operation) {
    const Tensor x(*operation.at(CUDNN_ATTR_OPERATION_RESHAPE_XDESC)),
        y(*operation.at(CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
    const auto swapped = [](const Sizes& s) { return Sizes{s[0], s[1], s[3], s[2]}; };
    if (y.sizes != swapped(x.sizes) || y.strides != swapped(x.strides)) return false;
    const auto xs = values(x);
    return give(y, [&](const Sizes& at) { return xs[x.place(swapped(at))]; });
  }

  std::vector<float> values(const Tensor& tensor) {
    if (tensor.is_inner) return results_.at(tensor.id);
    std::vector<float> values(tensor.count());
    tensor.each([&](const Sizes& index, std::size_t place) {
      const std::byte* const from = addresses_.at(tensor.id) + tensor.bytes_before(index);
      values[place] = load_values(tensor.dtype(), from, 1).front();
    });
    return values;
  }

  template <typename Compute>
  bool give(const Tensor& tensor, const Compute& compute) {
    std::vector<float> values(tensor.count());
    tensor.each([&](const Sizes& index, std::size_t place) { values[place] = compute(index); });
    std::vector<std::byte> rounded(values.size() * kolo::size_of(tensor.dtype()));
    store_values(tensor.dtype(), values, rounded.data());
    if (tensor.is_inner) {
      results_[tensor.id] = load_values(tensor.dtype(), rounded.data(), values.size());
      return true;
    }
    const std::size_t bytes = kolo::size_of(tensor.dtype());
    tensor.each([&](const Sizes& index, std::size_t place) {
      std::memcpy(addresses_.at(tensor.id) + tensor.bytes_before(index), &rounded[place * bytes],
                  bytes);
    });
    return true;
  }

  std::map<std::int64_t, std::byte*> addresses_;
  std::map<std::int64_t, std::vector<float>> results_;
};

constexpr int kEngines = 2;
constexpr int kDeterministic = 1;

}  // namespace

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  *descriptor = new Descriptor{.type = type};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete of(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count,
                                       const void* values) {
  Descriptor& to = *of(descriptor);
  if (to.is_finished) return CUDNN_STATUS_BAD_PARAM;
  const auto elements = static_cast<std::size_t>(count);
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const auto* const all = static_cast<const cudnnBackendDescriptor_t*>(values);
    for (std::size_t i = 0; i < elements; ++i) {
      if (!of(all[i])->is_finished) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
      to.descriptors[name].push_back(of(all[i]));
    }
    return CUDNN_STATUS_SUCCESS;
  }
  const auto* const bytes = static_cast<const std::byte*>(values);
  to.values[name].assign(bytes, bytes + elements * bytes_of(type));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  of(descriptor)->is_finished = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, std::int64_t room,
                                       std::int64_t* count, void* values) {
  const Descriptor& from = *of(descriptor);
  auto* const descriptors = static_cast<cudnnBackendDescriptor_t*>(values);
  const auto give_engine = [&](std::int64_t i, int engine) {
    Descriptor& to = *of(descriptors[i]);
    to.engine = engine;
    to.is_finished = true;
    to.descriptors = from.descriptors;
  };
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
      *count = kEngines;
      for (int i = 0; i < std::min<std::int64_t>(room, kEngines); ++i) give_engine(i, i);
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      *count = 1;
      give_engine(0, from.engine);
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      *count = from.engine == kDeterministic ? 0 : 1;
      if (*count > 0) {
        *static_cast<cudnnBackendNumericalNote_t*>(values) = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
      }
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      *count = 1;
      *static_cast<std::int64_t*>(values) = 64;
      return CUDNN_STATUS_SUCCESS;
    default:
      return CUDNN_STATUS_NOT_SUPPORTED;
  }
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  const Descriptor& config = *of(plan)->at(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const auto workspace = of(pack)->one<std::byte*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  if (config.engine != kDeterministic || workspace == nullptr) return CUDNN_STATUS_BAD_PARAM;
  Run run(*of(pack));
  const Descriptor& graph = *config.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  for (const Descriptor* operation : graph.descriptors.at(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    if (!run.run(*operation)) return CUDNN_STATUS_BAD_PARAM;
  }
  return CUDNN_STATUS_SUCCESS;
}
