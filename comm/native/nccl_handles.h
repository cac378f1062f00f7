#pragma once

// Conversions of types and results between Kolo and NCCL, and the data that ranks exchange before
// they connect. Only sources of the CMake target kolo_nccl may include this file.

#include <nccl.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "comm/base/check.h"
#include "comm/base/error.h"
#include "comm/base/reduction.h"

namespace kolo {

/// Converts a dtype or operation to NCCL's. Errors: UsageError if NCCL has no equivalent.
ncclDataType_t to_nccl(DType dtype);
ncclRedOp_t to_nccl(ReduceOp op);

/// Formats a version number of NCCL: "2.28.9" for 22809.
std::string nccl_version_text(int version);

/// Returns the version of the loaded NCCL library, as NCCL encodes it. Errors: KoloError(kConfig)
/// unless the library has the major version of this build's header.
int checked_nccl_version();

/// Makes the error for `result` of `call`: kPeerLost if the network or a peer failed, kTimeout for
/// ncclInProgress, otherwise kInternal. The text contains NCCL's reason and its last error. `comm`
/// may be null.
Error nccl_error(ncclResult_t result, ncclComm_t comm, std::string_view call);

/// Throws `nccl_error` unless `result` is ncclSuccess.
void require_nccl(ncclResult_t result, ncclComm_t comm, std::string_view call);

/// Logs `nccl_error` unless `result` is ncclSuccess, for code that must not throw.
void log_nccl(ncclResult_t result, std::string_view call) noexcept;

/// The data that a rank sends before it connects: its library version and, from the rank that made
/// the communicator's id, the id.
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

/// Throws KoloError(kConfig) unless `version`, of rank `rank`, equals that of rank 0 (`first`).
void check_same_nccl(const NcclIntroduction& first, int rank, int version);

}  // namespace kolo
