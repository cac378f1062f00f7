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
#include "trainer/cuda/layers/attention.h"
#include "trainer/cuda/parameters.h"
#include "trainer/data/dataset.h"
#include "trainer/loss/loss.h"
#include "trainer/models/gpt.h"
#include "trainer/models/image_models.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer::cuda {

/// How a pass is launched: kernel by kernel, or as CUDA graphs that the second pass of its kind
/// records.
enum class LaunchMode : std::uint8_t { kEager, kGraph };

struct CudaModelOptions {
  /// Dtype of activations and of operands of products: kFloat32, kBFloat16 or kFloat16. Parameters,
  /// moments and sums within products are always float32.
  DType dtype = DType::kBFloat16;
  LaunchMode launch = LaunchMode::kEager;
  AttentionMode attention = AttentionMode::kAuto;
  MakeParameterPlan plan = plan_parameters;
  /// For kGraph: the number of bytes of gradients after which a graph ends. Hooks of these
  /// gradients run after the launch of the graph. Smaller values overlap more computation with
  /// communication; larger values need fewer launches.
  std::size_t milestone_bytes = std::size_t{4} << 20;
};

/// The factors of a step's gradients.
struct LossFactors {
  float row_weight = 1.0f;  ///< Weight of each row's loss.
  float loss_scale = 1.0f;  ///< Loss scale; loss sums do not contain it.
};

struct BatchShape {
  std::size_t inputs;      ///< Number of pixels or tokens.
  std::size_t vocabulary;  ///< Tokens are below this; 0: the inputs are pixels.
  std::size_t rows;        ///< Number of rows of the output, each of which may have a target.
};

/// Byte offsets of the parts of a batch in its buffer: header, inputs, the order of tokens and
/// targets. Each part is aligned to 256 bytes.
struct BatchPlan {
  std::size_t inputs = 0;
  std::size_t order = 0;
  std::size_t targets = 0;
  std::size_t bytes = 0;
};
BatchPlan plan_batch(const BatchShape& shape);

/// The inputs of a pass in device memory.
struct DeviceInputs {
  const std::uint8_t* pixels;  ///< Null for tokens.
  const std::int32_t* tokens;  ///< Null for pixels.
  const std::int32_t* order;   ///< That of `order_rows`; null for pixels.
  const BatchHeader* header;
  bool is_training = true;  ///< Whether layers collect statistics.
};

/// Copies batches to a fixed buffer on the device. It alternates between two pinned buffers, so
/// that the host can fill one while the other is in flight.
///
/// Threads: one. `device` and `stream` outlive this object.
class BatchStaging {
 public:
  BatchStaging(kolo::Device& device, Stream& stream, const BatchShape& shape);

  /// Copies the batch to a pinned buffer and enqueues its transfer to the device. Blocks while the
  /// transfer before the last one is in flight. Errors: UsageError if the inputs have another
  /// number or dtype, or if a token is not in the vocabulary.
  void load(const BatchHeader& header, const TensorView& inputs,
            std::span<const std::int32_t> targets);

  // Device addresses of the parts of a batch; they are the same for all batches.
  const BatchHeader* header() const;
  DeviceInputs inputs() const;
  const std::int32_t* targets() const;

 private:
  struct Slot {
    DeviceMemory memory;
    std::unique_ptr<Event> copied;
  };

  Stream& stream_;
  BatchShape shape_;
  BatchPlan plan_;
  std::vector<std::uint32_t> ends_;  // scratch memory of `order_rows`
  DeviceMemory batch_;
  std::array<Slot, 2> slots_;
  std::size_t next_ = 0;
};

/// Softmax cross-entropy on the device, with sums over batches that stay there until `take`.
///
/// Threads: one. `stream`, `context` and `batch` outlive this object.
class Loss {
 public:
  struct Shape {
    std::size_t rows;
    std::size_t classes;
    std::size_t stride;  ///< Elements from one row of logits, and of their gradient, to the next.
  };

  Loss(kolo::Device& device, Stream& stream, Context& context, const BatchStaging& batch,
       const Shape& shape);

  /// Enqueues the computation of loss and gradient for `logits`, float32 [rows, classes] with the
  /// stride of the shape.
  void evaluate_with_gradient(const float* logits) { enqueue(logits, gradient_.data()); }
  void evaluate(const float* logits) { enqueue(logits, nullptr); }

  /// The gradient of the logits, shaped like these, in the context's dtype.
  const void* gradient() const { return gradient_.data(); }

  /// Returns the sums over all batches since the last call, and resets them. Blocks.
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

/// How UniqueHandle closes a handle of a CUDA graph: with `kDestroy`.
template <typename Handle, auto kDestroy>
struct GraphTraits {
  using Value = Handle;
  static Value invalid() noexcept { return nullptr; }
  static void close(Value graph) noexcept { log_cuda(kDestroy(graph), "closing a graph"); }
};
using GraphHandle = UniqueHandle<GraphTraits<cudaGraph_t, cudaGraphDestroy>>;
using GraphExecHandle = UniqueHandle<GraphTraits<cudaGraphExec_t, cudaGraphExecDestroy>>;

/// The kernels of a pass as a sequence of CUDA graphs, recorded once and launched later.
///
/// A graph runs no host code, so the sequence is cut after kernels that complete some gradients.
/// The hooks of these gradients run right after the launch of their graph. For them, the stream
/// holds the same work as without graphs.
///
/// Threads: one. Other threads may call CUDA during a recording, because capture is thread-local.
/// Errors:  KoloError with CUDA's text. After a failed recording, nothing is recorded.
class StepGraph {
 public:
  using Hook = std::function<void(std::size_t index)>;

  explicit StepGraph(NativeStream stream) : stream_(stream) {}

  bool is_recorded() const { return !segments_.empty(); }
  /// Discards the recording. Call when addresses in it have changed.
  void clear() { segments_.clear(); }

  /// Records the work that `enqueue` puts on the stream, without running it. `enqueue` calls
  /// `ready` for each gradient. A graph ends when its gradients have `milestone_bytes` bytes.
  void record(std::size_t milestone_bytes, const std::function<void()>& enqueue);
  /// Marks gradient `index`, of `bytes` bytes, as complete. Call only within `record`.
  void ready(std::size_t index, std::size_t bytes);

  /// Launches all graphs. Right after each launch, calls `hook` for the gradients of that graph.
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

/// A model of trainer/models on a CUDA device, with the same parameters, names, order and initial
/// bits as on the processor.
///
/// All work is enqueued on one stream, which the model owns. Only `take_sums`, `upload_parameters`
/// and `download_parameters` wait for it. After the first step (with kGraph, the second), a step
/// allocates no memory, creates no stream or event, synchronises no device and copies only from
/// pinned memory.
///
/// Bits:    equal in every run with the same type of device, libraries and options.
/// Threads: one. `device` outlives this object. Hooks run on the calling thread.
/// Errors:  KoloError(kInternal) with the text of CUDA, cuBLAS or cuDNN.
class CudaModel {
 public:
  using ReadyHook = std::function<void(std::size_t index)>;

  /// The constructor arguments of every model.
  struct Base {
    kolo::Device& device;
    std::unique_ptr<Stream> stream;  ///< A stream of `device`.
    CudaModelOptions options;
    std::unique_ptr<ParameterSet> parameters;
    BatchShape batch;
    std::size_t classes;
    std::size_t logits_stride;
  };

  virtual ~CudaModel() = default;
  CudaModel(const CudaModel&) = delete;
  CudaModel& operator=(const CudaModel&) = delete;

  /// The parameters on the host. Their values, and buffers, equal those on the device after
  /// construction, `upload_parameters` and `download_parameters`, and are stale at other times.
  /// Their gradients are unused.
  ParameterSet& parameters() { return *host_parameters_; }
  const ParameterSet& parameters() const { return *host_parameters_; }

  /// Copies values and buffers from the host to the device, as after a broadcast. Blocks.
  void upload_parameters();
  /// Copies values and buffers from the device to the host, as for a hash. Blocks.
  void download_parameters();
  /// These copy the buffers only. Both block if there are some.
  void upload_buffers();
  void download_buffers();

  /// As DeviceParameters::bind_gradient.
  void bind_gradient(std::size_t index, void* memory, DType dtype = DType::kFloat32);
  /// As DeviceParameters::own_gradients, for a job without a runtime.
  void own_gradients(DType dtype = DType::kFloat32);

  /// Sets the number of backward passes per step; their gradients add up. Call between steps.
  /// Before: passes > 0.
  void accumulate(std::size_t passes) { passes_.set(passes); }

  /// Sets the hook that `forward_backward` calls once per gradient and step, those of the last
  /// layer first, right after it has enqueued the work that completes the gradient. An event that
  /// the hook records on `stream()` follows that work.
  void on_gradient_ready(ReadyHook hook) { hook_ = std::move(hook); }

  /// Enqueues forward pass, loss and backward pass. The first pass of a step overwrites the
  /// gradients, later ones add to them. The loss is added to the sums.
  ///
  /// Shape:  as in Model::forward and SoftmaxCrossEntropy::evaluate: `inputs` is a full batch of
  ///         uint8 pixels or int32 tokens; `targets`, int32, may be shorter, and rows without a
  ///         target do not count. Both are copied before the call returns.
  /// Before: all gradients are bound. Earlier work that uses them is on this stream, or this stream
  ///         waits for it.
  /// Errors: UsageError if sizes or dtypes do not fit, a token is not in the vocabulary or a target
  ///         is not a class.
  void forward_backward(const TensorView& inputs, const TensorView& targets,
                        const LossFactors& factors);

  /// Enqueues the forward pass, and the loss, which is added to the sums.
  void evaluate(const TensorView& inputs, const TensorView& targets);

  /// Returns the sums over all batches since the last call, and resets them. Blocks.
  LossSums take_sums();

  /// The stream on which all work of this model is enqueued.
  NativeStream stream() const { return context_.stream(); }

  // These are for other parts of trainer/cuda.
  kolo::Device& device() { return device_; }
  int device_index() const { return device_index_; }
  Context& context() { return context_; }
  DeviceParameters& device_parameters() { return parameters_; }
  /// The buffers by name; they have no gradients.
  DeviceParameters& device_buffers() { return buffers_; }

 protected:
  /// Uploads the parameters. Errors: UsageError for a dtype other than those of
  /// `CudaModelOptions::dtype`.
  explicit CudaModel(Base base);

  /// Enqueues the forward pass from `inputs` on the device. Returns logits, float32 [rows,
  /// classes], with the stride that the constructor got.
  virtual const float* forward(const DeviceInputs& inputs) = 0;
  /// Enqueues the computation of all parameter gradients from the gradient of the logits, which has
  /// the dtype of the options, and their shape.
  virtual void backward(const void* logits_gradient, const DeviceInputs& inputs) = 0;

 private:
  /// The recording of one kind of pass.
  struct Recording {
    StepGraph graph;
    bool is_warm = false;  // whether such a pass has run, after which nothing is loaded lazily
  };

  /// Runs a pass in the LaunchMode of the options; `enqueue` enqueues its work.
  void launch(GradientPass pass, const std::function<void()>& enqueue);
  /// Copies a batch to the device. Errors: UsageError if it does not fit.
  void load(const TensorView& inputs, const TensorView& targets, const LossFactors& factors);

  // An object is declared before the objects that refer to it, so that it is destroyed after them.
  kolo::Device& device_;
  CudaModelOptions options_;
  std::size_t rows_, classes_;
  std::unique_ptr<Stream> stream_;
  int device_index_;
  Context context_;
  std::unique_ptr<ParameterSet> host_parameters_;
  DeviceParameters parameters_;
  std::unique_ptr<ParameterSet> host_buffers_;  // the buffers as parameters, which travel alike
  DeviceParameters buffers_;
  BatchStaging batch_;
  Loss loss_;
  ReadyHook hook_;
  PassCounter passes_;
  std::vector<Recording> recordings_;  // by kind of pass
  double counted_rows_ = 0.0;          // rows counted since the last `take_sums`
};

/// A copy of the parameters and buffers of a model on the processor.
std::unique_ptr<ParameterSet> copy_of(const ParameterSet& parameters);

/// Makes a model M of `shapes` with the parameters and buffers `initial`, and uploads these. They
/// are those of a model on the processor, of one sample, because it computes nothing. Errors:
/// UsageError if `device` is not a CUDA device.
template <typename M, typename... Shapes>
std::unique_ptr<CudaModel> make_model(kolo::Device& device, const CudaModelOptions& options,
                                      const ParameterSet& initial, const BatchShape& batch,
                                      std::size_t classes, std::size_t logits_stride,
                                      const Shapes&... shapes) {
  auto stream = std::make_unique<CudaStream>(as_cuda(*device.make_stream()).device());
  const CudaDeviceGuard guard(stream->device());
  return std::make_unique<M>(CudaModel::Base{.device = device,
                                             .stream = std::move(stream),
                                             .options = options,
                                             .parameters = copy_of(initial),
                                             .batch = batch,
                                             .classes = classes,
                                             .logits_stride = logits_stride},
                             shapes...);
}

/// These make models for batches of `shape`. Errors: UsageError for an invalid dtype, or for a
/// shape that the model does not accept; KoloError(kResources) if the device has too little memory.
std::unique_ptr<CudaModel> make_gpt(kolo::Device& device, const Gpt::Options& shape,
                                    const CudaModelOptions& options);
/// A function that describes a network for images of some shape, such as Lenet::network.
using DescribeNetwork = ImageNetwork (*)(const ImageModelOptions& options);
std::unique_ptr<CudaModel> make_image_model(kolo::Device& device, DescribeNetwork describe,
                                            const ImageModelOptions& shape,
                                            const CudaModelOptions& options);

}  // namespace kolo::trainer::cuda
