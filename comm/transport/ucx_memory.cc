#include "comm/transport/ucx_memory.h"

#include <iterator>
#include <string>

#include "comm/base/log.h"

namespace kolo {

void UcxMemory::add(std::span<std::byte> memory) noexcept {
  if (memory.empty() || find(memory) != nullptr) return;
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = memory.data();
  params.length = memory.size();
  ucp_mem_h handle = nullptr;
  const ucs_status_t status = ucx_.ucp_mem_map(context_, &params, &handle);
  if (status != UCS_OK) {
    log::info(std::string("UCX does not map memory: ") + ucx_.ucs_status_string(status));
    return;
  }
  regions_.emplace(memory.data(), Region{.end = memory.data() + memory.size(), .handle = handle});
}

ucp_mem_h UcxMemory::find(std::span<const std::byte> range) const {
  const auto after = regions_.upper_bound(range.data());
  if (after == regions_.begin()) return nullptr;
  const Region& region = std::prev(after)->second;
  return range.data() + range.size() <= region.end ? region.handle : nullptr;
}

void UcxMemory::clear() noexcept {
  for (const auto& [begin, region] : regions_) ucx_.ucp_mem_unmap(context_, region.handle);
  regions_.clear();
}

}  // namespace kolo
