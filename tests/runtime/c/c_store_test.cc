// Parameter stores of the C interface.

#include <gtest/gtest.h>

#include <cstring>

#include "tests/runtime/c/c_job.h"

namespace c_test {
namespace {

kolo_parameters* open_store(kolo_runtime* runtime, const char* type) {
  kolo_parameters_options options = KOLO_PARAMETERS_OPTIONS_INIT;
  options.type = type;
  options.split_bytes = 16;
  options.arena_bytes = 1 << 20;
  kolo_parameters* store = nullptr;
  ok(kolo_parameters_open(kolo_world(runtime), &options, &store));
  return store;
}

struct Calls {
  std::string keys;
  std::size_t elements = 0;
};

/// value += 2 * pushed
int add_twice(void* context, const char* key, size_t offset, const kolo_buffer* value,
              const kolo_buffer* pushed) {
  auto& calls = *static_cast<Calls*>(context);
  calls.keys += key;
  calls.elements += value->count;
  if (value->count != pushed->count || offset % 2 != 0) return 1;
  for (size_t i = 0; i < value->count; ++i) {
    static_cast<float*>(value->data)[i] += 2 * static_cast<const float*>(pushed->data)[i];
  }
  return 0;
}

TEST(CStore, KeepsKeys) {
  for (const char* type : {"local", "device", "dist_sync", "dist_async"}) {
    run_job(2, [&](kolo_runtime* runtime) {
      kolo_parameters* const store = open_store(runtime, type);
      const int workers = type == std::string("local") ? 1 : 2;
      require(kolo_parameters_workers(store) == workers, "workers");
      require(
          kolo_parameters_rank(store) == (workers == 1 ? 0 : kolo_group_rank(kolo_world(runtime))),
          "rank");
      Calls calls;
      kolo_updater updater = KOLO_UPDATER_INIT;
      updater.context = &calls;
      updater.update = add_twice;
      ok(kolo_parameters_set_updater(store, &updater));
      std::vector<float> data(10, 1), more(10, 2), got(10), row(2);
      const kolo_buffer values[] = {view(data), view(more)}, out = view(got), out_row = view(row);
      ok(kolo_parameters_init(store, "w", values, 2));
      ok(kolo_parameters_push(store, "w", values, 2));
      ok(kolo_parameters_barrier(store));
      kolo_parameters_version version{};
      ok(kolo_parameters_pull(store, "w", &out, nullptr, 0, &version));
      const float expected = 1.0f + 6.0f * static_cast<float>(workers);
      require(got == std::vector<float>(10, expected), "the value");
      require(version.slowest == 1, "one push of each worker");
      ok(kolo_parameters_barrier(store));
      const std::int64_t last = 4;
      ok(kolo_parameters_pull(store, "w", &out_row, &last, 1, nullptr));
      require(row == std::vector<float>(2, expected), "a row");
      ok(kolo_parameters_barrier(store));
      ok(kolo_parameters_push_pull(store, "w", values, 1, &out, nullptr));
      require(got[9] >= expected + 2, "push_pull");
      ok(kolo_parameters_barrier(store));
      require(calls.keys.find_first_not_of('w') == std::string::npos && calls.elements > 0,
              "the updater's keys");
      kolo_optimizer sgd = KOLO_OPTIMIZER_INIT;
      ok(kolo_parameters_set_optimizer(store, &sgd));
      ok(kolo_parameters_close(store));
      require(kolo_parameters_pull(store, "w", &out, nullptr, 0, nullptr) == KOLO_USAGE,
              "a closed store");
      kolo_parameters_release(store);
    });
  }
}

TEST(CStore, Errors) {
  run_job(1, [](kolo_runtime* runtime) {
    kolo_parameters* store = nullptr;
    std::vector<float> data(10);
    const kolo_buffer value = view(data);
    const auto fails = [](kolo_status status, const char* text) {
      require(status == KOLO_USAGE && std::strstr(kolo_last_error()->text, text) != nullptr,
              kolo_last_error()->text);
    };
    kolo_parameters_options options = KOLO_PARAMETERS_OPTIONS_INIT;
    options.type = "sync";
    fails(kolo_parameters_open(kolo_world(runtime), &options, &store), "'sync'");
    options = KOLO_PARAMETERS_OPTIONS_INIT;
    options.staleness = -2;
    fails(kolo_parameters_open(kolo_world(runtime), &options, &store), "staleness");
    fails(kolo_parameters_open(nullptr, nullptr, &store), "group is null");
    fails(kolo_parameters_push(nullptr, "w", &value, 1), "store is null");
    require(kolo_parameters_rank(nullptr) == -1 && kolo_parameters_workers(nullptr) == 0, "null");
    store = open_store(runtime, "dist_sync");
    fails(kolo_parameters_init(store, nullptr, &value, 1), "key is null");
    fails(kolo_parameters_init(store, "w", nullptr, 1), "value is null");
    ok(kolo_parameters_init(store, "w", &value, 1));
    fails(kolo_parameters_pull(store, "w", nullptr, nullptr, 0, nullptr), "out is null");
    kolo_updater updater = KOLO_UPDATER_INIT;
    fails(kolo_parameters_set_updater(store, &updater), "updater.update is null");
    updater.update = [](void*, const char*, size_t, const kolo_buffer*, const kolo_buffer*) {
      return 3;
    };
    ok(kolo_parameters_set_updater(store, &updater));
    fails(kolo_parameters_push(store, "w", &value, 1), "the updater of 'w' returned 3");
    kolo_parameters_release(store);
    kolo_parameters_release(nullptr);
  });
}

}  // namespace
}  // namespace c_test
