#pragma once

#include <functional>

namespace kolo {

/// What long work calls now and then, so that something else can go on; may be empty.
using Pause = std::function<void()>;

}  // namespace kolo
