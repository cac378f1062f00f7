#pragma once

// What NCCL's types and results are in Kolo's. Only sources of kolo_nccl include this.

#include <nccl.h>

#include <string>
#include <string_view>

#include "comm/base/dtype.h"
#include "comm/base/error.h"

namespace kolo {

/// Errors: UsageError if NCCL has no such type or operation.
ncclDataType_t to_nccl(DType dtype);
ncclRedOp_t to_nccl(ReduceOp op);

/// "2.28.9" of 22809.
std::string nccl_version_text(int version);

/// The library's version, as NCCL codes it. Errors: KoloError(kConfig) unless the library can serve
/// the header that this was compiled with.
int checked_nccl_version();

/// What `result` of `call` means: kPeerLost where the network or a peer failed, kTimeout for
/// ncclInProgress (what was waited for did not come), else kInternal. The text has NCCL's reason
/// and the last error it logged. `comm` may be null.
Error nccl_error(ncclResult_t result, ncclComm_t comm, std::string_view call);

/// Throws `nccl_error` unless `result` is ncclSuccess.
void require_nccl(ncclResult_t result, ncclComm_t comm, std::string_view call);

/// For code that must not throw: logs instead.
void log_nccl(ncclResult_t result, std::string_view call) noexcept;

}  // namespace kolo
