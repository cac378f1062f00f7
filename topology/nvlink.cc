#include "topology/nvlink.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

namespace kolo {
namespace {

int count_ends(const std::vector<NvLinkEnd>& ends, NvLinkEnd::Kind kind,
               std::string_view address = {}) {
  return static_cast<int>(std::count_if(ends.begin(), ends.end(), [&](const NvLinkEnd& end) {
    return end.kind == kind && (address.empty() || end.address == address);
  }));
}

}  // namespace

std::string pci_address(std::string_view text) {
  constexpr std::size_t kDomainDigits = 4;
  const std::size_t colon = text.find(':');
  if (colon != std::string_view::npos && colon > kDomainDigits) {
    // More digits than four are needed only for domains that hold no GPU.
    const std::string_view surplus = text.substr(0, colon - kDomainDigits);
    if (surplus.find_first_not_of('0') == std::string_view::npos) {
      text.remove_prefix(surplus.size());
    }
  }
  std::string address(text);
  std::transform(address.begin(), address.end(), address.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return address;
}

void add_nvlinks(GpuInventory& inventory, const std::vector<std::vector<NvLinkEnd>>& ends_of_gpu) {
  const std::size_t count = inventory.gpus.size();
  for (std::size_t a = 0; a < count; ++a) {
    for (std::size_t b = 0; b < count; ++b) {
      if (a == b) continue;
      GpuLink& link = inventory.links.at(a).at(b);
      link.nvlinks =
          count_ends(ends_of_gpu.at(a), NvLinkEnd::Kind::kGpu, inventory.gpus[b].address);
      if (link.nvlinks > 0) continue;
      link.nvlinks = std::min(count_ends(ends_of_gpu.at(a), NvLinkEnd::Kind::kSwitch),
                              count_ends(ends_of_gpu.at(b), NvLinkEnd::Kind::kSwitch));
      link.through_switch = link.nvlinks > 0;
    }
  }
}

}  // namespace kolo
