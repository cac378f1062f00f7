#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace kolo::bench {

struct CodecOptions {
  std::vector<std::string> sizes = {"64K", "256K", "4M", "64M"};  ///< Bytes of float32 a tensor.
  std::vector<double> densities = {0.01, 0.001};
  int rounds = 15;  ///< Rounds of each kernel; the median counts.
  std::string json;
};

/// Adds `kolo-bench codec` with its options.
void add_codec_bench(CLI::App& app, CodecOptions& options);

/// Measures selection, scoring and casts beside a kernel that only moves the same bytes,
/// alternating on one thread, and prints a row per kernel and size.
///
/// Returns: true if every result was right.
/// Errors:  KoloError(kConfig) for sizes that are not numbers, KoloError(kIo) if the file cannot be
///          written.
bool run_codec_bench(const CodecOptions& options);

}  // namespace kolo::bench
