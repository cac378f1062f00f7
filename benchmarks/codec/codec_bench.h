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
  int rounds = 15;  ///< Turns of each kernel; the median counts.
  std::string json;
};

/// Adds `kolo-bench codec` with its options.
void add_codec_bench(CLI::App& app, CodecOptions& options);

/// Measures what selecting, scoring and casting cost beside a kernel that moves the same bytes and
/// does nothing else, in turns, on one thread, and prints a row per kernel and size.
///
/// Returns: whether every result was right.
/// Errors:  KoloError(kConfig) for sizes that are no numbers, KoloError(kIo) if the file cannot be
///          written.
bool run_codec_bench(const CodecOptions& options);

}  // namespace kolo::bench
