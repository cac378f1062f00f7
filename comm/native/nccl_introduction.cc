#include "comm/native/nccl_introduction.h"

#include <fmt/format.h>

#include "comm/native/nccl_handles.h"

namespace kolo {

void check_same_nccl(const NcclIntroduction& first, int rank, int version) {
  if (version == first.version) return;
  throw KoloError(
      {.code = ErrorCode::kConfig,
       .what = fmt::format("rank 0 has NCCL {}, but rank {} has {}: they must be equal",
                           nccl_version_text(first.version), rank, nccl_version_text(version))});
}

}  // namespace kolo
