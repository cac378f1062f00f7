#include "trainer/loop/learner.h"

#include <cuda_runtime_api.h>

#include <chrono>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/base/native_stream.h"
#include "comm/device/cuda_device.h"
#include "comm/device/cuda_error.h"
#include "comm/device/cuda_stream.h"
#include "comm/device/device.h"
#include "trainer/catalog.h"
#include "trainer/checkpoint/state_visitor.h"
#include "trainer/config.h"
#include "trainer/cuda/cuda_model.h"
#include "trainer/cuda/updater.h"
#include "trainer/errors.h"
#include "trainer/loop/parameter_exchange.h"
#include "trainer/loop/rank_means.h"
#include "trainer/models/gpt.h"
#include "trainer/models/image_models.h"
#include "trainer/parameter_set.h"
#include "trainer/precision/precision.h"
#include "trainer/tasks/task.h"

namespace kolo::trainer::cuda {
namespace {

// Makes an event that records a time stamp, unlike those of make_cuda_event.
CudaEventHandle make_timed_event() {
  cudaEvent_t event = nullptr;
  require_cuda(cudaEventCreate(&event), "cudaEventCreate");
  return CudaEventHandle(event);
}

int index_of(const kolo::Device& device) {
  const auto* cuda_device = dynamic_cast<const CudaDevice*>(&device);
  check(cuda_device != nullptr, "a stopwatch of CUDA streams needs a CUDA device");
  return cuda_device->index();
}

using Maker = std::unique_ptr<CudaModel> (*)(kolo::Device&, const ModelSetting&,
                                             const CudaModelOptions&);

struct Entry {
  std::string_view name;
  Maker make;
};

template <DescribeNetwork kDescribe>
std::unique_ptr<CudaModel> make_image_model(kolo::Device& device, const ModelSetting& setting,
                                            const CudaModelOptions& options) {
  return make_image_model(device, kDescribe, image_model_options(setting), options);
}

/// All models on a CUDA device. To add one, add an entry here.
constexpr Entry kModels[] = {
    {"mlp", make_image_model<Mlp::network>},
    {"lenet", make_image_model<Lenet::network>},
    {"convnet", make_image_model<Convnet::network>},
    {"resnet20", make_image_model<Resnet::network20>},
    {"resnet18", make_image_model<Resnet::network18>},
    {"gpt",
     [](kolo::Device& device, const ModelSetting& setting, const CudaModelOptions& options) {
       return make_gpt(device, Gpt::options(setting), options);
     }},
};

std::unique_ptr<CudaModel> make_model(std::string_view name, kolo::Device& device,
                                      const ModelSetting& setting,
                                      const CudaModelOptions& options) {
  for (const Entry& entry : kModels) {
    if (entry.name == name) return entry.make(device, setting, options);
  }
  throw_config_error(
      fmt::format("--device cuda: there is no model {} for it: choose {}, or --device cpu", name,
                  fmt::join(model_names(), ", ")));
}

kolo::Device& device_of(const Runtime& runtime) {
  check(runtime.device() != nullptr, "training on a device needs a runtime that has one");
  return *runtime.device();
}

AttentionMode attention_mode(const Config& config) {
  if (config.attention == "auto") return AttentionMode::kAuto;
  if (config.model != "gpt") {
    throw_config_error(fmt::format("--attention {}: needs --model gpt", config.attention));
  }
  return config.attention == "fused" ? AttentionMode::kFused : AttentionMode::kProducts;
}

CudaModelOptions model_options(const Config& config, const Runtime& runtime) {
  CudaModelOptions options;
  options.dtype = parse_precision(config.precision);
  options.launch = config.cuda_graph ? LaunchMode::kGraph : LaunchMode::kEager;
  options.attention = attention_mode(config);
  options.plan = parameter_plan(config, runtime);
  return options;
}

/// Measures the time between two points of a stream with the device's clock.
///
/// Threads: one. `stream` belongs to `device`, a CUDA device; both outlive this object.
/// Errors:  those of CUDA as KoloError(kInternal).
class StreamStopwatch {
 public:
  StreamStopwatch(const kolo::Device& device, NativeStream stream) {
    const int index = index_of(device);
    const CudaDeviceGuard guard(index);
    events_ = std::make_unique<Events>(Events{.device = index,
                                              .stream = static_cast<cudaStream_t>(stream.handle),
                                              .begin = make_timed_event(),
                                              .end = make_timed_event()});
  }
  ~StreamStopwatch() {
    close_on(events_->device, [this] { events_.reset(); });
  }
  StreamStopwatch(const StreamStopwatch&) = delete;
  StreamStopwatch& operator=(const StreamStopwatch&) = delete;

  /// Sets the first point after all work enqueued so far. Never blocks.
  void start() {
    const CudaDeviceGuard guard(events_->device);
    require_cuda(cudaEventRecord(events_->begin.get(), events_->stream), "cudaEventRecord");
  }
  /// Sets the second point after all work enqueued so far. Never blocks.
  void stop() {
    const CudaDeviceGuard guard(events_->device);
    require_cuda(cudaEventRecord(events_->end.get(), events_->stream), "cudaEventRecord");
  }
  /// The time between both points. Before: the stream has passed the second point.
  std::chrono::nanoseconds elapsed() const {
    const CudaDeviceGuard guard(events_->device);
    float milliseconds = 0.0f;
    require_cuda(cudaEventElapsedTime(&milliseconds, events_->begin.get(), events_->end.get()),
                 "cudaEventElapsedTime");
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<float, std::milli>(milliseconds));
  }

 private:
  struct Events {
    int device;
    cudaStream_t stream;
    CudaEventHandle begin;
    CudaEventHandle end;
  };
  std::unique_ptr<Events> events_;
};

/// A learner on the runtime's CUDA device, for any precision.
///
/// Each gradient is marked ready with an event after the kernel that completes it, and the model's
/// stream waits for the averages. The device decides whether to skip a step. The host waits for the
/// device once per step, for the report of the update.
class CudaLearner final : public Learner, private Stateful {
 public:
  CudaLearner(const Config& config, Runtime& runtime, const Task& task)
      : model_(make_model(config.model, device_of(runtime), model_setting(config, task),
                          model_options(config, runtime))),
        updater_(make_updater(config, runtime, model_->device_parameters())),
        means_(runtime, model_->parameters()),
        averages_(device_of(runtime), model_->stream()),
        values_(device_of(runtime), model_->stream()) {
    values_.start();
    values_.stop();
    broadcast_values(runtime, model_->parameters());
    model_->upload_parameters();
    model_->accumulate(config.accumulation);
    model_->on_gradient_ready([this](std::size_t index) { updater_->ready(index); });
  }

  std::size_t parameter_count() const override { return model_->parameters().element_count(); }
  PlanSummary plan() const override { return updater_->plan(); }
  std::vector<CompressionStats> compression_stats() const override {
    return updater_->compression_stats();
  }
  float loss_scale() const override { return updater_->loss_scale(); }

  Stateful& state() override { return *this; }

  void forward_backward(const Batch& batch, float row_weight) override {
    model_->forward_backward(batch.inputs[0], batch.targets[0],
                             {.row_weight = row_weight, .loss_scale = updater_->loss_scale()});
  }
  void await_averages() override {
    averages_.start();
    updater_->await_averages();
    averages_.stop();
  }
  UpdateVerdict clip() override { return updater_->clip(); }
  StepReport update(float lr, const UpdateVerdict& verdict) override {
    StepReport report = updater_->update(lr, verdict);
    // The device may not have passed this step's wait for values, but that of the step before.
    report.exposed = averages_.elapsed() + values_.elapsed();
    values_.start();
    updater_->await_values();
    values_.stop();
    return report;
  }
  void begin_evaluation() override {
    model_->download_buffers();
    means_.begin(false);
    model_->upload_buffers();
  }
  void end_evaluation() override {
    means_.end();
    model_->upload_buffers();
  }
  void evaluate(const Batch& batch) override {
    model_->evaluate(batch.inputs[0], batch.targets[0]);
  }
  LossSums take_sums() override {
    sums_ += model_->take_sums();
    return std::exchange(sums_, {});
  }
  const ParameterSet& parameters() override {
    model_->download_parameters();
    return model_->parameters();
  }

 private:
  void visit_state(StateVisitor& visitor) override {
    model_->download_parameters();
    means_.visit_state(visitor, false);
    if (visitor.is_restoring()) model_->upload_parameters();
    sums_ += model_->take_sums();
    visitor.part_of_sum("loss", sums_.loss);
    visitor.part_of_sum("score", sums_.score);
    visitor.part_of_sum("rows", sums_.rows);
    updater_->visit_state(visitor);
  }

  std::unique_ptr<CudaModel> model_;
  std::unique_ptr<DeviceUpdater> updater_;
  RankMeans means_;  // of the buffers
  LossSums sums_;    // of batches before the last visit of the state
  // These measure how long the model's stream waits for averages, and for values of other ranks.
  StreamStopwatch averages_, values_;
};

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kModels) names.emplace_back(entry.name);
  return names;
}

std::unique_ptr<Learner> make_learner(const Config& config, Runtime& runtime, const Task& task) {
  return std::make_unique<CudaLearner>(config, runtime, task);
}

}  // namespace kolo::trainer::cuda
