#include "trainer/cuda/graph/step_graph.h"

#include <utility>

#include "comm/device/cuda_error.h"

namespace kolo::trainer::cuda {
namespace {

cudaStream_t native(NativeStream stream) { return static_cast<cudaStream_t>(stream.handle); }

// Ends a failed capture and drops its contents.
void abandon_capture(cudaStream_t stream) noexcept {
  cudaGraph_t graph = nullptr;
  static_cast<void>(cudaStreamEndCapture(stream, &graph));
  static_cast<void>(cudaGetLastError());
  if (graph != nullptr) GraphTraits::close(graph);
}

}  // namespace

void GraphTraits::close(Value graph) noexcept {
  log_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

void GraphExecTraits::close(Value graph) noexcept {
  log_cuda(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
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
  const UniqueHandle<GraphTraits> graph(captured);
  cudaGraphExec_t executable = nullptr;
  require_cuda(cudaGraphInstantiate(&executable, captured, 0), "cudaGraphInstantiate");
  segments_.push_back(
      {.graph = UniqueHandle<GraphExecTraits>(executable), .ready = std::exchange(ready_, {})});
}

void StepGraph::replay(const Hook& hook) {
  for (const Segment& segment : segments_) {
    require_cuda(cudaGraphLaunch(segment.graph.get(), native(stream_)), "cudaGraphLaunch");
    for (const std::size_t index : segment.ready) {
      if (hook) hook(index);
    }
  }
}

}  // namespace kolo::trainer::cuda
