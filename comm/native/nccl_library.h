#pragma once

// Only sources of the CMake target kolo_nccl may include this file.

#include <nccl.h>

#include <string>

namespace kolo {

/// The NCCL functions that Kolo calls.
#define KOLO_NCCL_FUNCTIONS(EACH) \
  EACH(ncclAllGather)             \
  EACH(ncclAllReduce)             \
  EACH(ncclBroadcast)             \
  EACH(ncclCommAbort)             \
  EACH(ncclCommCount)             \
  EACH(ncclCommDeregister)        \
  EACH(ncclCommDestroy)           \
  EACH(ncclCommFinalize)          \
  EACH(ncclCommGetAsyncError)     \
  EACH(ncclCommInitRankConfig)    \
  EACH(ncclCommRegister)          \
  EACH(ncclCommSplit)             \
  EACH(ncclCommUserRank)          \
  EACH(ncclGetErrorString)        \
  EACH(ncclGetLastError)          \
  EACH(ncclGetUniqueId)           \
  EACH(ncclGetVersion)            \
  EACH(ncclGroupEnd)              \
  EACH(ncclGroupStart)            \
  EACH(ncclMemAlloc)              \
  EACH(ncclMemFree)               \
  EACH(ncclRecv)                  \
  EACH(ncclReduce)                \
  EACH(ncclReduceScatter)         \
  EACH(ncclSend)

/// They come from a library loaded at run time, so that programs run without it.
struct NcclLibrary {
#define KOLO_NCCL_FUNCTION(name) decltype(&::name) name;
  KOLO_NCCL_FUNCTIONS(KOLO_NCCL_FUNCTION)
#undef KOLO_NCCL_FUNCTION
};

/// Returns the library of this process, of which there is one, and which the first successful call
/// loads. `file` is a path or name of libnccl.so.2. If it is empty, that is the library that was
/// loaded before, by Kolo or for example by PyTorch, or else that of the system.
///
/// Threads: any. Errors: as SharedLibrary; also if the library is older than 2.19.3;
/// KoloError(kConfig) if Kolo has loaded another file.
const NcclLibrary& nccl(const std::string& file = {});

}  // namespace kolo
