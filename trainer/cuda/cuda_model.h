#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "comm/base/dtype.h"
#include "comm/base/native_stream.h"
#include "comm/device/device.h"
#include "trainer/loss/loss.h"
#include "trainer/models/gpt.h"
#include "trainer/models/image_models.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer::cuda {

/// Arithmetic of products of float32 matrices; 16-bit ones always accumulate in float32.
enum class Float32Math : std::uint8_t { kExact, kTensorFloat32 };

/// How a step is launched: kernel by kernel, or as CUDA graphs recorded in the second step.
enum class LaunchMode : std::uint8_t { kEager, kGraph };

struct CudaModelOptions {
  /// Dtype of activations and of operands of products: kFloat32, kBFloat16 or kFloat16. Parameters,
  /// moments and parameter gradients are always float32.
  DType dtype = DType::kBFloat16;
  Float32Math float32_math = Float32Math::kExact;
  LaunchMode launch = LaunchMode::kEager;
  /// kGraph: a graph ends once it has completed this many bytes of gradients, whose hooks run after
  /// its launch. A smaller value overlaps more with communication, a larger one launches less.
  std::size_t milestone_bytes = std::size_t{4} << 20;
};

/// Factors of the gradients of a step.
struct LossFactors {
  float row_weight = 1.0f;  ///< Weight of each row's loss; see SoftmaxCrossEntropy.
  float loss_scale = 1.0f;  ///< float16: lifts gradients above underflow; not part of the sums.
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

  virtual ~CudaModel();
  CudaModel(const CudaModel&) = delete;
  CudaModel& operator=(const CudaModel&) = delete;

  /// Parameters on the host. Their values equal those of the device after construction, `upload_…`
  /// and `download_parameters`, and are stale otherwise. Their `gradient()` is unused.
  ParameterSet& parameters();
  const ParameterSet& parameters() const;
  const CudaModelOptions& options() const;

  /// Copies host values to the device, after a broadcast or a checkpoint. Blocks until they are
  /// there.
  void upload_parameters();
  /// Copies device values to the host, for a hash, a checkpoint or generated text. Blocks.
  void download_parameters();

  /// Memory of gradient `index`: parameters()[index].size() floats on the device. Errors:
  /// UsageError unless aligned to 16 bytes.
  void bind_gradient(std::size_t index, float* memory);
  float* gradient(std::size_t index) const;
  /// Gives every gradient memory owned by the model, for a job without a runtime.
  void own_gradients();

  /// Called once per gradient and `forward_backward`, starting with the last layer, right after the
  /// work that completes the gradient was enqueued: an event recorded on `stream()` inside the hook
  /// follows that work.
  void on_gradient_ready(ReadyHook hook);

  /// Enqueues forward pass, loss and backward pass. Gradients are overwritten and the loss is added
  /// to the sums.
  ///
  /// Shape:  as Model::forward and SoftmaxCrossEntropy::evaluate: `inputs` is a full batch;
  ///         `targets` may be shorter, and rows beyond it do not count. Both are copied before the
  ///         call returns.
  /// Before: all gradients are bound. Their last use was enqueued before on this stream, or this
  ///         stream waits for it.
  /// Errors: UsageError if sizes do not fit or a target is not a class.
  void forward_backward(std::span<const std::uint8_t> inputs, std::span<const std::uint8_t> targets,
                        const LossFactors& factors);

  /// Enqueues forward pass and loss, which is added to the sums.
  void evaluate(std::span<const std::uint8_t> inputs, std::span<const std::uint8_t> targets);

  /// The sums of all batches since the last call. Blocks until they are complete.
  LossSums take_sums();

  /// The stream of all work of this model.
  NativeStream stream() const;

  /// Shape of the batch for which the model was made.
  std::size_t input_bytes() const;
  std::size_t target_rows() const;

  class Core;
  /// For parts of trainer/cuda.
  Core& core() { return *core_; }

 protected:
  explicit CudaModel(std::unique_ptr<Core> core);

  /// Enqueues the network: from `inputs` on the device to logits, float32 [target_rows, classes].
  virtual const float* forward(const std::uint8_t* inputs) = 0;
  /// Enqueues the computation of all gradients from that of the logits, in options().dtype.
  virtual void backward(const void* logits_gradient, const std::uint8_t* inputs) = 0;

  std::unique_ptr<Core> core_;
};

/// Errors: UsageError for a dtype that is not one of the three, and for shapes that the model
///         cannot take; KoloError(kResources) if the device has too little memory.
std::unique_ptr<CudaModel> make_gpt(kolo::Device& device, const Gpt::Options& shape,
                                    const CudaModelOptions& options);
std::unique_ptr<CudaModel> make_mlp(kolo::Device& device, const ImageModelOptions& shape,
                                    const CudaModelOptions& options);
std::unique_ptr<CudaModel> make_lenet(kolo::Device& device, const ImageModelOptions& shape,
                                      const CudaModelOptions& options);

}  // namespace kolo::trainer::cuda
