#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/base/native_stream.h"
#include "comm/base/unique_handle.h"
#include "comm/device/cuda_error.h"
#include "comm/device/device.h"
#include "trainer/cuda/compute/context.h"
#include "trainer/cuda/cuda_model.h"
#include "trainer/cuda/kernels/softmax.h"
#include "trainer/cuda/parameters.h"

namespace kolo::trainer::cuda {

/// Offsets of the parts of a batch in bytes: header, inputs, targets, each aligned to 256 bytes.
/// Pure.
struct BatchPlan {
  std::size_t inputs = 0;
  std::size_t targets = 0;
  std::size_t bytes = 0;
};
BatchPlan plan_batch(std::size_t input_bytes, std::size_t target_rows);

/// Copies batches to one place on the device through two alternating pinned buffers, so that the
/// host can fill one while the other is copied.
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

  // On the device; the same for all batches.
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

/// Softmax cross-entropy on the device; its sums stay there until they are requested.
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

  /// [rows, classes] of the context's dtype.
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

/// A graph of CUDA, which `kDestroy` closes.
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
/// complete some gradients, whose hooks run right after the launch of that graph. A hook thus finds
/// the same work on the stream as with single launches.
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

/// The common part of every model: a stream, parameters on host and device, a batch, a loss, and a
/// launch mode.
///
/// Members are declared so that objects that others refer to come first and are destroyed last.
class CudaModel::Core {
 public:
  struct Shape {
    std::size_t input_bytes;
    std::size_t rows;
    std::size_t classes;
  };

  /// Takes a stream of `device` and registered parameters, and uploads the parameters.
  Core(kolo::Device& device, std::unique_ptr<Stream> stream, const CudaModelOptions& options,
       std::unique_ptr<ParameterSet> parameters, const Shape& shape);

  kolo::Device& device() { return device_; }
  Stream& stream() { return *stream_; }
  int device_index() const { return device_index_; }
  Context& context() { return context_; }
  DeviceParameters& parameters() { return parameters_; }
  ParameterSet& host_parameters() { return *host_parameters_; }
  const CudaModelOptions& options() const { return options_; }
  const Shape& shape() const { return shape_; }
  BatchStaging& batch() { return batch_; }
  Loss& loss() { return loss_; }

  void bind_gradient(std::size_t index, float* memory);
  void own_gradients();
  void on_gradient_ready(ReadyHook hook) { hook_ = std::move(hook); }

  /// Enqueues one step, which `enqueue` describes; see LaunchMode.
  void launch(const std::function<void()>& enqueue);

  /// Copies a batch to the device. Errors: UsageError if it does not fit the shape.
  void load(std::span<const std::uint8_t> inputs, std::span<const std::uint8_t> targets,
            const LossFactors& factors);
  LossSums take_sums();

 private:
  void record(const std::function<void()>& enqueue);

  kolo::Device& device_;
  CudaModelOptions options_;
  Shape shape_;
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
  bool is_warm_ = false;  // a step has run, so everything that loads lazily is loaded
  double rows_ = 0.0;     // since the last take_sums
};

}  // namespace kolo::trainer::cuda
