#include <cstdint>
#include <type_traits>

#include "comm/device/kernels/kernels.h"
#include "comm/device/kernels/launch.cuh"

namespace kolo {
namespace {

constexpr int kThreads = 32;

/// A thread block encodes one block of values at a time. All its threads compute the header, from
/// the same addresses, so that sums have the order of the processor.
template <typename Code>
__global__ void __launch_bounds__(kThreads) encode(Quantisation task) {
  if (*task.non_finite != 0) return;
  for (std::size_t b = blockIdx.x; b < task.block_count; b += gridDim.x) {
    const CodedBlock block = task.blocks[b];
    float* const values = task.values + block.first;
    std::uint8_t* const to = task.out + block.offset;
    const std::uint32_t header = Code::header(values, block.count);
    __syncthreads();  // All threads have read the values, which change now.
    const Code code(header, task.threshold);
    const codes::Dither dither(task.seed, block.element);
    if (Code::kHeader > 0 && threadIdx.x == 0) to[0] = static_cast<std::uint8_t>(header);
    const std::size_t bytes = codes::bytes<Code>(block.count) - Code::kHeader;
    for (std::size_t j = threadIdx.x; j < bytes; j += kThreads) {
      to[Code::kHeader + j] =
          static_cast<std::uint8_t>(codes::take(code, values, block.count, j, dither));
    }
  }
}

}  // namespace

void launch_quantise(const Quantisation& task, void* cuda_stream) {
  codes::visit(task.kind, [&]<typename Code>(std::type_identity<Code>) {
    gpu::launch("encoding of values", encode<Code>, kThreads, task.block_count,
                static_cast<cudaStream_t>(cuda_stream), task);
  });
}

void load_codes() {
  using codes::Kind;
  for (const Kind kind : {Kind::kInt8, Kind::kFp8, Kind::kTwoBit, Kind::kSign}) {
    launch_quantise({.kind = kind}, nullptr);
  }
}

}  // namespace kolo
