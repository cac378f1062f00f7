#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/options/options.h"

namespace kolo {

/// One option under its three names. `name` is the field; the environment variable and the flag
/// follow from it.
struct OptionEntry {
  std::string name;   ///< "fusion_bytes"
  std::string value;  ///< The kind of value: "BYTES", "DTYPE", "MS", ...
  std::string help;
  /// Parses and checks `text`, then sets the field, or leaves it as it is. Errors: as in
  /// option_values.h.
  std::function<void(Options&, const std::string& text)> set;
  /// The field as `set` takes it.
  std::function<std::string(const Options&)> get;
  bool job_wide = false;  ///< Must be equal on all ranks.

  std::string flag() const;      ///< "--fusion-bytes"
  std::string variable() const;  ///< "KOLO_FUSION_BYTES"
};

/// All options, in the order of `Options`. The one place that knows their names.
const std::vector<OptionEntry>& option_table();

/// Sets one option. Errors begin with `source`, under which the user knows the option:
/// "--fusion-bytes", "KOLO_FUSION_BYTES" or "options.fusion_bytes".
void set_option(const OptionEntry& entry, Options& options, std::string_view source,
                const std::string& text);

/// `options` after the checks that flags and variables pass. Each value comes back in the form that
/// its text gives it. Errors: as of `set_option`.
Options validated(Options options);

}  // namespace kolo
