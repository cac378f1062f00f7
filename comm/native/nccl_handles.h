#pragma once

// Conversions between NCCL's types and results and Kolo's, and the texts that ranks exchange before
// NCCL connects them. Only sources of kolo_nccl include this file.

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

/// Errors: UsageError if NCCL has no such type or operation.
ncclDataType_t to_nccl(DType dtype);
ncclRedOp_t to_nccl(ReduceOp op);

/// "2.28.9" for 22809.
std::string nccl_version_text(int version);

/// The library's version as NCCL encodes it. Errors: KoloError(kConfig) unless the library is
/// compatible with the header of this build.
int checked_nccl_version();

/// The error for `result` of `call`: kPeerLost if the network or a peer failed, kTimeout for
/// ncclInProgress, otherwise kInternal. The text has NCCL's reason and the last error that it
/// logged. `comm` may be null.
Error nccl_error(ncclResult_t result, ncclComm_t comm, std::string_view call);

/// Throws `nccl_error` unless `result` is ncclSuccess.
void require_nccl(ncclResult_t result, ncclComm_t comm, std::string_view call);

/// Logs an error instead of throwing, for code that must not throw.
void log_nccl(ncclResult_t result, std::string_view call) noexcept;

/// The library version of a rank, and from rank 0 also the communicator's id.
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

/// Errors: KoloError(kConfig) unless `version`, of rank `rank`, equals that of rank 0.
void check_same_nccl(const NcclIntroduction& first, int rank, int version);

}  // namespace kolo
