#pragma once

#include <stdexcept>

namespace kolo::emulator {

/// Thrown when a kernel does something that would hang, trap or give wrong values on a GPU. The
/// text names the place in the kernel's source.
class Fault : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace kolo::emulator
