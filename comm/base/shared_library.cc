#include "comm/base/shared_library.h"

#include <dlfcn.h>

#include <utility>

#include <fmt/format.h>

#include "comm/base/error.h"

namespace kolo {

SharedLibrary::SharedLibrary(Config config)
    : config_(std::move(config)), handle_(::dlopen(config_.file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) refuse(::dlerror());
}

SharedLibrary::Function SharedLibrary::find(const char* name) const {
  void* const address = ::dlsym(handle_, name);
  if (address == nullptr) refuse(::dlerror());
  return Function(address);
}

void SharedLibrary::refuse(const std::string& reason) const {
  throw KoloError({.code = ErrorCode::kConfig,
                   .what = fmt::format("{}: {}; {}", config_.purpose, reason, config_.remedy)});
}

}  // namespace kolo
