#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "comm/base/native_stream.h"
#include "comm/base/unique_handle.h"

namespace kolo::trainer::cuda {

struct GraphTraits {
  using Value = cudaGraph_t;
  static Value invalid() noexcept { return nullptr; }
  static void close(Value graph) noexcept;
};
struct GraphExecTraits {
  using Value = cudaGraphExec_t;
  static Value invalid() noexcept { return nullptr; }
  static void close(Value graph) noexcept;
};

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
    UniqueHandle<GraphExecTraits> graph;
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

}  // namespace kolo::trainer::cuda
