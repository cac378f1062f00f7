#include "comm/native/nccl_handles.h"

#include <fmt/format.h>

#include "comm/base/log.h"
#include "comm/native/nccl_library.h"

namespace kolo {

ncclDataType_t to_nccl(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return ncclFloat32;
    case DType::kFloat64:
      return ncclFloat64;
    case DType::kFloat16:
      return ncclFloat16;
    case DType::kBFloat16:
      return ncclBfloat16;
    case DType::kInt32:
      return ncclInt32;
    case DType::kInt64:
      return ncclInt64;
    case DType::kUInt8:
      return ncclUint8;
    case DType::kInt8:
      return ncclInt8;
    default:
      break;
  }
  throw UsageError(fmt::format("NCCL has no {}", to_string(dtype)));
}

ncclRedOp_t to_nccl(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ncclSum;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kProd:
      return ncclProd;
    case ReduceOp::kAverage:
      return ncclAvg;
    default:
      break;
  }
  throw UsageError(fmt::format("NCCL has no {}", to_string(op)));
}

std::string nccl_version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

int checked_nccl_version() {
  int version = 0;
  require_nccl(nccl().ncclGetVersion(&version), nullptr, "ncclGetVersion");
  if (version / 10000 != NCCL_MAJOR) {
    throw KoloError(
        {.code = ErrorCode::kConfig,
         .what = fmt::format("this build of Kolo is for NCCL {}, but the library that "
                             "was loaded is {}",
                             nccl_version_text(NCCL_VERSION_CODE), nccl_version_text(version))});
  }
  return version;
}

Error nccl_error(ncclResult_t result, ncclComm_t comm, std::string_view call) {
  if (result == ncclInProgress) {
    return {.code = ErrorCode::kTimeout,
            .what = fmt::format("NCCL: {} is still waiting for its peers", call)};
  }
  const bool of_peers = result == ncclRemoteError || result == ncclSystemError;
  const char* const last = nccl().ncclGetLastError(comm);
  const bool has_last = last != nullptr && *last != '\0';
  return {.code = of_peers ? ErrorCode::kPeerLost : ErrorCode::kInternal,
          .what = fmt::format("NCCL: {}: {}{}{}", call, nccl().ncclGetErrorString(result),
                              has_last ? "; last error: " : "", has_last ? last : "")};
}

void require_nccl(ncclResult_t result, ncclComm_t comm, std::string_view call) {
  if (result != ncclSuccess) throw KoloError(nccl_error(result, comm, call));
}

void log_nccl(ncclResult_t result, std::string_view call) noexcept {
  if (result != ncclSuccess) log::error(nccl_error(result, nullptr, call).to_string());
}

void check_same_nccl(const NcclIntroduction& first, int rank, int version) {
  if (version == first.version) return;
  throw KoloError(
      {.code = ErrorCode::kConfig,
       .what = fmt::format("rank 0 has NCCL {}, but rank {} has {}: they must be equal",
                           nccl_version_text(first.version), rank, nccl_version_text(version))});
}

}  // namespace kolo
