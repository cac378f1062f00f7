#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "topology/gpu_topology.h"

namespace kolo {

/// The management library of NVIDIA's driver (NVML), an optional library loaded at run time.
///
/// Threads: one at a time.
class Nvml {
 public:
  /// Returns nothing if the library, one of its functions or the driver is missing.
  static std::optional<Nvml> load(const char* library = "libnvidia-ml.so.1");

  Nvml(Nvml&&) noexcept;
  Nvml& operator=(Nvml&&) noexcept;
  ~Nvml();

  /// Returns the remote ends of the active NVLinks of the GPU at this PCI address.
  std::vector<NvLinkEnd> nvlinks(const std::string& address) const;

 private:
  struct Library;
  explicit Nvml(std::unique_ptr<const Library> library);

  std::unique_ptr<const Library> library_;
};

}  // namespace kolo
