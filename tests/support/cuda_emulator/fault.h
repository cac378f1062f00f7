#pragma once

#include <stdexcept>

namespace kolo::emulator {

/// A kernel did what a GPU would punish with a hang, a trap or wrong values. The text names the
/// place in the kernel's source.
class Fault : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace kolo::emulator
