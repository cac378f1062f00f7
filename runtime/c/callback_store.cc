#include "runtime/c/callback_store.h"

#include <cstddef>

#include "comm/base/error.h"
#include "runtime/c/arguments.h"

namespace kolo {

CallbackStore::CallbackStore(const kolo_store& store)
    : store_(complete(&store, kolo_store KOLO_STORE_INIT, "store")) {
  check_given(store_.set, "store.set");
  check_given(store_.get, "store.get");
}

void CallbackStore::set(const std::string& key, const std::string& value) {
  if (store_.set(store_.context, key.c_str(), value.data(), value.size()) == 0) return;
  throw KoloError({.code = ErrorCode::kIo,
                   .what = fmt::format("the store of the program cannot set '{}'", key)});
}

std::string CallbackStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  const void* value = nullptr;
  std::size_t bytes = 0;
  const int outcome = store_.get(store_.context, key.c_str(), timeout.count(), &value, &bytes);
  if (outcome == 0) return {static_cast<const char*>(value), bytes};
  const bool is_late = outcome == KOLO_TIMEOUT;
  throw KoloError({.code = is_late ? ErrorCode::kTimeout : ErrorCode::kIo,
                   .what = fmt::format("the store of the program has no '{}'{}", key,
                                       is_late ? " in time" : "")});
}

}  // namespace kolo
