#pragma once

// What ranks tell each other before NCCL connects them. Only sources of kolo_nccl include this.

#include <nccl.h>

#include <cstddef>
#include <cstring>
#include <span>

#include "comm/base/check.h"

namespace kolo {

/// The version of a rank's library, and of one rank the id of the communicator.
struct NcclIntroduction {
  int version = 0;
  ncclUniqueId id = {};

  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(this, 1)); }
  static NcclIntroduction from_bytes(std::span<const std::byte> bytes) {
    NcclIntroduction introduction;
    ensure(bytes.size() == sizeof(introduction), "a rank introduced itself in another way");
    std::memcpy(&introduction, bytes.data(), sizeof(introduction));
    return introduction;
  }
};

/// Errors: KoloError(kConfig) unless `version`, that of `rank`, is the one of rank 0.
void check_same_nccl(const NcclIntroduction& first, int rank, int version);

}  // namespace kolo
