#pragma once

#include <functional>

namespace kolo {

/// Called now and then in the middle of long work, so that something else can go on. May be empty.
using Pause = std::function<void()>;

}  // namespace kolo
