#include "trainer/cuda/cuda_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/base/check.h"
#include "comm/device/cuda_device.h"
#include "comm/device/cuda_stream.h"
#include "trainer/cuda/compute/status.h"
#include "trainer/cuda/kernels/embedding.h"
#include "trainer/cuda/kernels/portable.h"

namespace kolo::trainer::cuda {
namespace {

BufferView bytes_of(const DeviceMemory& memory) {
  return {memory.data(), sizeof(LossTotals), DType::kUInt8, memory.kind()};
}

cudaStream_t native(NativeStream stream) { return static_cast<cudaStream_t>(stream.handle); }

// Ends a failed capture and discards what it recorded.
void abandon_capture(cudaStream_t stream) noexcept {
  cudaGraph_t graph = nullptr;
  static_cast<void>(cudaStreamEndCapture(stream, &graph));
  static_cast<void>(cudaGetLastError());
  const GraphHandle handle(graph);
}

/// Whether a token or class is one of `count`.
auto is_below(std::size_t count) {
  return [count](std::int32_t value) { return value >= 0 && std::cmp_less(value, count); };
}

// Parameters with the names and shapes of a model's buffers.
std::unique_ptr<ParameterSet> buffers_as_parameters(const ParameterSet& model) {
  auto parameters = std::make_unique<ParameterSet>(std::nullopt);
  for (const Buffer& buffer : model.buffers()) {
    parameters->add(buffer.name, buffer.value.shape(), {});
  }
  return parameters;
}

const CudaModelOptions& checked(const CudaModelOptions& options) {
  check(options.dtype == DType::kFloat32 || is_16bit_float(options.dtype),
        "a model on a CUDA device computes in float32, bfloat16 or float16");
  return options;
}

}  // namespace

std::unique_ptr<ParameterSet> copy_of(const ParameterSet& parameters) {
  auto copy = std::make_unique<ParameterSet>(std::nullopt);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    copy->add(parameters[i].name(), parameters[i].shape(), {});
  }
  for (const Buffer& buffer : parameters.buffers()) {
    copy->add_buffer(buffer.name, buffer.value.shape(), 0.0f);
  }
  copy->copy_values(parameters);
  return copy;
}

BatchPlan plan_batch(const BatchShape& shape) {
  constexpr std::size_t kAlignment = 256;
  const bool has_tokens = shape.vocabulary > 0;
  const std::size_t tokens = round_up(shape.inputs * sizeof(std::int32_t), kAlignment);
  BatchPlan plan;
  plan.inputs = round_up(sizeof(BatchHeader), kAlignment);
  plan.order = plan.inputs + (has_tokens ? tokens : round_up(shape.inputs, kAlignment));
  plan.targets = plan.order + (has_tokens ? tokens : 0);
  plan.bytes = plan.targets + round_up(shape.rows * sizeof(std::int32_t), kAlignment);
  return plan;
}

BatchStaging::BatchStaging(kolo::Device& device, Stream& stream, const BatchShape& shape)
    : stream_(stream),
      shape_(shape),
      plan_(plan_batch(shape)),
      ends_(shape.vocabulary),
      batch_(device.allocate(plan_.bytes, MemoryKind::kDevice)) {
  for (Slot& slot : slots_) {
    slot.memory = device.allocate(plan_.bytes, MemoryKind::kPinned);
    slot.copied = device.make_event();
    std::memset(slot.memory.data(), 0, plan_.bytes);
  }
}

void BatchStaging::load(const BatchHeader& header, const TensorView& inputs,
                        std::span<const std::int32_t> targets) {
  const bool has_tokens = shape_.vocabulary > 0;
  const std::size_t inputs_given =
      has_tokens ? inputs.as<std::int32_t>().size() : inputs.as<std::uint8_t>().size();
  check(inputs_given == shape_.inputs, "a model takes batches of the size it was made for");
  if (has_tokens) {
    check(std::ranges::all_of(inputs.as<std::int32_t>(), is_below(shape_.vocabulary)),
          "a token is one of the vocabulary");
  }
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % slots_.size();
  wait_for(*slot.copied);
  std::memcpy(slot.memory.data(), &header, sizeof(header));
  std::memcpy(slot.memory.data() + plan_.inputs, inputs.bytes().data(), inputs.bytes().size());
  if (has_tokens) {
    auto* const order = reinterpret_cast<std::int32_t*>(slot.memory.data() + plan_.order);
    order_rows(inputs.as<std::int32_t>(), ends_, {order, shape_.inputs});
  }
  if (!targets.empty()) {
    std::memcpy(slot.memory.data() + plan_.targets, targets.data(), targets.size_bytes());
  }
  const std::size_t used = plan_.targets + targets.size_bytes();
  stream_.copy({batch_.data(), used, DType::kUInt8, MemoryKind::kDevice},
               {slot.memory.data(), used, DType::kUInt8, MemoryKind::kPinned});
  stream_.record(*slot.copied);
}

const BatchHeader* BatchStaging::header() const {
  return reinterpret_cast<const BatchHeader*>(batch_.data());
}
DeviceInputs BatchStaging::inputs() const {
  const std::byte* const at = batch_.data() + plan_.inputs;
  if (shape_.vocabulary == 0) {
    return {.pixels = reinterpret_cast<const std::uint8_t*>(at),
            .tokens = nullptr,
            .order = nullptr,
            .header = header()};
  }
  return {.pixels = nullptr,
          .tokens = reinterpret_cast<const std::int32_t*>(at),
          .order = reinterpret_cast<const std::int32_t*>(batch_.data() + plan_.order),
          .header = header()};
}
const std::int32_t* BatchStaging::targets() const {
  return reinterpret_cast<const std::int32_t*>(batch_.data() + plan_.targets);
}

Loss::Loss(kolo::Device& device, Stream& stream, Context& context, const BatchStaging& batch,
           const Shape& shape)
    : stream_(stream),
      context_(context),
      batch_(batch),
      shape_(shape),
      gradient_(context.activations(shape.rows * shape.stride)),
      row_results_(context.floats(2 * shape.rows)),
      totals_(device.allocate(sizeof(LossTotals), MemoryKind::kDevice)),
      pinned_totals_(device.allocate(sizeof(LossTotals), MemoryKind::kPinned)),
      copied_(device.make_event()) {
  clear_totals();
}

void Loss::enqueue(const float* logits, void* gradient) {
  cross_entropy(context_.stream(), {.dtype = context_.dtype(),
                                    .rows = shape_.rows,
                                    .classes = shape_.classes,
                                    .stride = shape_.stride,
                                    .logits = logits,
                                    .targets = batch_.targets(),
                                    .header = batch_.header(),
                                    .gradient = gradient,
                                    .row_results = floats_of(row_results_),
                                    .totals = reinterpret_cast<LossTotals*>(totals_.data())});
}

LossTotals Loss::take() {
  stream_.copy(bytes_of(pinned_totals_), bytes_of(totals_));
  clear_totals();
  stream_.record(*copied_);
  wait_for(*copied_);
  LossTotals totals;
  std::memcpy(&totals, pinned_totals_.data(), sizeof(totals));
  return totals;
}

void Loss::clear_totals() {
  require_cuda(cudaMemsetAsync(totals_.data(), 0, sizeof(LossTotals),
                               static_cast<cudaStream_t>(stream_.native())),
               "cudaMemsetAsync");
}

void StepGraph::record(std::size_t milestone_bytes, const std::function<void()>& enqueue) {
  clear();
  milestone_bytes_ = milestone_bytes;
  begin();
  try {
    enqueue();
    end();
  } catch (...) {
    abandon_capture(native(stream_));
    clear();
    ready_.clear();
    throw;
  }
}

void StepGraph::ready(std::size_t index, std::size_t bytes) {
  ready_.push_back(index);
  ready_bytes_ += bytes;
  if (ready_bytes_ < milestone_bytes_) return;
  end();
  begin();
}

void StepGraph::begin() {
  ready_bytes_ = 0;
  require_cuda(cudaStreamBeginCapture(native(stream_), cudaStreamCaptureModeThreadLocal),
               "cudaStreamBeginCapture");
}

void StepGraph::end() {
  cudaGraph_t captured = nullptr;
  require_cuda(cudaStreamEndCapture(native(stream_), &captured), "cudaStreamEndCapture");
  const GraphHandle graph(captured);
  cudaGraphExec_t executable = nullptr;
  require_cuda(cudaGraphInstantiate(&executable, captured, 0), "cudaGraphInstantiate");
  segments_.push_back({.graph = GraphExecHandle(executable), .ready = std::exchange(ready_, {})});
}

void StepGraph::replay(const Hook& hook) {
  for (const Segment& segment : segments_) {
    require_cuda(cudaGraphLaunch(segment.graph.get(), native(stream_)), "cudaGraphLaunch");
    for (const std::size_t index : segment.ready) {
      if (hook) hook(index);
    }
  }
}

CudaModel::CudaModel(Base base)
    : device_(base.device),
      options_(checked(base.options)),
      rows_(base.batch.rows),
      classes_(base.classes),
      stream_(std::move(base.stream)),
      device_index_(as_cuda(*stream_).device()),
      context_(device_, *stream_, options_.dtype),
      host_parameters_(std::move(base.parameters)),
      parameters_(*host_parameters_, device_, *stream_, options_.dtype,
                  options_.plan(*host_parameters_)),
      host_buffers_(buffers_as_parameters(*host_parameters_)),
      buffers_(*host_buffers_, device_, *stream_, DType::kFloat32),
      batch_(device_, *stream_, base.batch),
      loss_(device_, *stream_, context_, batch_,
            {.rows = rows_, .classes = classes_, .stride = base.logits_stride}) {
  for (std::size_t kind = 0; kind < kPassKinds; ++kind) {
    recordings_.push_back({.graph = StepGraph({stream_->native()})});
  }
  upload_parameters();
}

void CudaModel::upload_parameters() {
  const CudaDeviceGuard guard(device_index_);
  parameters_.upload();
  upload_buffers();
}

void CudaModel::upload_buffers() {
  if (host_buffers_->size() == 0) return;
  const CudaDeviceGuard guard(device_index_);
  for (std::size_t i = 0; i < host_buffers_->size(); ++i) {
    std::ranges::copy(host_parameters_->buffers()[i].value.span(),
                      (*host_buffers_)[i].value().begin());
  }
  buffers_.upload();
}

void CudaModel::download_parameters() {
  const CudaDeviceGuard guard(device_index_);
  parameters_.download();
  download_buffers();
}

void CudaModel::download_buffers() {
  if (host_buffers_->size() == 0) return;
  const CudaDeviceGuard guard(device_index_);
  buffers_.download();
  for (std::size_t i = 0; i < host_buffers_->size(); ++i) {
    host_parameters_->buffers()[i].value.assign(std::as_const(*host_buffers_)[i].value());
  }
}

void CudaModel::bind_gradient(std::size_t index, void* memory, DType dtype) {
  parameters_.bind_gradient(index, memory, dtype);
  for (Recording& recording : recordings_) recording.graph.clear();
}

void CudaModel::own_gradients(DType dtype) {
  parameters_.own_gradients(dtype);
  for (Recording& recording : recordings_) recording.graph.clear();
}

void CudaModel::launch(GradientPass pass, const std::function<void()>& enqueue) {
  Recording& recording = recordings_[kind_of(pass)];
  StepGraph& graph = recording.graph;
  parameters_.begin(pass);
  if (options_.launch == LaunchMode::kGraph && recording.is_warm) {
    if (!graph.is_recorded()) {
      parameters_.on_ready([&](std::size_t index) {
        graph.ready(index, parameters_[index].size * size_of(parameters_[index].gradient_dtype()));
      });
      graph.record(options_.milestone_bytes, enqueue);
    }
    graph.replay(hook_);
    return;
  }
  parameters_.on_ready(hook_);
  enqueue();
  recording.is_warm = true;
}

void CudaModel::load(const TensorView& inputs, const TensorView& targets,
                     const LossFactors& factors) {
  const std::span<const std::int32_t> classes = targets.as<std::int32_t>();
  check(classes.size() <= rows_, "a batch has at most one target per row");
  check(std::ranges::all_of(classes, is_below(classes_)), "a target is one of the classes");
  batch_.load({.row_weight = factors.row_weight,
               .loss_scale = factors.loss_scale,
               .targets = narrow<std::uint32_t>(classes.size())},
              inputs, classes);
  counted_rows_ += static_cast<double>(classes.size());
}

void CudaModel::forward_backward(const TensorView& inputs, const TensorView& targets,
                                 const LossFactors& factors) {
  const CudaDeviceGuard guard(device_index_);
  load(inputs, targets, factors);
  launch(passes_.next(), [this] {
    loss_.evaluate_with_gradient(forward(batch_.inputs()));
    backward(loss_.gradient(), batch_.inputs());
  });
}

void CudaModel::evaluate(const TensorView& inputs, const TensorView& targets) {
  const CudaDeviceGuard guard(device_index_);
  load(inputs, targets, {});
  DeviceInputs held_out = batch_.inputs();
  held_out.is_training = false;
  loss_.evaluate(forward(held_out));
}

LossSums CudaModel::take_sums() {
  const CudaDeviceGuard guard(device_index_);
  const LossTotals totals = loss_.take();
  return {.loss = totals.loss, .score = totals.correct, .rows = std::exchange(counted_rows_, 0.0)};
}

}  // namespace kolo::trainer::cuda
