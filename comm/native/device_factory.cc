#include "comm/native/device_factory.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "comm/base/error.h"

#if KOLO_CUDA
#include "comm/base/check.h"
#include "comm/device/cuda_device.h"
#endif

namespace kolo {
namespace {

KoloError config_error(std::string what) {
  return KoloError(Error{.code = ErrorCode::kConfig, .what = std::move(what)});
}

/// The number in "cuda:INDEX"; empty for "cuda".
std::optional<int> parse_index(std::string_view name) {
  constexpr std::string_view kKind = "cuda";
  if (name == kKind) return std::nullopt;
  if (name.starts_with(kKind) && name.size() > kKind.size() + 1 && name[kKind.size()] == ':') {
    const std::string_view digits = name.substr(kKind.size() + 1);
    const char* const end = digits.data() + digits.size();
    int index = 0;
    const auto parsed = std::from_chars(digits.data(), end, index);
    if (parsed.ec == std::errc() && parsed.ptr == end && index >= 0) return index;
  }
  throw config_error(fmt::format("there is no device '{}': name 'cuda' or 'cuda:INDEX'", name));
}

}  // namespace

bool is_built_with_cuda() { return KOLO_CUDA != 0; }

#if KOLO_CUDA

std::unique_ptr<Device> open_device(const std::string& name, int local_rank) {
  const std::optional<int> named = parse_index(name);
  // Streams that share a hardware queue wait for each other; see comm/device/README.md. CUDA reads
  // this once, when the process first uses a device.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const CudaAvailability found = find_cuda_devices();
  if (found.device_count == 0) {
    throw config_error(fmt::format("device '{}': no CUDA device: {}", name, found.reason));
  }
  check(local_rank >= 0, "a rank's number on its node is not negative");
  const int index = named.value_or(local_rank % found.device_count);
  if (index >= found.device_count) {
    throw config_error(fmt::format("device '{}': this process sees {} CUDA devices, counted from 0",
                                   name, found.device_count));
  }
  return std::make_unique<CudaDevice>(index);
}

std::string cuda_availability() {
  const CudaAvailability found = find_cuda_devices();
  if (found.device_count == 0) {
    return fmt::format("CUDA {}, no device: {}", found.runtime, found.reason);
  }
  return fmt::format("CUDA {}, {} device{}", found.runtime, found.device_count,
                     found.device_count == 1 ? "" : "s");
}

#else

std::unique_ptr<Device> open_device(const std::string& name, int) {
  parse_index(name);
  throw config_error(fmt::format(
      "device '{}': this build of Kolo has no CUDA; configure it with -DKOLO_WITH_CUDA=ON", name));
}

std::string cuda_availability() { return "not built with CUDA"; }

#endif

}  // namespace kolo
