#include "comm/transport/ucx_library.h"

#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "comm/base/error.h"
#include "comm/base/mutex.h"

namespace kolo {
namespace {

constexpr const char* kSystemUcx = "libucp.so.0";

std::string or_system(const std::string& file) { return file.empty() ? kSystemUcx : file; }

SharedLibrary::Config ucx_config(const std::string& file) {
  return {.file = or_system(file),
          .purpose = "communication between nodes needs UCX",
          .remedy = fmt::format("install UCX {}.{} or later (package libucx0), or set "
                                "KOLO_UCX_LIBRARY to the path of its libucp.so",
                                UCP_API_MAJOR, UCP_API_MINOR)};
}

/// Two copies of UCX in one process would patch the same memory functions. It stays loaded: a
/// runtime in a static variable ends after the statics that its life has made.
struct LoadedUcx {
  Mutex mutex;
  std::string file KOLO_GUARDED_BY(mutex);
  std::optional<UcxLibrary> library KOLO_GUARDED_BY(mutex);
};

}  // namespace

UcxLibrary::UcxLibrary(const std::string& file) : library_(ucx_config(file)) {
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  if (std::tuple(major, minor) >= std::tuple<unsigned, unsigned>(UCP_API_MAJOR, UCP_API_MINOR)) {
    return;
  }
  library_.refuse(
      fmt::format("that of this system is version {}.{}.{}, and Kolo was built with {}.{}", major,
                  minor, release, UCP_API_MAJOR, UCP_API_MINOR));
}

const UcxLibrary& load_ucx(const std::string& file) {
  static LoadedUcx& loaded = *new LoadedUcx;
  const MutexLock lock(loaded.mutex);
  if (!loaded.library) {
    loaded.library.emplace(file);
    loaded.file = or_system(file);
  }
  if (loaded.file != or_system(file)) {
    throw KoloError({.code = ErrorCode::kConfig,
                     .what = fmt::format("ucx_library='{}', but this process has loaded UCX from "
                                         "'{}' already",
                                         file, loaded.file)});
  }
  return *loaded.library;
}

}  // namespace kolo
