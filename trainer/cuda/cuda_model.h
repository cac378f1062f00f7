#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"
#include "comm/base/unique_handle.h"
#include "comm/device/cuda_device.h"
#include "comm/device/cuda_error.h"
#include "comm/device/cuda_stream.h"
#include "comm/device/device.h"
#include "trainer/compute/device.h"
#include "trainer/cuda/compute/context.h"
#include "trainer/cuda/kernels/softmax.h"
#include "trainer/cuda/parameters.h"
#include "trainer/loss/loss.h"
#include "trainer/models/gpt.h"
#include "trainer/models/image_models.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer::cuda {

/// How a step is launched: kernel by kernel, or as CUDA graphs recorded in the second step.
enum class LaunchMode : std::uint8_t { kEager, kGraph };

struct CudaModelOptions {
  /// Dtype of activations and of operands of products: kFloat32, kBFloat16 or kFloat16. Parameters,
  /// moments, parameter gradients and accumulators of products are always float32.
  DType dtype = DType::kBFloat16;
  LaunchMode launch = LaunchMode::kEager;
  /// kGraph: a graph ends once it has completed this many bytes of gradients, whose hooks run after
  /// its launch. Smaller values overlap more with communication, larger ones launch fewer graphs.
  std::size_t milestone_bytes = std::size_t{4} << 20;
};

/// Factors of the gradients of one step.
struct LossFactors {
  float row_weight = 1.0f;  ///< Weight of each row's loss; see SoftmaxCrossEntropy.
  float loss_scale = 1.0f;  ///< float16: lifts gradients above underflow; the loss sums do not
                            ///< contain it.
};

/// Byte offsets of the parts of a batch: header, inputs, targets, each aligned to 256 bytes. Pure.
struct BatchPlan {
  std::size_t inputs = 0;
  std::size_t targets = 0;
  std::size_t bytes = 0;
};
BatchPlan plan_batch(std::size_t input_bytes, std::size_t target_rows);

/// Copies batches to a fixed buffer on the device through two alternating pinned buffers, so that
/// the host fills one while the other is copied.
///
/// Threads: one. `device` and `stream` outlive it.
class BatchStaging {
 public:
  BatchStaging(kolo::Device& device, Stream& stream, std::size_t input_bytes,
               std::size_t target_rows);

  /// Copies the batch and enqueues its transfer to the device. Blocks while the transfer before the
  /// last one is in flight.
  void load(const BatchHeader& header, std::span<const std::uint8_t> inputs,
            std::span<const std::uint8_t> targets);

  // Addresses on the device; equal for all batches.
  const BatchHeader* header() const;
  const std::uint8_t* inputs() const;
  const std::uint8_t* targets() const;

 private:
  struct Slot {
    DeviceMemory memory;
    std::unique_ptr<Event> copied;
  };

  Stream& stream_;
  BatchPlan plan_;
  DeviceMemory batch_;
  std::array<Slot, 2> slots_;
  std::size_t next_ = 0;
};

/// Softmax cross-entropy on the device; its sums stay there until `take`.
///
/// Threads: one. `stream`, `context` and `batch` outlive it.
class Loss {
 public:
  struct Shape {
    std::size_t rows;
    std::size_t classes;
  };

  Loss(kolo::Device& device, Stream& stream, Context& context, const BatchStaging& batch,
       const Shape& shape);

  /// Enqueues loss and gradient of `logits`, float32 [rows, classes].
  void evaluate_with_gradient(const float* logits) { enqueue(logits, gradient_.data()); }
  void evaluate(const float* logits) { enqueue(logits, nullptr); }

  /// Gradient of the logits, [rows, classes] of the context's dtype.
  const void* gradient() const { return gradient_.data(); }

  /// The sums of all batches since the last call. Blocks.
  LossTotals take();

 private:
  void enqueue(const float* logits, void* gradient);
  void clear_totals();

  Stream& stream_;
  Context& context_;
  const BatchStaging& batch_;
  Shape shape_;
  DeviceMemory gradient_, row_results_, totals_, pinned_totals_;
  std::unique_ptr<Event> copied_;
};

/// A CUDA graph, which `kDestroy` closes.
template <typename Handle, auto kDestroy>
struct GraphTraits {
  using Value = Handle;
  static Value invalid() noexcept { return nullptr; }
  static void close(Value graph) noexcept { log_cuda(kDestroy(graph), "closing a graph"); }
};
using GraphHandle = UniqueHandle<GraphTraits<cudaGraph_t, cudaGraphDestroy>>;
using GraphExecHandle = UniqueHandle<GraphTraits<cudaGraphExec_t, cudaGraphExecDestroy>>;

/// The kernels of a step as successive CUDA graphs, recorded once and launched in every later step.
///
/// A recorded graph runs no host code, so a step is cut where the host has work: after kernels that
/// complete some gradients. Their hooks run right after the launch of that graph, and find the same
/// work on the stream as without graphs.
///
/// Threads: one; other threads may call CUDA meanwhile (capture is thread-local).
/// Errors:  KoloError with CUDA's text; a recording that fails leaves nothing recorded.
class StepGraph {
 public:
  using Hook = std::function<void(std::size_t index)>;

  explicit StepGraph(NativeStream stream) : stream_(stream) {}

  bool is_recorded() const { return !segments_.empty(); }
  /// Discards the recording, because addresses in it have changed.
  void clear() { segments_.clear(); }

  /// Records the work that `enqueue` puts on the stream, without running it. `enqueue` calls
  /// `ready` for each gradient; a graph ends once its gradients have `milestone_bytes`.
  void record(std::size_t milestone_bytes, const std::function<void()>& enqueue);
  /// Within `record`: gradient `index` is complete.
  void ready(std::size_t index, std::size_t bytes);

  /// Launches all graphs; right after each launch, calls `hook` for its gradients.
  void replay(const Hook& hook);

 private:
  struct Segment {
    GraphExecHandle graph;
    std::vector<std::size_t> ready;
  };

  void begin();
  void end();

  NativeStream stream_;
  std::vector<Segment> segments_;
  std::size_t milestone_bytes_ = 0;
  std::vector<std::size_t> ready_;
  std::size_t ready_bytes_ = 0;
};

/// A model of trainer/models on a CUDA device: the same parameters, names, order and initial bits.
///
/// Everything is enqueued on one stream owned by the model; only `take_sums` and
/// `download_parameters` wait. After the first step (kGraph: the second), a step allocates nothing,
/// creates no stream or event, synchronises no device and copies from pinned memory only.
///
/// Bits:    equal in every run with the same device type, libraries and options.
/// Threads: one. `device` outlives it; hooks run on the calling thread.
/// Errors:  KoloError(kInternal) with the text of CUDA, cuBLAS or cuDNN.
class CudaModel {
 public:
  using ReadyHook = std::function<void(std::size_t index)>;

  /// Constructor arguments of every model.
  struct Base {
    kolo::Device& device;
    std::unique_ptr<Stream> stream;  ///< A stream of `device`.
    CudaModelOptions options;
    std::unique_ptr<ParameterSet> parameters;
    // The shape of a batch.
    std::size_t input_bytes;
    std::size_t rows;
    std::size_t classes;
  };

  virtual ~CudaModel() = default;
  CudaModel(const CudaModel&) = delete;
  CudaModel& operator=(const CudaModel&) = delete;

  /// Parameters on the host. Their values equal those of the device after construction,
  /// `upload_parameters` and `download_parameters`, and are stale otherwise. Their `gradient()` is
  /// unused.
  ParameterSet& parameters() { return *host_parameters_; }
  const ParameterSet& parameters() const { return *host_parameters_; }

  /// Copies host values to the device, after a broadcast or a checkpoint. Blocks until they are
  /// there.
  void upload_parameters();
  /// Copies device values to the host, for a hash, a checkpoint or generated text. Blocks.
  void download_parameters();

  /// Memory of gradient `index`: parameters()[index].size() floats on the device. Errors:
  /// UsageError unless aligned to 16 bytes.
  void bind_gradient(std::size_t index, float* memory);
  float* gradient(std::size_t index) const { return parameters_[index].gradient; }
  /// Gives every gradient memory owned by the model, for a job without a runtime.
  void own_gradients();

  /// The hook is called once per gradient and `forward_backward`, starting with the last layer,
  /// right after the work that completes the gradient was enqueued: an event recorded on `stream()`
  /// inside the hook follows that work.
  void on_gradient_ready(ReadyHook hook) { hook_ = std::move(hook); }

  /// Enqueues forward pass, loss and backward pass. Gradients are overwritten and the loss is added
  /// to the sums.
  ///
  /// Shape:  as Model::forward and SoftmaxCrossEntropy::evaluate: `inputs` is a full batch;
  ///         `targets` may be shorter, and rows beyond it do not count. Both are copied before the
  ///         call returns.
  /// Before: all gradients are bound. Earlier uses of the gradients were enqueued on this stream,
  ///         or this stream waits for them.
  /// Errors: UsageError if sizes do not fit or a target is not a class.
  void forward_backward(std::span<const std::uint8_t> inputs, std::span<const std::uint8_t> targets,
                        const LossFactors& factors);

  /// Enqueues forward pass and loss, which is added to the sums.
  void evaluate(std::span<const std::uint8_t> inputs, std::span<const std::uint8_t> targets);

  /// The sums of all batches since the last call. Blocks until they are complete.
  LossSums take_sums();

  /// The stream of all work of this model.
  NativeStream stream() const { return context_.stream(); }

  // For other parts of trainer/cuda.
  kolo::Device& device() { return device_; }
  int device_index() const { return device_index_; }
  Stream& device_stream() { return *stream_; }
  Context& context() { return context_; }
  DeviceParameters& device_parameters() { return parameters_; }

 protected:
  /// Uploads the parameters. Errors: UsageError for a dtype that is not one of the three.
  explicit CudaModel(Base base);

  /// Enqueues the network: from `inputs` on the device to logits, float32 [rows, classes].
  virtual const float* forward(const std::uint8_t* inputs) = 0;
  /// Enqueues the computation of all gradients from the gradient of the logits, in the dtype of the
  /// options.
  virtual void backward(const void* logits_gradient, const std::uint8_t* inputs) = 0;

 private:
  /// Enqueues one step, which `enqueue` describes; see LaunchMode.
  void launch(const std::function<void()>& enqueue);
  /// Copies a batch to the device. Errors: UsageError if it does not fit.
  void load(std::span<const std::uint8_t> inputs, std::span<const std::uint8_t> targets,
            const LossFactors& factors);

  // Objects that others refer to come first and are destroyed last.
  kolo::Device& device_;
  CudaModelOptions options_;
  std::size_t input_bytes_, rows_, classes_;
  std::unique_ptr<Stream> stream_;
  int device_index_;
  Context context_;
  std::unique_ptr<ParameterSet> host_parameters_;
  DeviceParameters parameters_;
  BatchStaging batch_;
  Loss loss_;
  DeviceMemory own_gradients_;
  ReadyHook hook_;
  StepGraph graph_;
  bool is_warm_ = false;       // a step has run, so everything that loads lazily is loaded
  double counted_rows_ = 0.0;  // since the last take_sums
};

/// Creates a model with the parameters of a `HostModel`, uploads them and creates the layers.
/// `host_shape` has one sample, since the host model computes nothing. Errors: UsageError if
/// `device` is not a CUDA device, and those of the model on the processor.
template <typename M, typename HostModel, typename Shape>
std::unique_ptr<CudaModel> make_model(kolo::Device& device, const CudaModelOptions& options,
                                      const Shape& shape, const Shape& host_shape,
                                      std::size_t input_bytes, std::size_t rows,
                                      std::size_t classes) {
  auto parameters = std::make_unique<ParameterSet>(shape.seed);
  {
    trainer::Device processor;
    const HostModel host(processor, host_shape);
    for (std::size_t i = 0; i < host.parameters().size(); ++i) {
      parameters->add(host.parameters()[i].name(), host.parameters()[i].shape(), {});
    }
    parameters->copy_values(host.parameters());
  }
  std::unique_ptr<Stream> stream = device.make_stream();
  const CudaDeviceGuard guard(as_cuda(*stream).device());
  return std::make_unique<M>(CudaModel::Base{.device = device,
                                             .stream = std::move(stream),
                                             .options = options,
                                             .parameters = std::move(parameters),
                                             .input_bytes = input_bytes,
                                             .rows = rows,
                                             .classes = classes},
                             shape);
}

/// Errors: UsageError for a dtype that is not one of the three, and for shapes that the model
///         cannot take; KoloError(kResources) if the device has too little memory.
std::unique_ptr<CudaModel> make_gpt(kolo::Device& device, const Gpt::Options& shape,
                                    const CudaModelOptions& options);
std::unique_ptr<CudaModel> make_mlp(kolo::Device& device, const ImageModelOptions& shape,
                                    const CudaModelOptions& options);
std::unique_ptr<CudaModel> make_lenet(kolo::Device& device, const ImageModelOptions& shape,
                                      const CudaModelOptions& options);

}  // namespace kolo::trainer::cuda
