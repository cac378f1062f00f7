#pragma once

#include <map>
#include <memory>
#include <string>

#include "runtime/api/kolo.h"

namespace gloo {
class Context;
namespace transport {
class Device;
}  // namespace transport
}  // namespace gloo

namespace kolo::bench {

/// Gloo's connections among all ranks. Each name has its own: when Gloo's function and its older
/// classes shared connections, 4 ranks hung inside Gloo at 16 MiB and more.
class GlooContexts {
 public:
  /// `runtime` outlives it: ranks exchange addresses through it. Errors: those of
  /// `network_address`.
  explicit GlooContexts(Runtime& runtime);

  /// The connections of this name. Collective at the first use of a name.
  std::shared_ptr<gloo::Context> of(const std::string& name);

 private:
  Runtime& runtime_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::map<std::string, std::shared_ptr<gloo::Context>> contexts_;  // Gloo shares them.
};

}  // namespace kolo::bench
