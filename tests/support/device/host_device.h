#pragma once

#include "tests/support/device/host_device_base.h"

namespace kolo {

/// Host memory that behaves like an accelerator. Every stream has a thread of its own and really
/// runs beside its caller, so a forgotten wait gives a wrong result or a report of ThreadSanitizer.
/// Memory is poisoned.
class HostDevice final : public HostDeviceBase {
 public:
  std::string describe() const override { return "host threads"; }

 private:
  std::unique_ptr<Stream> open_stream() override;
};

}  // namespace kolo
