// Calls every operation of the C interface. Python's scenes compare more of their results.

#include <gmock/gmock.h>

#include <array>

#include "tests/runtime/c/c_job.h"

namespace c_test {
namespace {

constexpr int kRanks = 3;
constexpr std::size_t kPart = 5;

/// Returns a buffer of `parts` parts: element i of part p is 100 rank + 10 p + i.
std::vector<float> filled(int rank, std::size_t parts) {
  std::vector<float> data(parts * kPart);
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<float>(100 * rank + 10 * static_cast<int>(i / kPart) +
                                 static_cast<int>(i % kPart));
  }
  return data;
}

/// Returns the sum over ranks of element i of part p.
float sum_of(std::size_t part, std::size_t i) {
  float sum = 0;
  for (int rank = 0; rank < kRanks; ++rank) sum += filled(rank, kRanks)[part * kPart + i];
  return sum;
}

/// Runs `begin` without a ticket, and then with a ticket for which it waits.
template <typename Begin, typename Check>
void both_ways(const Begin& begin, const Check& check) {
  ok(begin(nullptr));
  check();
  kolo_ticket* ticket = nullptr;
  ok(begin(&ticket));
  ok(kolo_ticket_wait(ticket, -1, nullptr));
  kolo_ticket_release(ticket);
  check();
}

TEST(CCollectives, InPlace) {
  run_job(kRanks, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    const int me = kolo_group_rank(world);
    const auto place = static_cast<std::size_t>(me);
    const std::vector<float> mine = filled(me, 1), all = filled(me, kRanks);
    std::vector<float> one(kPart), out(all.size());
    const kolo_tensor here = in_place(out);
    both_ways(
        [&](kolo_ticket** ticket) {
          out = all;
          return kolo_all_reduce(world, &here, 1, KOLO_SUM, nullptr, ticket);
        },
        [&] { require(out[kPart + 2] == sum_of(1, 2), "a sum"); });
    both_ways(
        [&](kolo_ticket** ticket) {
          out = all;
          return kolo_reduce_scatter(world, &here, 1, KOLO_SUM, nullptr, ticket);
        },
        [&] { require(out[place * kPart + 2] == sum_of(place, 2), "a part of the sum"); });
    both_ways(
        [&](kolo_ticket** ticket) {
          one = mine;
          const kolo_tensor tensor = in_place(one);
          return kolo_broadcast(world, &tensor, 1, 2, nullptr, ticket);
        },
        [&] { require(one == filled(2, 1), "a broadcast"); });
    both_ways(
        [&](kolo_ticket** ticket) {
          kolo_tensor tensor = input_alone(mine);
          if (me == 1) {
            out.assign(out.size(), -1);
            std::copy(mine.begin(), mine.end(), out.begin() + kPart);
            tensor = here;
          }
          return kolo_gather(world, &tensor, 1, 1, nullptr, ticket);
        },
        [&] {
          for (std::size_t i = 0; me == 1 && i < out.size(); ++i) {
            require(out[i] == filled(static_cast<int>(i / kPart), 1)[i % kPart], "parts");
          }
        });
    both_ways(
        [&](kolo_ticket** ticket) {
          one.assign(kPart, -1);
          const kolo_tensor tensor = me == 1 ? input_alone(all) : in_place(one);
          return kolo_scatter(world, &tensor, 1, 1, nullptr, ticket);
        },
        [&] {
          const float expected = me == 1 ? -1.0F : static_cast<float>(101 + 10 * me);
          require(one[1] == expected && all == filled(me, kRanks), "in place at the root");
        });
  });
}

TEST(CCollectives, ScaledAndCast) {
  run_job(kRanks, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    const std::vector<float> in = filled(kolo_group_rank(world), kRanks);
    std::vector<float> out(in.size());
    const kolo_tensor whole = to(in, out), here = in_place(out);
    kolo_call call = KOLO_CALL_INIT;
    call.name = "scaled";
    call.scale_after = 0.5;
    both_ways(
        [&](kolo_ticket** ticket) {
          return kolo_all_reduce(world, &whole, 1, KOLO_SUM, &call, ticket);
        },
        [&] { require(out[1] == 0.5F * sum_of(0, 1), "a scaled sum"); });
    kolo_call cast = KOLO_CALL_INIT;
    cast.wire_dtype = KOLO_BFLOAT16;
    both_ways(
        [&](kolo_ticket** ticket) {
          out.assign(out.size(), 1 + 1.0F / 512);
          return kolo_all_reduce(world, &here, 1, KOLO_SUM, &cast, ticket);
        },
        [&] { require(out[1] == kRanks, "a sum of rounded elements"); });
    both_ways([&](kolo_ticket** ticket) { return kolo_barrier(world, ticket); }, [] {});
  });
}

TEST(CCollectives, OfSeveralTensors) {
  run_job(kRanks, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    const int me = kolo_group_rank(world);
    const std::vector<float> in = filled(me, kRanks);
    std::vector<float> first(in.size()), second(in.size());
    const kolo_tensor tensors[] = {
        to(in, first), KOLO_TENSOR_TO(in.data(), kPart, second.data(), kPart, KOLO_FLOAT32)};
    both_ways(
        [&](kolo_ticket** ticket) {
          return kolo_all_reduce(world, tensors, 2, KOLO_SUM, nullptr, ticket);
        },
        [&] { require(first[6] == sum_of(1, 1) && second[3] == sum_of(0, 3), "sums"); });
    // Checks calls on two tensors. The second tensor begins one element later. `expected` returns
    // element `at` of the result of the tensor that begins at an element. If `receiver` is -1, all
    // ranks receive.
    const auto expect_element = [&](const auto& call, std::size_t inputs, std::size_t results,
                                    std::size_t at, int receiver, const auto& expected) {
      const kolo_tensor both[] = {
          KOLO_TENSOR_TO(in.data(), inputs, first.data(), results, KOLO_FLOAT32),
          KOLO_TENSOR_TO(in.data() + 1, inputs, second.data(), results, KOLO_FLOAT32)};
      both_ways(
          [&](kolo_ticket** ticket) {
            first.assign(first.size(), -1);
            second.assign(second.size(), -1);
            return call(both, ticket);
          },
          [&] {
            if (receiver >= 0 && receiver != me) return;
            require(first[at] == expected(0), "the first of two");
            require(second[at] == expected(1), "the second of two");
          });
    };
    constexpr int kAll = -1;
    const auto place = static_cast<std::size_t>(me);
    const auto element = [](int rank, std::size_t i) { return filled(rank, kRanks)[i]; };
    const auto sum = [](std::size_t i) { return sum_of(i / kPart, i % kPart); };
    expect_element(
        [&](const kolo_tensor* both, kolo_ticket** ticket) {
          return kolo_reduce_scatter(world, both, 2, KOLO_SUM, nullptr, ticket);
        },
        12, 4, 3, kAll, [&](std::size_t begin) { return sum(begin + 4 * place + 3); });
    expect_element(
        [&](const kolo_tensor* both, kolo_ticket** ticket) {
          return kolo_reduce(world, both, 2, 0, KOLO_SUM, nullptr, ticket);
        },
        4, 4, 2, 0, [&](std::size_t begin) { return sum(begin + 2); });
    expect_element(
        [&](const kolo_tensor* both, kolo_ticket** ticket) {
          kolo_tensor each[] = {both[0], both[1]};
          for (kolo_tensor& tensor : each) {
            if (me != 0) tensor.input = nullptr, tensor.input_count = 0;
          }
          return kolo_scatter(world, each, 2, 0, nullptr, ticket);
        },
        12, 4, 1, kAll, [&](std::size_t begin) { return element(0, begin + 4 * place + 1); });
    expect_element(
        [&](const kolo_tensor* both, kolo_ticket** ticket) {
          return kolo_all_to_all(world, both, 2, nullptr, ticket);
        },
        12, 12, 8, kAll, [&](std::size_t begin) { return element(2, begin + 4 * place); });
    expect_element(
        [&](const kolo_tensor* both, kolo_ticket** ticket) {
          return kolo_all_gather(world, both, 2, nullptr, ticket);
        },
        2, 6, 5, kAll, [&](std::size_t begin) { return element(2, begin + 1); });
    expect_element(
        [&](const kolo_tensor* both, kolo_ticket** ticket) {
          kolo_tensor each[] = {both[0], both[1]};
          for (kolo_tensor& tensor : each) {
            if (me != 0) tensor.result = nullptr, tensor.result_count = 0;
          }
          return kolo_gather(world, each, 2, 0, nullptr, ticket);
        },
        2, 6, 5, 0, [&](std::size_t begin) { return element(2, begin + 1); });
    expect_element(
        [&](const kolo_tensor* both, kolo_ticket** ticket) {
          return kolo_broadcast(world, both, 2, 0, nullptr, ticket);
        },
        4, 4, 3, kAll, [&](std::size_t begin) { return element(0, begin + 3); });
    // One tensor's parts have one, two and three elements; the other's none, two and one.
    const std::array<std::size_t, kRanks> of_six{1, 2, 3}, of_three{0, 2, 1};
    std::vector<float> six(6), three(3);
    const kolo_tensor uneven[] = {
        {in.data(), of_six[place], six.data(), 6, of_six.data(), kRanks, KOLO_FLOAT32, KOLO_HOST},
        {in.data() + 1, of_three[place], three.data(), 3, of_three.data(), kRanks, KOLO_FLOAT32,
         KOLO_HOST}};
    both_ways(
        [&](kolo_ticket** ticket) { return kolo_all_gather(world, uneven, 2, nullptr, ticket); },
        [&] {
          require(six == std::vector<float>({0, 100, 101, 200, 201, 202}), "counts of the first");
          require(three == std::vector<float>({101, 102, 201}), "counts of the second");
        });
    kolo_tensor two_counts = uneven[0];
    two_counts.num_counts = 2;
    require(kolo_all_gather(world, &two_counts, 1, nullptr, nullptr) == KOLO_USAGE,
            "two counts for three ranks");
    require(kolo_all_gather(world, uneven, 0, nullptr, nullptr) == KOLO_USAGE, "no tensors");
    kolo_tensor mixed[] = {in_place(first), in_place(second)};
    mixed[1].dtype = KOLO_INT32;
    require(kolo_all_reduce(world, mixed, 2, KOLO_SUM, nullptr, nullptr) == KOLO_USAGE,
            "two dtypes");
  });
}

TEST(CCollectives, Groups) {
  run_job(kRanks, [](kolo_runtime* runtime) {
    kolo_group* const world = kolo_world(runtime);
    const int me = kolo_group_rank(world);
    kolo_group* pair = nullptr;
    kolo_group* node = nullptr;
    kolo_group* cross = nullptr;
    if (me != 1) {
      const int32_t ranks[] = {2, 0};
      kolo_group_options options = KOLO_GROUP_OPTIONS_INIT;
      options.name = "ends";
      options.arena_bytes = 1 << 20;
      ok(kolo_group_create(world, ranks, 2, &options, &pair));
      std::array<int32_t, 2> of_job{};
      kolo_group_ranks(pair, of_job.data());
      require(kolo_group_size(pair) == 2 && of_job == std::array<int32_t, 2>{2, 0}, "the pair");
      std::vector<float> data(kPart, static_cast<float>(me));
      const kolo_tensor tensor = in_place(data);
      ok(kolo_all_reduce(pair, &tensor, 1, KOLO_SUM, nullptr, nullptr));
      require(data[0] == 2, "a sum in the pair");
      ok(kolo_group_close(pair));
      kolo_group_release(pair);
    }
    kolo_group_options small = KOLO_GROUP_OPTIONS_INIT;
    small.arena_bytes = 1 << 20;
    ok(kolo_group_split(world, me == 0 ? -1 : 5, -me, &small, &pair));
    require((pair == nullptr) == (me == 0), "a negative color gets no group");
    if (pair != nullptr) require(kolo_group_rank(pair) == 2 - me, "by key");
    kolo_group_release(pair);
    ok(kolo_group_node(world, &small, &node));
    ok(kolo_group_cross(world, &small, &cross));
    require(kolo_group_size(node) == kRanks && kolo_group_size(cross) == 1, "places");
    kolo_group_release(node);
    kolo_group_release(cross);
    kolo_group_release(world);  // has no effect, because the group belongs to the runtime
    ok(kolo_barrier(world, nullptr));
  });
}

}  // namespace
}  // namespace c_test
