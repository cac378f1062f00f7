// Tests errors of the C interface: the status, and the full error.

#include <gmock/gmock.h>

#include <thread>

#include "tests/runtime/c/c_job.h"

namespace c_test {
namespace {

using ::testing::HasSubstr;

TEST(CErrors, StatusesHaveNamesAndExitStatuses) {
  EXPECT_STREQ(kolo_status_name(KOLO_OK), "ok");
  EXPECT_STREQ(kolo_status_name(KOLO_PEER_LOST), "peer lost");
  EXPECT_STREQ(kolo_status_name(99), "unknown");
  EXPECT_EQ(kolo_exit_status(KOLO_OK), 0);
  EXPECT_EQ(kolo_exit_status(KOLO_USAGE), 64);
  EXPECT_EQ(kolo_exit_status(KOLO_MISMATCH), 76);
  EXPECT_THAT(kolo_version(), HasSubstr("."));
}

TEST(CTypes, HaveNamesAndSizes) {
  EXPECT_STREQ(kolo_dtype_name(KOLO_FLOAT8_E5M2), "float8_e5m2");
  EXPECT_EQ(kolo_dtype_size(KOLO_COMPLEX128), 16U);
  for (const kolo_dtype none : {-1, 0, 99}) {
    EXPECT_EQ(kolo_dtype_name(none), nullptr);
    EXPECT_EQ(kolo_dtype_size(none), 0U);
    EXPECT_EQ(kolo_op_takes(KOLO_SUM, none), 0);
  }
  EXPECT_STREQ(kolo_op_name(KOLO_PREMUL_SUM), "premul_sum");
  EXPECT_EQ(kolo_op_name(99), nullptr);
  EXPECT_EQ(kolo_op_takes(KOLO_PREMUL_SUM, KOLO_BFLOAT16), 1);
  EXPECT_EQ(kolo_op_takes(KOLO_PREMUL_SUM, KOLO_INT8), 0);
}

TEST(CErrors, BelongToTheThreadWhoseCallFailed) {
  EXPECT_EQ(kolo_open(nullptr, nullptr), KOLO_USAGE);
  ASSERT_NE(kolo_last_error(), nullptr);
  EXPECT_STREQ(kolo_last_error()->what, "runtime is null");
  EXPECT_EQ(kolo_last_error()->status, KOLO_USAGE);
  EXPECT_EQ(kolo_last_error()->peer, -1);
  std::thread([] { EXPECT_EQ(kolo_last_error(), nullptr); }).join();
}

TEST(CErrors, OptionsThatDoNotExistAreRefused) {
  const kolo_setting settings[] = {{"fusion_byte", "4M"}};
  kolo_open_options options = KOLO_OPEN_OPTIONS_INIT;
  options.settings = settings;
  options.num_settings = 1;
  kolo_runtime* runtime = nullptr;
  EXPECT_EQ(kolo_open(&options, &runtime), KOLO_USAGE);
  EXPECT_STREQ(kolo_last_error()->what,
               "there is no option 'fusion_byte'; did you mean fusion_bytes?");
  options.size = 1;
  EXPECT_EQ(kolo_open(&options, &runtime), KOLO_USAGE);
  EXPECT_THAT(kolo_last_error()->what, HasSubstr("options.size is 1"));
  EXPECT_EQ(runtime, nullptr);
}

TEST(CErrors, AStoreThatFailsIsNamed) {
  kolo_store store = KOLO_STORE_INIT;
  store.set = [](void*, const char*, const void*, size_t) { return 1; };
  store.get = [](void*, const char*, int64_t, const void**, size_t*) { return 1; };
  kolo_open_options options = KOLO_OPEN_OPTIONS_INIT;
  options.store = &store;
  options.rank = 1;
  options.world_size = 2;
  kolo_runtime* runtime = nullptr;
  EXPECT_EQ(kolo_open(&options, &runtime), KOLO_IO);
  EXPECT_THAT(kolo_last_error()->what, HasSubstr("the store of the program cannot set"));
}

TEST(CErrors, ANullHandleIsOneAtEveryCall) {
  kolo_group* const world = kolo_world(nullptr);
  EXPECT_EQ(kolo_barrier(world, nullptr), KOLO_USAGE);
  EXPECT_STREQ(kolo_last_error()->what, "group is null");
  EXPECT_EQ(kolo_group_rank(world), -1);
  EXPECT_EQ(kolo_group_size(world), 0);
  kolo_group_ranks(world, nullptr);
  EXPECT_EQ(kolo_network_bytes_sent(world), 0U);
  EXPECT_STREQ(kolo_link_costs(nullptr), "");
  EXPECT_STREQ(kolo_network_address(nullptr), "");
  EXPECT_EQ(kolo_gradients_size(nullptr), 0U);
  kolo_group_release(world);
  kolo_gradients_release(nullptr);
}

TEST(CErrors, UsageIsAnErrorAtTheCallAndHarmsNothing) {
  run_job(2, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    std::vector<float> data(3);
    kolo_tensor tensor = in_place(data);
    tensor.dtype = 77;
    require(kolo_all_reduce(world, &tensor, 1, KOLO_SUM, nullptr, nullptr) == KOLO_USAGE, "dtype");
    require(std::string(kolo_last_error()->what) == "77 is not a dtype", kolo_last_error()->what);
    tensor = {};
    tensor.result = data.data();
    tensor.result_count = 3;
    require(kolo_all_reduce(world, &tensor, 1, KOLO_SUM, nullptr, nullptr) == KOLO_USAGE,
            "no dtype");
    require(std::string(kolo_last_error()->what) == "the dtype of elements is not set",
            kolo_last_error()->what);
    tensor = in_place(data);
    require(kolo_all_reduce(world, &tensor, 1, 55, nullptr, nullptr) == KOLO_USAGE, "op");
    require(kolo_all_reduce(nullptr, &tensor, 1, KOLO_SUM, nullptr, nullptr) == KOLO_USAGE,
            "group");
    require(kolo_all_reduce(world, nullptr, 1, KOLO_SUM, nullptr, nullptr) == KOLO_USAGE,
            "tensors");
    kolo_call call = KOLO_CALL_INIT;
    call.scale_after = 2;
    require(kolo_broadcast(world, &tensor, 1, 0, &call, nullptr) == KOLO_USAGE, "scale");
    call.scale_after = 1;
    call.wire_dtype = KOLO_BFLOAT16;
    require(kolo_broadcast(world, &tensor, 1, 0, &call, nullptr) == KOLO_USAGE, "wire dtype");
    kolo_ticket* ticket = nullptr;
    require(kolo_reduce(world, &tensor, 1, 9, KOLO_SUM, nullptr, &ticket) == KOLO_USAGE, "root");
    require(ticket == nullptr, "no ticket of what was refused");
    const char* value = nullptr;
    ok(kolo_get_setting(runtime, "mismatch_after", &value));
    require(std::string(value) == "50", "a setting");
    void* memory = nullptr;
    ok(kolo_allocate(runtime, 4096, &memory));
    require(kolo_free(runtime, data.data()) == KOLO_USAGE, "memory of somebody else");
    ok(kolo_free(runtime, memory));
    kolo_place place = KOLO_PLACE_INIT;
    ok(kolo_get_place(runtime, &place));
    require(place.world_size == 2 && place.local_size == 2 && place.num_nodes == 1, "places");
    require(std::string(kolo_link_costs(runtime)).find("network_latency_us") != std::string::npos,
            "link costs");
    require(std::string(kolo_network_address(runtime)).empty(), "a job on one node");
    ok(kolo_barrier(world, nullptr));
  });
}

TEST(CErrors, InsideAGroupNameTheGroup) {
  run_job(2, [](kolo_runtime* runtime) {
    const int32_t ranks[] = {1, 0};
    kolo_group_options options = KOLO_GROUP_OPTIONS_INIT;
    options.name = "pair";
    options.arena_bytes = 1 << 18;
    kolo_group* pair = nullptr;
    ok(kolo_group_create(kolo_world(runtime), ranks, 2, &options, &pair));
    std::vector<float> data(3);
    const kolo_tensor tensor = in_place(data);
    require(kolo_broadcast(pair, &tensor, 1, 9, nullptr, nullptr) == KOLO_USAGE, "root");
    require(kolo_last_error()->group == std::string("'pair' [1, 0]"), kolo_last_error()->group);
    require(std::string(kolo_last_error()->text).starts_with("group 'pair' [1, 0]: "),
            kolo_last_error()->text);
    ok(kolo_group_close(pair));
    require(kolo_barrier(pair, nullptr) == KOLO_SHUTDOWN, "closed");
    require(kolo_last_error()->group == std::string("'pair' [1, 0]"), kolo_last_error()->group);
    kolo_group_release(pair);
  });
}

TEST(CErrors, DeviceMemoryNeedsADevice) {
  run_job(2, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    float in[4] = {}, out[8] = {};
    const kolo_buffer message{out, 8, KOLO_FLOAT32, KOLO_DEVICE};
    kolo_tensor tensor = KOLO_TENSOR_TO(in, 4, out, 8, KOLO_FLOAT32);
    tensor.memory = KOLO_DEVICE;
    const auto expect_error = [&](kolo_status status) {
      require(status == KOLO_USAGE, "a usage error");
      require(
          std::string(kolo_last_error()->what).find("set the option `device`") != std::string::npos,
          kolo_last_error()->what);
    };
    expect_error(kolo_all_gather(world, &tensor, 1, nullptr, nullptr));
    expect_error(kolo_send(world, &message, 1, 0, 0, nullptr, nullptr));
    tensor.memory = 1;
    require(kolo_all_gather(world, &tensor, 1, nullptr, nullptr) == KOLO_USAGE,
            "no such kind of memory");
    ok(kolo_barrier(world, nullptr));
  });
}

TEST(CErrors, AMismatchNamesBothRanks) {
  run_job(2, [](kolo_runtime* runtime) {
    std::vector<float> data(kolo_group_rank(kolo_world(runtime)) == 0 ? 3 : 4);
    kolo_call call = KOLO_CALL_INIT;
    call.name = "loss";
    const kolo_tensor tensor = in_place(data);
    require(
        kolo_all_reduce(kolo_world(runtime), &tensor, 1, KOLO_SUM, &call, nullptr) == KOLO_MISMATCH,
        "a mismatch");
    const kolo_error& error = *kolo_last_error();
    require(std::string(error.text).find("'loss': all_reduce float32 [3]") != std::string::npos &&
                std::string(error.text).find("float32 [4]") != std::string::npos,
            error.text);
    ok(kolo_barrier(kolo_world(runtime), nullptr));
    ok(kolo_close(runtime));
  });
}

TEST(CErrors, AThreadThatLetsAnotherOneWaitIsNotWaitedFor) {
  run_job(2, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    kolo_status status = KOLO_OK;
    if (kolo_group_rank(world) == 0) {
      ok(kolo_leave_thread(runtime));
      std::thread helper([&] { status = kolo_barrier(world, nullptr); });
      helper.join();
    } else {
      float data = 0;
      const kolo_tensor tensor = KOLO_TENSOR(&data, 1, KOLO_FLOAT32);
      status = kolo_all_reduce(world, &tensor, 1, KOLO_SUM, nullptr, nullptr);
    }
    require(status == KOLO_MISMATCH, "neither rank can submit anything more");
  });
}

}  // namespace
}  // namespace c_test
