#include <string>
#include <vector>

#include <fmt/format.h>
#include <kolo/kolo_c.h>

#include "runtime/c/arguments.h"
#include "runtime/c/handles.h"

using kolo::check;
using kolo::check_given;
using kolo::guarded;
using kolo::guarded_on;

namespace {

kolo::StoreOptions options_of(const kolo_parameters_options* options) {
  const auto given =
      kolo::complete(options, kolo_parameters_options KOLO_PARAMETERS_OPTIONS_INIT, "options");
  if (given.num_servers > 0) check_given(given.servers, "options.servers");
  check(given.staleness >= -1, fmt::format("options.staleness is {}", given.staleness));
  kolo::StoreOptions result;
  result.type = kolo::text_or_empty(given.type);
  result.servers.assign(given.servers, given.servers + given.num_servers);
  if (given.staleness >= 0) result.staleness = static_cast<uint64_t>(given.staleness);
  result.split_bytes = given.split_bytes;
  result.in_flight_bytes = given.in_flight_bytes;
  result.group = {.name = std::string(kolo::text_or_empty(given.name)),
                  .arena_bytes = given.arena_bytes};
  return result;
}

kolo::BufferView given_buffer(const kolo_buffer* buffer, std::string_view name) {
  check_given(buffer, name);
  return kolo::buffer_of(*buffer);
}

std::vector<kolo::ConstBuffer> values_of(const kolo_buffer* values, size_t count) {
  std::vector<kolo::ConstBuffer> result;
  for (size_t i = 0; i < count; ++i) result.push_back(given_buffer(values + i, "values"));
  return result;
}

void give(const kolo::StoreVersion& version, kolo_parameters_version* place) {
  if (place != nullptr) *place = {version.updates, version.slowest};
}

/// Calls `call` with the store, whose handle and key must not be null.
template <typename Call>
kolo_status on_key(kolo_parameters* store, const char* key, const Call& call) {
  return guarded_on(store, "store", [&] {
    check_given(key, "key");
    call(store->store);
  });
}

}  // namespace

kolo_status kolo_parameters_open(kolo_group* group, const kolo_parameters_options* options,
                                 kolo_parameters** store) {
  return guarded_on(group, "group", [&] {
    check_given(store, "store");
    *store = nullptr;
    *store = new kolo_parameters{kolo::ParameterStore(group->group, options_of(options))};
  });
}

kolo_status kolo_parameters_close(kolo_parameters* store) {
  return guarded_on(store, "store", [&] { store->store.close(); });
}

void kolo_parameters_release(kolo_parameters* store) { delete store; }

int32_t kolo_parameters_rank(const kolo_parameters* store) {
  return store == nullptr ? -1 : store->store.rank();
}

int32_t kolo_parameters_workers(const kolo_parameters* store) {
  return store == nullptr ? 0 : store->store.num_workers();
}

kolo_status kolo_parameters_init(kolo_parameters* store, const char* key, const kolo_buffer* value,
                                 size_t row_width) {
  return on_key(store, key, [&](kolo::ParameterStore& on) {
    on.init(key, given_buffer(value, "value"), row_width);
  });
}

kolo_status kolo_parameters_push(kolo_parameters* store, const char* key, const kolo_buffer* values,
                                 size_t num_values) {
  return on_key(store, key,
                [&](kolo::ParameterStore& on) { on.push(key, values_of(values, num_values)); });
}

kolo_status kolo_parameters_pull(kolo_parameters* store, const char* key, const kolo_buffer* out,
                                 const int64_t* rows, size_t num_rows,
                                 kolo_parameters_version* version) {
  return on_key(store, key, [&](kolo::ParameterStore& on) {
    const kolo::BufferView place = given_buffer(out, "out");
    give(rows == nullptr ? on.pull(key, place) : on.row_sparse_pull(key, place, {rows, num_rows}),
         version);
  });
}

kolo_status kolo_parameters_push_pull(kolo_parameters* store, const char* key,
                                      const kolo_buffer* values, size_t num_values,
                                      const kolo_buffer* out, kolo_parameters_version* version) {
  return on_key(store, key, [&](kolo::ParameterStore& on) {
    give(on.push_pull(key, values_of(values, num_values), given_buffer(out, "out")), version);
  });
}

kolo_status kolo_parameters_set_optimizer(kolo_parameters* store, const kolo_optimizer* optimizer) {
  return guarded_on(store, "store", [&] {
    const auto given = kolo::complete(optimizer, kolo_optimizer KOLO_OPTIMIZER_INIT, "optimizer");
    store->store.set_optimizer({.name = std::string(kolo::text_or_empty(given.name)),
                                .lr = given.lr,
                                .momentum = given.momentum,
                                .weight_decay = given.weight_decay,
                                .beta1 = given.beta1,
                                .beta2 = given.beta2,
                                .epsilon = given.epsilon,
                                .rescale = given.rescale});
  });
}

kolo_status kolo_parameters_set_updater(kolo_parameters* store, const kolo_updater* updater) {
  return guarded_on(store, "store", [&] {
    check_given(updater, "updater");
    const auto given = kolo::complete(updater, kolo_updater KOLO_UPDATER_INIT, "updater");
    check(given.update != nullptr, "updater.update is null");
    store->store.set_updater([given](const kolo::StoreUpdate& update) {
      const std::string key(update.key);
      const kolo_buffer value = kolo::buffer_of(update.value);
      // The function only reads what was pushed.
      const kolo_buffer pushed = {const_cast<void*>(update.pushed.data), update.pushed.count,
                                  value.dtype, KOLO_HOST};
      const int result = given.update(given.context, key.c_str(), update.offset, &value, &pushed);
      check(result == 0, fmt::format("the updater of '{}' returned {}", key, result));
    });
  });
}

kolo_status kolo_parameters_barrier(kolo_parameters* store) {
  return guarded_on(store, "store", [&] { store->store.barrier(); });
}
