// Tests calls on device memory in C, on the devices of libkolo_c_on_stand_ins.so.

#include <gmock/gmock.h>
#include <poll.h>

#include "tests/runtime/c/c_job.h"

extern "C" {
void* kolo_stand_in_stream();
void kolo_stand_in_copy(void* stream, void* target, const void* source, std::size_t bytes);
void kolo_stand_in_hold(void* stream, const int* gate);
void kolo_stand_in_synchronize(void* stream);
void kolo_stand_in_mark_foreign(const void* data, const char* text);
}

namespace c_test {
namespace {

constexpr std::size_t kCount = 100;
constexpr std::size_t kBytes = kCount * sizeof(float);

kolo_tensor on_device(std::vector<float>& data) {
  kolo_tensor tensor = KOLO_TENSOR(data.data(), data.size(), KOLO_FLOAT32);
  tensor.memory = KOLO_DEVICE;
  return tensor;
}

TEST(CDevice, AStreamWaitsForACallInFlight) {
  run_job(2,
          [](kolo_runtime* runtime) {
            kolo_group* const world = kolo_world(runtime);
            void* const before = kolo_stand_in_stream();
            void* const after = kolo_stand_in_stream();
            const std::vector<float> source(kCount, static_cast<float>(1 + kolo_group_rank(world)));
            std::vector<float> data(kCount, 0), seen(kCount, 0);
            int gate = 0;
            kolo_stand_in_hold(before, &gate);
            kolo_stand_in_copy(before, data.data(), source.data(), kBytes);

            const kolo_tensor tensor = on_device(data);
            kolo_call call = KOLO_CALL_INIT;
            call.stream = before;
            kolo_ticket* ticket = nullptr;
            ok(kolo_all_reduce(world, &tensor, 1, KOLO_SUM, &call, &ticket));
            int enqueued = 0, descriptor = -1, done = 1;
            ok(kolo_ticket_enqueued(ticket, &enqueued, &descriptor));
            pollfd event{.fd = descriptor, .events = POLLIN, .revents = 0};
            require(poll(&event, 1, 60'000) == 1, "the event");
            ok(kolo_ticket_enqueued(ticket, &enqueued, nullptr));
            require(enqueued == 1, "the work is not enqueued");
            ok(kolo_ticket_wait_on(ticket, after, 0, &done));
            require(done == 1, "the stream does not wait");
            ok(kolo_ticket_wait_on(ticket, after, -1, nullptr));
            kolo_stand_in_copy(after, seen.data(), data.data(), kBytes);
            ok(kolo_ticket_test(ticket, &done));
            require(done == 0 && seen[0] == 0, "it is done before its input");

            __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
            kolo_stand_in_synchronize(after);
            require(seen == std::vector<float>(kCount, 3), "a sum");
            ok(kolo_ticket_wait(ticket, -1, nullptr));
            ok(kolo_ticket_wait_on(ticket, after, 0, &done));
            require(done == 1, "it is done");
            kolo_ticket_release(ticket);
          },
          {{"device", "cuda"}});
}

TEST(CDevice, AStreamWaitsForGradientsInHostMemoryThatAreDivided) {
  run_job(2,
          [](kolo_runtime* runtime) {
            kolo_group* const world = kolo_world(runtime);
            const int me = kolo_group_rank(world);
            std::vector<float> data(kCount);
            const std::size_t sizes[] = {kCount};
            const kolo_buffer buffer = {data.data(), data.size(), KOLO_FLOAT32, KOLO_HOST};
            kolo_gradient_options options = KOLO_GRADIENT_OPTIONS_INIT;
            options.divisor = KOLO_SAMPLES;
            kolo_gradients* set = nullptr;
            ok(kolo_register_flat_gradients(world, "model", buffer, sizes, 1, &options, &set));
            ok(kolo_gradients_set_samples(set, me == 0 ? 3 : 1));
            void* const stream = kolo_stand_in_stream();
            for (int step = 1; step <= 2; ++step) {
              data.assign(kCount, static_cast<float>(step * (me == 0 ? 1 : 5)));
              ok(kolo_gradients_ready(set, 0));
              ok(kolo_gradients_wait_on(set, stream));
              require(data == std::vector<float>(kCount, static_cast<float>(2 * step)),
                      "the mean over samples");
            }
            kolo_gradients_release(set);
          },
          {{"device", "cuda"}});
}

/// Checks that a call fails as a usage error that names the memory.
void require_refusal(kolo_status status, const std::string& call) {
  require(status == KOLO_USAGE, call + " takes memory of another device");
  const std::string text = kolo_last_error()->text;
  require(text.find("memory of cuda:1, where that of a stand-in is expected") != std::string::npos,
          call + ": " + text);
}

TEST(CDevice, MemoryOfAnotherDeviceIsRefusedByEachCall) {
  static std::vector<float> foreign(kCount, 1);
  kolo_stand_in_mark_foreign(foreign.data(), "memory of cuda:1");
  run_job(
      1,
      [](kolo_runtime* runtime) {
        kolo_group* const world = kolo_world(runtime);
        const kolo_tensor tensor = on_device(foreign);
        const auto reduces = {kolo_all_reduce, kolo_reduce_scatter};
        for (const auto call : reduces) {
          require_refusal(call(world, &tensor, 1, KOLO_SUM, nullptr, nullptr), "a reduction");
        }
        require_refusal(kolo_reduce(world, &tensor, 1, 0, KOLO_SUM, nullptr, nullptr), "reduce");
        for (const auto call : {kolo_all_gather, kolo_all_to_all}) {
          require_refusal(call(world, &tensor, 1, nullptr, nullptr), "a collective");
        }
        for (const auto call : {kolo_broadcast, kolo_gather}) {
          require_refusal(call(world, &tensor, 1, 0, nullptr, nullptr), "a rooted collective");
        }
        const kolo_buffer buffer{foreign.data(), kCount, KOLO_FLOAT32, KOLO_DEVICE};
        require_refusal(kolo_send(world, &buffer, 1, 0, 1, nullptr, nullptr), "send");
        require_refusal(kolo_recv(world, &buffer, 1, 0, 1, nullptr, nullptr, nullptr), "recv");

        const std::int64_t index = 0;
        const kolo_row_table table{3, kCount, &index, 1, foreign.data(), KOLO_FLOAT32, KOLO_DEVICE};
        kolo_ticket* ticket = nullptr;
        require_refusal(
            kolo_sparse_all_reduce(world, &table, 1, nullptr, nullptr, nullptr, &ticket), "rows");

        kolo_gradient gradient = KOLO_GRADIENT_INIT;
        gradient.name = "w";
        gradient.shape = &kCount;
        gradient.num_dimensions = 1;
        gradient.dtype = KOLO_FLOAT32;
        gradient.memory = KOLO_DEVICE;
        gradient.data = foreign.data();
        kolo_gradients* set = nullptr;
        require_refusal(kolo_register_gradients(world, "set", &gradient, 1, nullptr, &set),
                        "a set");
      },
      {{"device", "cuda"}});
}

TEST(CDevice, DeviceMemoryNeedsADevice) {
  run_job(1, [](kolo_runtime* runtime) {
    std::vector<float> data(kCount);
    const kolo_tensor tensor = on_device(data);
    require(
        kolo_all_reduce(kolo_world(runtime), &tensor, 1, KOLO_SUM, nullptr, nullptr) == KOLO_USAGE,
        "device memory without a device");
    EXPECT_THAT(kolo_last_error()->text, testing::HasSubstr("set the option `device`"));
  });
}

TEST(CDevice, TheLibrarySaysWhatItWasBuiltWith) {
  EXPECT_EQ(kolo_built_with("cuda"), 1);
  EXPECT_EQ(kolo_built_with("nccl"), 1);
  EXPECT_EQ(kolo_built_with("mpi"), 0);
  EXPECT_EQ(kolo_built_with(nullptr), 0);
}

}  // namespace
}  // namespace c_test
