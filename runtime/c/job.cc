#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include <kolo/kolo_c.h>

#include "comm/base/error.h"
#include "comm/base/nearest_name.h"
#include "comm/rendezvous/key_value_store.h"
#include "comm/rendezvous/store_rendezvous.h"
#include "runtime/c/arguments.h"
#include "runtime/c/handles.h"
#include "runtime/options/option_table.h"

using kolo::check_given;
using kolo::guarded_on;
using kolo::MutexLock;
using kolo::OptionEntry;
using kolo::Options;

namespace {

/// The key-value store that a C program passes as `kolo_store`.
class CallbackStore final : public kolo::KeyValueStore {
 public:
  /// The context of `store` must outlive this object.
  explicit CallbackStore(const kolo_store& store)
      : store_(kolo::complete(&store, kolo_store KOLO_STORE_INIT, "store")) {
    check_given(store_.set, "store.set");
    check_given(store_.get, "store.get");
  }

  void set(const std::string& key, const std::string& value) override {
    if (store_.set(store_.context, key.c_str(), value.data(), value.size()) == 0) return;
    throw kolo::KoloError({.code = kolo::ErrorCode::kIo,
                           .what = fmt::format("the store of the program cannot set '{}'", key)});
  }

  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    const void* value = nullptr;
    std::size_t bytes = 0;
    const int outcome = store_.get(store_.context, key.c_str(), timeout.count(), &value, &bytes);
    if (outcome == 0) return {static_cast<const char*>(value), bytes};
    const bool is_late = outcome == KOLO_TIMEOUT;
    throw kolo::KoloError({.code = is_late ? kolo::ErrorCode::kTimeout : kolo::ErrorCode::kIo,
                           .what = fmt::format("the store of the program has no '{}'{}", key,
                                               is_late ? " in time" : "")});
  }

 private:
  const kolo_store store_;
};

const OptionEntry& option_named(std::string_view name) {
  const auto& table = kolo::option_table();
  const auto entry = std::ranges::find(table, name, &OptionEntry::name);
  if (entry != table.end()) return *entry;
  std::vector<std::string> names;
  for (const OptionEntry& each : table) names.push_back(each.name);
  const auto nearest = kolo::nearest_name(name, names);
  throw kolo::UsageError(fmt::format("there is no option '{}'{}", name,
                                     nearest ? "; did you mean " + *nearest + "?" : ""));
}

Options options_of(const kolo_open_options& given) {
  Options options;
  if (given.num_settings > 0) check_given(given.settings, "settings");
  for (size_t i = 0; i < given.num_settings; ++i) {
    const kolo_setting& setting = given.settings[i];
    check_given(setting.name, "the name of a setting");
    check_given(setting.value, "the value of a setting");
    const OptionEntry& entry = option_named(setting.name);
    kolo::set_option(entry, options, entry.name, setting.value);
  }
  return options;
}

kolo::Runtime open(const kolo_open_options& given) {
  Options options = options_of(given);
  if (given.store == nullptr) return kolo::Runtime::from_environment(std::move(options));
  options = kolo::options_from_environment(std::move(options));
  const kolo::StoreRendezvous::Config config{.rank = given.rank,
                                             .size = given.world_size,
                                             .timeout = options.connect_timeout,
                                             .prefix = std::string(kolo::text_or_empty(given.job))};
  if (given.rank == 0) kolo::warn_about_unknown_variables();
  return {std::make_unique<kolo::StoreRendezvous>(std::make_unique<CallbackStore>(*given.store),
                                                  config),
          std::move(options)};
}

}  // namespace

kolo_status kolo_open(const kolo_open_options* options, kolo_runtime** runtime) {
  return guarded_on(runtime, "runtime", [&] {
    *runtime = nullptr;
    const kolo_open_options given =
        kolo::complete(options, kolo_open_options KOLO_OPEN_OPTIONS_INIT, "options");
    *runtime = new kolo_runtime(open(given));
  });
}

kolo_status kolo_close(kolo_runtime* runtime) {
  return guarded_on(runtime, "runtime", [&] { runtime->runtime.close(); });
}

kolo_status kolo_abort(kolo_runtime* runtime, const char* why) {
  return guarded_on(runtime, "runtime", [&] { runtime->runtime.abort(kolo::text_or_empty(why)); });
}

void kolo_release(kolo_runtime* runtime) { delete runtime; }

kolo_status kolo_leave_thread(kolo_runtime* runtime) {
  return guarded_on(runtime, "runtime", [&] { runtime->runtime.leave_thread(); });
}

kolo_status kolo_get_place(kolo_runtime* runtime, kolo_place* place) {
  return guarded_on(runtime, "runtime", [&] {
    check_given(place, "place");
    const kolo::Runtime& job = runtime->runtime;
    const kolo_place full{.size = place->size,
                          .rank = job.rank(),
                          .world_size = job.world_size(),
                          .local_rank = job.local_rank(),
                          .local_size = job.local_size(),
                          .node = job.node(),
                          .num_nodes = job.num_nodes()};
    static_cast<void>(kolo::complete(place, full, "place"));  // Checks its size.
    std::memcpy(place, &full, place->size);
  });
}

kolo_status kolo_get_setting(kolo_runtime* runtime, const char* name, const char** value) {
  return guarded_on(runtime, "runtime", [&] {
    check_given(value, "value");
    runtime->setting = option_named(kolo::text_or_empty(name)).get(runtime->runtime.options());
    *value = runtime->setting.c_str();
  });
}

const char* kolo_link_costs(kolo_runtime* runtime) {
  const kolo_status status =
      guarded_on(runtime, "runtime", [&] { runtime->link_costs = runtime->runtime.link_costs(); });
  return status == KOLO_OK ? runtime->link_costs.c_str() : "";
}

const char* kolo_network_address(kolo_runtime* runtime) {
  const kolo_status status = guarded_on(
      runtime, "runtime", [&] { runtime->network_address = runtime->runtime.network_address(); });
  return status == KOLO_OK ? runtime->network_address.c_str() : "";
}

kolo_status kolo_allocate(kolo_runtime* runtime, size_t bytes, void** data) {
  return guarded_on(runtime, "runtime", [&] {
    check_given(data, "data");
    *data = nullptr;
    auto memory = runtime->runtime.allocate(bytes);
    void* const place = memory.get();
    const MutexLock lock(runtime->mutex);
    runtime->memory.emplace(place, std::move(memory));
    *data = place;
  });
}

kolo_status kolo_free(kolo_runtime* runtime, void* data) {
  return guarded_on(runtime, "runtime", [&] {
    if (data == nullptr) return;
    const MutexLock lock(runtime->mutex);
    kolo::check(runtime->memory.erase(data) == 1, "kolo_allocate did not return this pointer");
  });
}

kolo_group* kolo_world(kolo_runtime* runtime) {
  return runtime == nullptr ? nullptr : &runtime->world;
}
