// Compares packing and unpacking of many tensors in one launch with one copy per tensor and CUB.

#include <algorithm>
#include <numeric>

#include "benchmarks/gpu/gpu_bench.h"
#include "comm/device/cuda_error.h"
#include "comm/device/kernels/kernels.h"
#include "fusion/chunk_table.h"

namespace kolo::bench {
namespace {

/// A set of float32 tensors. Its sizes are in elements.
struct TensorSet {
  std::string name;
  std::vector<std::size_t> counts;
};

/// Returns the sizes of a GPT's 124 million parameters: embeddings, 12 blocks, last norm.
std::vector<std::size_t> gpt_counts() {
  constexpr std::size_t kWidth = 768;
  std::vector<std::size_t> counts = {50257 * kWidth, 1024 * kWidth};
  for (int block = 0; block < 12; ++block) {
    for (const std::size_t rows :
         {std::size_t{1}, std::size_t{1}, 3 * kWidth, std::size_t{3}, kWidth, std::size_t{1},
          std::size_t{1}, std::size_t{1}, 4 * kWidth, std::size_t{4}, 4 * kWidth, std::size_t{1}}) {
      counts.push_back(rows * kWidth);
    }
  }
  counts.insert(counts.end(), {kWidth, kWidth});
  return counts;
}

std::vector<TensorSet> tensor_sets(std::size_t bytes) {
  const auto equal = [](std::string name, std::size_t tensors, std::size_t tensor_bytes) {
    return TensorSet{std::move(name), std::vector(tensors, tensor_bytes / sizeof(float))};
  };
  const auto filling = [&](std::string name, std::size_t tensor_bytes) {
    return equal(std::move(name), std::max<std::size_t>(1, bytes / tensor_bytes), tensor_bytes);
  };
  return {equal("300 x 4 KiB", 300, 4 << 10), equal("300 x 64 KiB", 300, 64 << 10),
          filling("4 KiB each", 4 << 10),     filling("16 KiB each", 16 << 10),
          filling("64 KiB each", 64 << 10),   filling("1 MiB each", 1 << 20),
          {"GPT 124 M", gpt_counts()}};
}

/// A set of tensors and their bucket, on the device and as copies in host memory.
class CopyCase {
 public:
  CopyCase(GpuBench& bench, const TensorSet& set, DType bucket_dtype)
      : bench_(bench), set_(set), dtype_(bucket_dtype) {
    for (const std::size_t count : set.counts) {
      offsets_.push_back(count_);
      count_ += (count + 63) / 64 * 64;  // aligned as in a bucket
    }
    const std::vector<float> values = random_floats(count_, 1);
    const auto bytes = std::as_bytes(std::span(values));
    tensors_.assign(bytes.begin(), bytes.end());
    bucket_.resize(count_ * size_of(dtype_));
    device_tensors_ = bench.upload(tensors_);
    device_bucket_ = bench.upload(bucket_);
    host_chunks_ = chunks(tensors_.data());
    const auto for_device = chunks(device_tensors_.data());
    device_chunks_ = bench.upload(std::as_bytes(std::span(for_device)));
    flag_ = bench.upload(std::vector<std::byte>(sizeof(std::uint32_t)));
  }

  std::size_t elements() const { return std::reduce(set_.counts.begin(), set_.counts.end()); }

  KernelTime measure(CopyDirection direction, double scale, bool looks) {
    BatchedCopy copy{
        .direction = direction,
        .chunks = {reinterpret_cast<const CopyChunk*>(device_chunks_.data()), host_chunks_.size()},
        .bucket = device_bucket_.data(),
        .tensor_dtype = DType::kFloat32,
        .bucket_dtype = dtype_,
        .scale = scale};
    if (looks) copy.non_finite = reinterpret_cast<std::uint32_t*>(flag_.data());
    const bool packs = direction == CopyDirection::kPack;
    KernelTime result{.kernel = std::string(packs ? "pack to " : "unpack from ") +
                                std::string(to_string(dtype_)) +
                                (looks ? " + scale + flag, " : ", ") + set_.name,
                      .bytes = elements() * (sizeof(float) + size_of(dtype_)),
                      .us = bench_.median_us(
                          [&] { bench_.device().kernels().copy_batched(bench_.stream(), copy); })};
    copy.chunks = host_chunks_;
    copy.bucket = bucket_.data();
    copy.non_finite = nullptr;
    copy_batched_on_host(copy);
    result.wrong = packs ? count_wrong(bench_.download(device_bucket_, bucket_.size()), bucket_)
                         : count_wrong(bench_.download(device_tensors_, tensors_.size()), tensors_);
    return result;
  }

  void add_peers(KernelTime& result) {
    const auto stream = static_cast<cudaStream_t>(bench_.native());
    std::vector<const void*> sources;
    std::vector<void*> targets;
    std::vector<std::size_t> sizes;
    for (std::size_t i = 0; i < offsets_.size(); ++i) {
      sources.push_back(device_tensors_.data() + offsets_[i] * sizeof(float));
      targets.push_back(device_bucket_.data() + offsets_[i] * sizeof(float));
      sizes.push_back(set_.counts[i] * sizeof(float));
    }
    const auto copy_each = [&] {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        require_cuda(
            cudaMemcpyAsync(targets[i], sources[i], sizes[i], cudaMemcpyDeviceToDevice, stream),
            "cudaMemcpyAsync");
      }
    };
    constexpr int kFewIterations = 5;  // copies one by one take long and vary little
    result.peers.push_back(
        {"cudaMemcpyAsync per tensor", bench_.median_us(copy_each, kFewIterations)});
    const DeviceMemory device_sources = bench_.upload(std::as_bytes(std::span(sources)));
    const DeviceMemory device_targets = bench_.upload(std::as_bytes(std::span(targets)));
    const DeviceMemory device_sizes = bench_.upload(std::as_bytes(std::span(sizes)));
    const CubCall cub = cub_batched_copy(
        bench_.device(), reinterpret_cast<const void* const*>(device_sources.data()),
        reinterpret_cast<void* const*>(device_targets.data()),
        reinterpret_cast<const std::size_t*>(device_sizes.data()),
        static_cast<std::uint32_t>(sizes.size()));
    result.peers.push_back(
        {"cub::DeviceMemcpy::Batched", bench_.median_us([&] { cub(bench_.native()); })});
  }

 private:
  std::vector<CopyChunk> chunks(std::byte* tensors) const {
    std::vector<Segment> segments;
    for (std::size_t i = 0; i < offsets_.size(); ++i) {
      segments.push_back({.data = tensors + offsets_[i] * sizeof(float),
                          .dtype = DType::kFloat32,
                          .count = set_.counts[i],
                          .offset = offsets_[i]});
    }
    return ChunkTable(segments, dtype_, count_, {}).runs()[0].chunks;
  }

  GpuBench& bench_;
  const TensorSet& set_;
  const DType dtype_;
  std::size_t count_ = 0;             // elements of the bucket
  std::vector<std::size_t> offsets_;  // of tensors, in the bucket and in their own memory
  std::vector<std::byte> tensors_, bucket_;
  std::vector<CopyChunk> host_chunks_;
  DeviceMemory device_tensors_, device_bucket_, device_chunks_, flag_;
};

}  // namespace

std::vector<KernelTime> measure_batched_copies(GpuBench& bench) {
  std::vector<KernelTime> results;
  const std::vector<TensorSet> sets = tensor_sets(bench.bytes());
  for (const TensorSet& set : sets) {
    CopyCase fp32(bench, set, DType::kFloat32);
    results.push_back(fp32.measure(CopyDirection::kPack, 1.0, false));
    fp32.add_peers(results.back());
    results.push_back(fp32.measure(CopyDirection::kUnpack, 1.0, false));
  }
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const TensorSet& set : std::span(sets).last(2)) {
      CopyCase cast(bench, set, dtype);
      results.push_back(cast.measure(CopyDirection::kPack, 0.25, false));
      results.push_back(cast.measure(CopyDirection::kUnpack, 4.0, true));
    }
  }
  return results;
}

}  // namespace kolo::bench
