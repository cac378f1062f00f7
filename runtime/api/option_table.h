#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/api/options.h"

namespace kolo {

/// One option under its three names. `name` is the field; the environment variable and the flag
/// follow from it.
struct OptionEntry {
  std::string name;   ///< "fusion_bytes"
  std::string value;  ///< What it takes: "BYTES", "DTYPE", "MS", ...
  std::string help;
  /// Parses `text` into the field. Errors: KoloError(kConfig) naming the text.
  std::function<void(Options&, const std::string& text)> set;
  /// The field as `set` takes it.
  std::function<std::string(const Options&)> get;
  bool job_wide = false;  ///< Must be equal on all ranks.

  std::string flag() const;      ///< "--fusion-bytes"
  std::string variable() const;  ///< "KOLO_FUSION_BYTES"
};

/// All options, in the order of `Options`. The one place that knows their names.
const std::vector<OptionEntry>& option_table();

/// "4M" -> 4194304: a number with an optional suffix K, M or G (powers of 1024).
/// Errors: KoloError(kConfig).
std::size_t parse_bytes(const std::string& text);

}  // namespace kolo
