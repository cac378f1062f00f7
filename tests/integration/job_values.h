#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/api/kolo.h"

/// The contributions of the ranks of `job_program`, and checks of the results.
namespace kolo::test {

/// Thrown if a sum is wrong.
struct WrongSum : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Computes the FNV-1a hash of all bits of all results, in order.
class Digest {
 public:
  void add(const kolo::BufferView& view) {
    for (std::byte byte : view.as_bytes()) {
      state_ = (state_ ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
    }
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325;
};

/// Returns a small integer, so that sums are exact in every dtype, including 16-bit ones.
inline int whole(int rank, int round, std::size_t i) {
  return static_cast<int>((static_cast<std::size_t>(rank * 7 + round * 3) + i) % 17) - 8;
}

inline int sum_of_whole(int world_size, int round, std::size_t i) {
  int sum = 0;
  for (int rank = 0; rank < world_size; ++rank) sum += whole(rank, round, i);
  return sum;
}

inline std::vector<int> ranks_of(const Runtime& job) {
  std::vector<int> ranks(static_cast<std::size_t>(job.world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

inline std::span<float> floats(const BufferView& view) {
  return {static_cast<float*>(view.data), view.count};
}

template <typename Values>
void write_whole(Values&& values, int rank, int round) {
  using T = std::remove_reference_t<decltype(values[0])>;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(whole(rank, round, i));
}

/// Checks that `values` are the sums of the values that these ranks have written. Errors: WrongSum
/// that names `what`.
template <typename Values>
void expect_sums(const Values& values, const std::vector<int>& ranks, int round,
                 const std::string& what) {
  using T = std::remove_cvref_t<decltype(values[0])>;
  for (std::size_t i = 0; i < values.size(); ++i) {
    int sum = 0;
    for (const int rank : ranks) sum += whole(rank, round, i);
    if (values[i] == static_cast<T>(sum)) continue;
    throw WrongSum(what + ": element " + std::to_string(i) + " is wrong");
  }
}

/// Returns numbers between -1 and 1 whose sums are rounded, so that bits show the order of
/// addition.
inline float fraction(int rank, int round, std::size_t i) {
  std::uint64_t bits = static_cast<std::uint64_t>(rank) << 48 ^
                       static_cast<std::uint64_t>(round) << 40 ^ (i + 1) * 0x9e3779b97f4a7c15;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  return static_cast<float>(static_cast<std::int64_t>(bits) >> 40) / 8388608.0F;
}

/// Writes integers in even rounds, and fractions in odd rounds.
inline void write_round(std::span<float> values, int rank, int round) {
  if (round % 2 == 0) return write_whole(values, rank, round);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = fraction(rank, round, i);
}

/// Gradients in memory of the caller and of the runtime. Each rank computes them in another order.
class Gradients {
 public:
  explicit Gradients(Runtime& job)
      : job_(job),
        set_(job.register_gradients("gradients", specs(memory_), {.op = ReduceOp::kSum})) {}

  /// Runs one iteration. Even rounds have exact sums.
  void round(int round, Digest& digest) {
    for (std::size_t k = 0; k < set_.size(); ++k) {
      const std::size_t index = (k + static_cast<std::size_t>(job_.rank() + round)) % set_.size();
      write_round(floats(set_.view(index)), job_.rank(), round);
      set_.ready(index);
    }
    set_.wait();
    for (std::size_t index = 0; index < set_.size(); ++index) {
      const std::span<float> sums = floats(set_.view(index));
      const std::string name = "gradient " + std::to_string(index);
      if (round % 2 == 0) expect_sums(sums, ranks_of(job_), round, name);
      digest.add(set_.view(index));
    }
  }

 private:
  static constexpr std::size_t kCounts[] = {1, 7, 1000, 4096, 30'000, 300'001, 65'537, 3};

  /// Makes the gradients. Every second one is in `memory`.
  static std::vector<GradientSpec> specs(std::vector<std::vector<float>>& memory) {
    std::vector<GradientSpec> specs;
    for (const std::size_t count : kCounts) {
      const bool own = specs.size() % 2 == 0;
      memory.emplace_back(own ? count : 0);
      specs.push_back({.name = "gradient " + std::to_string(specs.size()),
                       .shape = {count},
                       .data = own ? memory.back().data() : nullptr});
    }
    return specs;
  }

  Runtime& job_;
  std::vector<std::vector<float>> memory_;
  GradientSet set_;
};

/// Sums in overlapping groups. Ranks are at different stages of their work at the same time.
class Groups {
 public:
  explicit Groups(Runtime& job) : job_(job) {
    std::vector<int> reversed = ranks_of(job);
    std::ranges::reverse(reversed);
    groups_.push_back(job.group(reversed, {.name = "reversed"}));
    groups_.push_back(*job.split(job.rank() % 2, job.rank(), {.name = "parity"}));
    groups_.push_back(job.node_group({.name = "node"}));
    groups_.push_back(job.cross_group({.name = "cross"}));
  }

  /// Runs one round in each group. Even rounds have exact sums.
  void round(int round, Digest& digest) {
    Digest own;
    for (Group& group : groups_) sums(group, round, own);
    // Results differ between groups. Their combination is equal on all ranks.
    auto all = static_cast<std::int64_t>(own.value());
    const BufferView view{&all, 1, DType::kInt64};
    job_.all_reduce("digest", view).wait();
    digest.add(view);
  }

 private:
  static constexpr std::size_t kPart = 5000;

  void sums(Group& group, int round, Digest& digest) {
    const auto parts = static_cast<std::size_t>(group.size());
    std::vector<float> input(parts * kPart), sum(parts * kPart), rooted(parts * kPart), part(kPart);
    write_round(input, job_.rank(), round);
    group.all_reduce("sum", {input, sum}).wait();
    group.reduce("root", {input, rooted}, group.size() - 1).wait();
    group.reduce_scatter("parts", {input, part}).wait();
    pass_on(group, input);
    if (round % 2 == 0) expect_sums(sum, group.ranks_of_job(), round, "a group's sum");
    digest.add(sum);
    if (group.rank() == group.size() - 1) digest.add(rooted);
    digest.add(part);
  }

  /// Passes a message around the ring of a group's ranks, with the same tag in all groups.
  static void pass_on(Group& group, std::vector<float>& mine) {
    const int ranks = group.size();
    const int source = (group.rank() + ranks - 1) % ranks;
    std::vector<float> received(mine.size()), expected(mine.size());
    Ticket sent = group.send(mine, (group.rank() + 1) % ranks);
    const Received got = group.recv(received, kAnyRank).received();
    sent.wait();
    group.broadcast("of rank 0", expected = mine, 0).wait();
    const bool is_right = got.source == source && got.count == mine.size();
    if (!is_right || (source == 0 && received != expected)) {
      throw WrongSum("a group's message is wrong");
    }
  }

  Runtime& job_;
  std::vector<Group> groups_;
};

}  // namespace kolo::test
