#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <map>
#include <span>

#include "comm/transport/ucx_library.h"

namespace kolo {

/// Memory that messages come from and go to again and again, made known to the network once: where
/// cards read memory by themselves it is pinned here and not at the first message. Over TCP there
/// is nothing to pin.
///
/// Before: nothing is in flight in what `clear` and the destructor forget. Threads: one.
class UcxMemory {
 public:
  UcxMemory(const UcxLibrary& ucx, ucp_context_h context) : ucx_(ucx), context_(context) {}
  ~UcxMemory() { clear(); }
  UcxMemory(const UcxMemory&) = delete;
  UcxMemory& operator=(const UcxMemory&) = delete;

  /// Where UCX refuses, messages go on without a handle: it then pins what it needs by itself.
  void add(std::span<std::byte> memory) noexcept;

  /// The handle of the added memory that begins last before `range`, if it holds the range; null
  /// otherwise. Cost: logarithmic.
  ucp_mem_h find(std::span<const std::byte> range) const;

  void clear() noexcept;

 private:
  struct Region {
    const std::byte* end = nullptr;
    ucp_mem_h handle = nullptr;
  };

  const UcxLibrary& ucx_;
  ucp_context_h context_;
  std::multimap<const std::byte*, Region> regions_;  ///< By beginning; may overlap.
};

}  // namespace kolo
