#include "comm/native/nccl_library.h"

#include <atomic>

#include <fmt/format.h>

#include "comm/base/error.h"
#include "comm/base/mutex.h"
#include "comm/base/shared_library.h"

namespace kolo {
namespace {

constexpr const char* kSystemNccl = "libnccl.so.2";
constexpr int kOldest = NCCL_VERSION(2, 19, 3);  // the first that registers buffers

const NcclLibrary* load(const std::string& file) {
  const SharedLibrary library(
      {.file = file,
       .purpose = "collectives among GPUs need NCCL",
       .remedy = "install NCCL 2.19.3 or later (for Python: pip install nvidia-nccl-cu13), or set "
                 "KOLO_NCCL_LIBRARY to the path of its libnccl.so.2"});
#define KOLO_NCCL_FUNCTION(name) .name = library.find(#name),
  const NcclLibrary loaded = {KOLO_NCCL_FUNCTIONS(KOLO_NCCL_FUNCTION)};
#undef KOLO_NCCL_FUNCTION
  int version = 0;
  if (loaded.ncclGetVersion(&version) != ncclSuccess || version < kOldest) {
    library.refuse(fmt::format("{} is of version {}", file, version));
  }
  return new NcclLibrary(loaded);  // as SharedLibrary, never unloaded
}

}  // namespace

const NcclLibrary& nccl(const std::string& file) {
  static std::atomic<const NcclLibrary*> loaded{nullptr};
  static Mutex& mutex = *new Mutex;
  static std::string& name = *new std::string;
  if (file.empty()) {
    if (const NcclLibrary* const library = loaded) return *library;
  }
  const MutexLock lock(mutex);
  if (loaded == nullptr) {
    const std::string wanted = file.empty() ? kSystemNccl : file;
    loaded = load(wanted);
    name = wanted;
  }
  if (!file.empty() && file != name) {
    throw KoloError({.code = ErrorCode::kConfig,
                     .what = fmt::format("nccl_library='{}', but this process has loaded NCCL from "
                                         "'{}' already",
                                         file, name)});
  }
  return *loaded;
}

}  // namespace kolo
