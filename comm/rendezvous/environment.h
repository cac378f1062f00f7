#pragma once

#include <functional>
#include <optional>
#include <string>

namespace kolo {

/// Looks up one environment variable; empty optional if it is not set. Tests pass their own.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// The environment of this process. Threads: any, as long as nobody changes the environment.
Environment process_environment();

}  // namespace kolo
