// Tests gradient sets and row-sparse sums in the C interface.

#include <gmock/gmock.h>
#include <poll.h>

#include <cstring>

#include <nlohmann/json.hpp>

#include "tests/runtime/c/c_job.h"

namespace c_test {
namespace {

kolo_gradient gradient(const char* name, const std::size_t* shape, void* data) {
  kolo_gradient spec = KOLO_GRADIENT_INIT;
  spec.name = name;
  spec.shape = shape;
  spec.num_dimensions = 1;
  spec.dtype = KOLO_FLOAT32;
  spec.data = data;
  return spec;
}

TEST(CGradients, AreAveragedWhereverTheyLive) {
  run_job(2, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    const auto me = static_cast<float>(kolo_group_rank(world));
    const std::size_t shape[] = {1000};
    std::vector<float> own(1000);
    const kolo_gradient gradients[] = {gradient("own", shape, own.data()),
                                       gradient("arena", shape, nullptr)};
    kolo_gradients* set = nullptr;
    ok(kolo_register_gradients(world, "model", gradients, 2, nullptr, &set));
    kolo_buffer arena{};
    ok(kolo_gradients_view(set, 1, &arena));
    require(kolo_gradients_size(set) == 2 && arena.count == 1000, "the set");
    for (int step = 0; step < 3; ++step) {
      own.assign(1000, me);
      static_cast<float*>(arena.data)[999] = 10 * me;
      ok(kolo_gradients_ready(set, 0));
      ok(kolo_gradients_ready(set, 1));
      int is_there = 0;
      while (is_there == 0) ok(kolo_gradients_wait_one(set, 1, 50, &is_there));
      ok(kolo_gradients_wait_one(set, 1, -1, nullptr));
      require(static_cast<float*>(arena.data)[999] == 5, "one average");
      int done = 0;
      while (done == 0) ok(kolo_gradients_wait(set, 50, &done));
      require(own[0] == 0.5F && static_cast<float*>(arena.data)[999] == 5, "averages");
    }
    ok(kolo_gradients_ready(set, 0));
    ok(kolo_gradients_absent(set, 1));
    ok(kolo_gradients_wait(set, -1, nullptr));
    require(static_cast<float*>(arena.data)[999] == 0, "an absent gradient");
    require(nlohmann::json::parse(kolo_gradients_plan(set)).at("gradients") == 2, "the plan");
    require(nlohmann::json::parse(kolo_gradients_statistics(set)).at("too_large") == 0, "counts");
    kolo_gradients_release(set);
  });
}

TEST(CGradients, AreRefusedWithoutAShapeAndInSharedMemory) {
  run_job(1, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    const std::size_t shape[] = {6};
    std::vector<float> data(10);
    kolo_gradient gradients[] = {gradient("embedding", shape, data.data()),
                                 gradient("output", shape, &data[4])};
    kolo_gradients* set = nullptr;
    const auto refused = [&](std::size_t count, const std::string& why) {
      require(
          kolo_register_gradients(world, "model", gradients, count, nullptr, &set) == KOLO_USAGE &&
              set == nullptr,
          "it is registered: " + why);
      require(std::string(kolo_last_error()->what).find(why) != std::string::npos,
              kolo_last_error()->what);
    };
    refused(2, "gradients 'embedding' and 'output' of one set share memory");
    gradients[0].num_dimensions = 0;
    refused(1, "gradient 'embedding' has no dimensions");
  });
}

TEST(CGradients, OfAFlatBufferMayBeGivenUp) {
  run_job(2, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    const auto me = static_cast<float>(kolo_group_rank(world));
    std::vector<float> flat(5, me + 1);
    const std::size_t sizes[] = {2, 3};
    const kolo_buffer buffer = {flat.data(), flat.size(), KOLO_FLOAT32, KOLO_HOST};
    kolo_gradients* set = nullptr;
    require(kolo_register_flat_gradients(world, "model", buffer, sizes, 1, nullptr, &set) ==
                    KOLO_USAGE &&
                set == nullptr,
            "a buffer that is not filled");
    ok(kolo_register_flat_gradients(world, "model", buffer, sizes, 2, nullptr, &set));
    ok(kolo_gradients_ready(set, 0));
    if (me == 0) ok(kolo_gradients_ready(set, 1));
    ok(kolo_gradients_give_up(set));
    ok(kolo_gradients_wait(set, -1, nullptr));
    require(flat == std::vector<float>({1.5F, 1.5F, 0.5F, 0.5F, 0.5F}), "the averages");
    require(kolo_gradients_give_up_on(set, nullptr) == KOLO_OK, "no gradient is on a device");
    ok(kolo_gradients_wait(set, -1, nullptr));
    kolo_gradients_release(set);
  });
}

TEST(CWeights, AreCheckedToBeEqual) {
  run_job(2, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    std::vector<float> weight(5, 1), bias(3, 2);
    const kolo_buffer tensors[] = {{weight.data(), weight.size(), KOLO_FLOAT32, KOLO_HOST},
                                   {bias.data(), bias.size(), KOLO_FLOAT32, KOLO_HOST}};
    const char* const names[] = {"weight", "bias"};
    ok(kolo_check_equal(world, "weights", tensors, names, 2));
    bias[2] = static_cast<float>(kolo_group_rank(world));
    require(kolo_check_equal(world, "weights", tensors, names, 2) == KOLO_MISMATCH, "no mismatch");
    require(
        std::string(kolo_last_error()->what).find("'bias' of rank 1 differs from that of rank 0") !=
            std::string::npos,
        kolo_last_error()->what);
  });
}

TEST(CGradients, ThatHaveMovedAreNotMarked) {
  run_job(2, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    const std::size_t shape[] = {6};
    std::vector<float> data(6, static_cast<float>(kolo_group_rank(world)));
    const std::vector<float> moved = data;
    const kolo_gradient gradients[] = {gradient("w", shape, data.data())};
    kolo_gradients* set = nullptr;
    ok(kolo_register_gradients(world, "model", gradients, 1, nullptr, &set));
    require(kolo_gradients_ready_at(set, 0, moved.data()) == KOLO_USAGE, "it has moved");
    require(std::string(kolo_last_error()->what).find("gradient 'w' of set 'model' has moved") !=
                std::string::npos,
            kolo_last_error()->what);
    ok(kolo_gradients_ready_at(set, 0, data.data()));
    ok(kolo_gradients_wait(set, -1, nullptr));
    require(data[5] == 0.5F, "the average");
    kolo_gradients_release(set);
  });
}

TEST(CGradients, TellThroughADescriptorWhichAreCombined) {
  run_job(2, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    const std::size_t shape[] = {3};
    const kolo_gradient gradients[] = {gradient("a", shape, nullptr),
                                       gradient("b", shape, nullptr)};
    kolo_gradients* set = nullptr;
    ok(kolo_register_gradients(world, "model", gradients, 2, nullptr, &set));
    pollfd poll{.fd = -1, .events = POLLIN, .revents = 0};
    ok(kolo_gradients_event(set, &poll.fd));
    require(::poll(&poll, 1, 0) == 0, "nothing is combined");
    for (int step = 0; step < 3; ++step) {
      ok(kolo_gradients_ready(set, 1));
      ok(kolo_gradients_ready(set, 0));
      std::vector<std::size_t> combined;
      while (combined.size() < 2) {
        require(::poll(&poll, 1, 60'000) == 1, "no event");
        std::size_t taken[2], count = 0;
        ok(kolo_gradients_take_combined(set, taken, &count));
        combined.insert(combined.end(), taken, taken + count);
      }
      EXPECT_THAT(combined, testing::UnorderedElementsAre(0, 1));
      ok(kolo_gradients_wait(set, -1, nullptr));
    }
    kolo_gradients_release(set);
  });
}

class CCompression : public testing::TestWithParam<const char*> {};

TEST_P(CCompression, KeepsResidualsThatASavedStateRestores) {
  run_job(2, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    const std::size_t shape[] = {64, 64};
    std::vector<float> data(4096);
    kolo_gradient gradients[] = {gradient("w", shape, data.data())};
    gradients[0].num_dimensions = 2;
    kolo_gradient_options options = KOLO_GRADIENT_OPTIONS_INIT;
    options.compression = GetParam();
    kolo_gradients* set = nullptr;
    ok(kolo_register_gradients(world, "model", gradients, 1, &options, &set));
    uint32_t flags = 0;
    ok(kolo_gradients_flags(set, 0, &flags));
    require((flags & KOLO_SPARSE) != 0, "sparse");
    const auto step = [&] {
      for (std::size_t i = 0; i < data.size(); ++i) data[i] = 0.3f * static_cast<float>(i % 97);
      ok(kolo_gradients_ready(set, 0));
      ok(kolo_gradients_wait(set, -1, nullptr));
      return data;
    };
    step();
    double norm = 0;
    ok(kolo_gradients_residual_norm(set, "w", &norm));
    require(norm > 0, "a residual");
    const void* state = nullptr;
    std::size_t bytes = 0;
    ok(kolo_gradients_save(set, &state, &bytes));
    const std::vector<char> saved(static_cast<const char*>(state),
                                  static_cast<const char*>(state) + bytes);
    const std::vector<float> second = step();
    step();
    ok(kolo_gradients_load(set, saved.data(), saved.size()));
    require(step() == second, "the same step again");
    require(kolo_gradients_load(set, saved.data(), 3) == KOLO_DATA, "a state that is cut off");
    ok(kolo_gradients_drop(set));
    ok(kolo_gradients_residual_norm(set, "w", &norm));
    require(norm == 0, "a dropped residual");
    kolo_gradients_release(set);
  });
}
INSTANTIATE_TEST_SUITE_P(Methods, CCompression,
                         testing::Values("topk(0.01,route=owners)", "int8", "2bit(0.5)"));

TEST(CGradients, SamplesAreTheDivisor) {
  run_job(2, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    const int me = kolo_group_rank(world);
    const std::size_t shape[] = {3};
    std::vector<float> data(3, me == 0 ? 1.0F : 5.0F);
    const kolo_gradient gradients[] = {gradient("w", shape, data.data())};
    kolo_gradient_options options = KOLO_GRADIENT_OPTIONS_INIT;
    options.divisor = KOLO_SAMPLES;
    kolo_gradients* set = nullptr;
    ok(kolo_register_gradients(world, "model", gradients, 1, &options, &set));
    ok(kolo_gradients_set_samples(set, me == 0 ? 3 : 1));
    ok(kolo_gradients_ready(set, 0));
    ok(kolo_gradients_wait(set, -1, nullptr));
    require(data[0] == 2, "the mean over samples");
    kolo_gradients_release(set);
  });
}

// A program with an older header has smaller structs. Missing fields have their defaults.
TEST(CGradients, StructsOfAnOlderHeaderAreComplete) {
  run_job(1, [](kolo_runtime* runtime) {
    struct Old {
      std::size_t size;
      const char* name;
      const std::size_t* shape;
      std::size_t num_dimensions;
      kolo_dtype dtype;
      kolo_memory memory;
      void* data;
    };
    const std::size_t shape[] = {3};
    std::vector<float> data(6);
    const Old old[] = {{sizeof(Old), "a", shape, 1, KOLO_FLOAT32, KOLO_HOST, data.data()},
                       {sizeof(Old), "b", shape, 1, KOLO_FLOAT32, KOLO_HOST, data.data() + 3}};
    kolo_gradients* set = nullptr;
    ok(kolo_register_gradients(kolo_world(runtime), "old",
                               reinterpret_cast<const kolo_gradient*>(old), 2, nullptr, &set));
    kolo_buffer second{};
    ok(kolo_gradients_view(set, 1, &second));
    require(second.data == data.data() + 3, "the second struct");
    kolo_gradients_release(set);
  });
}

TEST(CRows, AreSummed) {
  run_job(2, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    const int64_t indices[] = {3, kolo_group_rank(world)};
    const std::vector<float> rows{1, 2, 3, 4};
    kolo_row_table tables[] = {{1000, 2, indices, 2, rows.data(), KOLO_FLOAT32, KOLO_HOST},
                               {4, 1, indices, 1, rows.data(), KOLO_FLOAT32, KOLO_HOST}};
    kolo_row_options options = KOLO_ROW_OPTIONS_INIT;
    options.exchange = KOLO_ROWS;
    kolo_row_sums* both[2] = {};
    for (kolo_row_sums*& each : both) ok(kolo_row_sums_create(&each));
    kolo_row_sums* const sums = both[0];
    ok(kolo_sparse_all_reduce(world, tables, 1, &options, nullptr, both, nullptr));
    int is_table = 1;
    const int64_t* found = nullptr;
    std::size_t count = 0;
    kolo_buffer result{};
    ok(kolo_row_sums_get(sums, &is_table, &found, &count, &result));
    require(is_table == 0 && count == 3 && found[2] == 3, "three rows");
    require(static_cast<const float*>(result.data)[4] == 2, "a row of both ranks");
    kolo_call call = KOLO_CALL_INIT;
    call.name = "embedding";
    kolo_ticket* ticket = nullptr;
    ok(kolo_sparse_all_reduce(world, tables, 1, &options, &call, both, &ticket));
    int done = 0;
    ok(kolo_ticket_wait(ticket, -1, &done));
    ok(kolo_ticket_row_sums(ticket, both, 1));
    ok(kolo_row_sums_get(sums, &is_table, &found, &count, &result));
    require(done == 1 && is_table == 0 && count == 3 && found[2] == 3, "three rows of a ticket");
    require(static_cast<const float*>(result.data)[4] == 2, "a row of a ticket");
    ok(kolo_ticket_row_sums(ticket, both, 1));
    ok(kolo_row_sums_get(sums, nullptr, nullptr, &count, nullptr));
    require(count == 0, "a result is given once");
    kolo_ticket_release(ticket);
    call.name = nullptr;
    call.scale_before = 0.5;
    call.scale_after = 4;
    ok(kolo_sparse_all_reduce(world, tables, 1, &options, &call, both, nullptr));
    ok(kolo_row_sums_get(sums, nullptr, nullptr, nullptr, &result));
    require(static_cast<const float*>(result.data)[4] == 4, "a scaled row of both ranks");
    tables[0].memory = KOLO_DEVICE;
    require(kolo_sparse_all_reduce(world, tables, 1, nullptr, nullptr, both, nullptr) == KOLO_USAGE,
            "device memory without a device");
    require(std::string(kolo_last_error()->text).find("the option `device`") != std::string::npos,
            "which option names one");
    tables[0].memory = KOLO_HOST;
    ok(kolo_sparse_all_reduce(world, tables, 2, &options, nullptr, both, nullptr));
    ok(kolo_row_sums_get(both[0], nullptr, nullptr, &count, &result));
    require(count == 3 && static_cast<const float*>(result.data)[4] == 2,
            "the first of two tables");
    ok(kolo_sparse_all_reduce(world, tables, 2, &options, nullptr, nullptr, &ticket));
    ok(kolo_ticket_wait(ticket, -1, nullptr));
    require(kolo_ticket_row_sums(ticket, both, 1) == KOLO_USAGE, "too few results");
    ok(kolo_ticket_row_sums(ticket, both, 2));
    ok(kolo_row_sums_get(both[1], nullptr, &found, &count, &result));
    require(count == 1 && found[0] == 3 && static_cast<const float*>(result.data)[0] == 2,
            "the second of two tables");
    kolo_row_sums_release(both[1]);
    kolo_ticket_release(ticket);
    ok(kolo_barrier(world, &ticket));
    require(kolo_ticket_row_sums(ticket, both, 1) == KOLO_USAGE, "a ticket of something else");
    ok(kolo_ticket_wait(ticket, -1, nullptr));
    kolo_ticket_release(ticket);
    kolo_row_sums_release(sums);
  });
}

TEST(CRows, OfARefusedCallStay) {
  run_job(1, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    const int64_t index = 3, outside = 1000;
    const std::vector<float> rows{1, 2};
    kolo_row_table table{1000, 2, &index, 1, rows.data(), KOLO_FLOAT32, KOLO_HOST};
    kolo_row_options options = KOLO_ROW_OPTIONS_INIT;
    options.exchange = KOLO_ROWS;
    kolo_row_sums* sums = nullptr;
    ok(kolo_row_sums_create(&sums));
    ok(kolo_sparse_all_reduce(world, &table, 1, &options, nullptr, &sums, nullptr));
    kolo_buffer former{};
    ok(kolo_row_sums_get(sums, nullptr, nullptr, nullptr, &former));
    const auto refuses = [&](std::vector<kolo_row_table> tables,
                             std::vector<kolo_row_sums*> results, const char* what) {
      require(kolo_sparse_all_reduce(world, tables.data(), tables.size(), &options, nullptr,
                                     results.data(), nullptr) == KOLO_USAGE,
              what);
      kolo_buffer kept{};
      ok(kolo_row_sums_get(sums, nullptr, nullptr, nullptr, &kept));
      require(kept.data == former.data && kept.count == 2, std::string(what) + ": the result");
      require(static_cast<const float*>(kept.data)[1] == 2, std::string(what) + ": its value");
    };
    refuses({table, table}, {sums, nullptr}, "no second handle");
    refuses({table, table}, {sums, sums}, "one handle for two tables");
    table.indices = &outside;
    refuses({table}, {sums}, "an index outside");
    table.indices = &index;
    table.rows = former.data;
    refuses({table}, {sums}, "rows of the result that is reused");
    kolo_row_sums_release(sums);
  });
}

}  // namespace
}  // namespace c_test
