#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/options/options.h"

namespace kolo {

/// One option with its three names. `name` is the field; the environment variable and the flag are
/// derived from it.
struct OptionEntry {
  std::string name;   ///< "fusion_bytes"
  std::string value;  ///< The kind of value: "BYTES", "DTYPE", "MS", ...
  std::string help;
  /// Parses and checks `text`, then sets the field; on an error the field keeps its value. Errors:
  /// as in option_values.h.
  std::function<void(Options&, const std::string& text)> set;
  /// Returns the field's value as text, in the form that `set` parses.
  std::function<std::string(const Options&)> get;
  bool job_wide = false;  ///< Must be equal on all ranks.

  std::string flag() const;      ///< "--fusion-bytes"
  std::string variable() const;  ///< "KOLO_FUSION_BYTES"
};

/// Returns all options, in the order of `Options`. Only this table lists their names.
const std::vector<OptionEntry>& option_table();

/// Sets one option, which is `Options::given` from then on. Errors begin with `source`, the name
/// that the user used: "--fusion-bytes", "KOLO_FUSION_BYTES" or "options.fusion_bytes".
void set_option(const OptionEntry& entry, Options& options, std::string_view source,
                const std::string& text);

/// Checks all fields of `options` like flags and variables, by converting each value to text and
/// back. Errors: as `set_option`.
Options validated(Options options);

}  // namespace kolo
