#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tests/integration/job_values.h"

namespace kolo::test {

/// Sums in groups that overlap, each at another point of its own work.
class Groups {
 public:
  explicit Groups(Runtime& job) : job_(job) {
    std::vector<int> reversed;
    for (int rank = job.world_size(); rank-- > 0;) reversed.push_back(rank);
    groups_.push_back(job.node_group({.name = "node"}));
    groups_.push_back(job.cross_group({.name = "cross"}));
    groups_.push_back(*job.split(job.rank() % 2, job.rank(), {.name = "parity"}));
    groups_.push_back(job.group(reversed, {.name = "reversed"}));
    expect_members();
  }

  /// Even rounds have exact sums.
  void round(int round, Digest& digest) {
    Digest own;
    for (Group& group : groups_) sums(group, round, own);
    // The results differ from group to group; together they are the same on all ranks.
    auto all = static_cast<std::int64_t>(own.value());
    const BufferView view{&all, 1, DType::kInt64};
    job_.all_reduce("digest", view).wait();
    digest.add(view);
  }

 private:
  static constexpr std::size_t kPart = 5000;

  /// Nodes are those of `KOLO_NODE_ID`, which all ranks have or none, in the order of their first
  /// ranks.
  void expect_members() {
    using Id = std::uint64_t;
    const char* const text = std::getenv("KOLO_NODE_ID");
    Id mine = 0;
    for (const char c : std::string_view(text == nullptr ? "" : text)) {
      mine = mine * 31 + static_cast<unsigned char>(c);
    }
    std::vector<Id> ids(static_cast<std::size_t>(job_.world_size()));
    job_.all_gather("ids of nodes",
                    {{&mine, 1, DType::kInt64}, {ids.data(), ids.size(), DType::kInt64}})
        .wait();
    const auto own_place = std::count(ids.begin(), ids.begin() + job_.rank(), mine);
    std::vector<int> of_node, of_place;
    for (auto node = ids.begin(); node != ids.end(); ++node) {
      if (std::find(ids.begin(), node, *node) != node) continue;  // Not its first rank.
      std::vector<int> ranks;
      for (int rank = 0; rank < job_.world_size(); ++rank) {
        if (ids[static_cast<std::size_t>(rank)] == *node) ranks.push_back(rank);
      }
      if (own_place < std::ssize(ranks)) {
        of_place.push_back(ranks[static_cast<std::size_t>(own_place)]);
      }
      if (*node == mine) of_node = ranks;
    }
    if (groups_[0].ranks_of_job() != of_node) throw WrongSum("the group of the node is wrong");
    if (groups_[1].ranks_of_job() != of_place) throw WrongSum("the group across nodes is wrong");
  }

  void sums(Group& group, int round, Digest& digest) {
    const auto parts = static_cast<std::size_t>(group.size());
    std::vector<float> input(parts * kPart), sum(parts * kPart), rooted(parts * kPart), part(kPart);
    for (std::size_t i = 0; i < input.size(); ++i) {
      input[i] = round % 2 == 0 ? static_cast<float>(whole(job_.rank(), round, i))
                                : fraction(job_.rank(), round, i);
    }
    const auto view = [](std::vector<float>& data) {
      return BufferView{data.data(), data.size(), DType::kFloat32};
    };
    group.all_reduce("sum", {input, sum}).wait();
    group.reduce("root", {input, rooted}, group.size() - 1).wait();
    group.reduce_scatter("parts", {input, part}).wait();
    pass_on(group, input);
    for (std::size_t i = 0; i < input.size(); ++i) {
      int expected = 0;
      for (int rank : group.ranks_of_job()) expected += whole(rank, round, i);
      if (round % 2 != 0 || sum[i] == static_cast<float>(expected)) continue;
      throw WrongSum("a group's sum: element " + std::to_string(i) + " is wrong");
    }
    digest.add(view(sum));
    if (group.rank() == group.size() - 1) digest.add(view(rooted));
    digest.add(view(part));
  }

  /// Around the ring of a group's ranks, with one tag in all groups.
  static void pass_on(Group& group, std::vector<float>& mine) {
    const int ranks = group.size();
    const int source = (group.rank() + ranks - 1) % ranks;
    std::vector<float> received(mine.size()), expected(mine.size());
    const auto view = [](std::vector<float>& data) {
      return BufferView{data.data(), data.size(), DType::kFloat32};
    };
    Ticket sent = group.send(view(mine), (group.rank() + 1) % ranks);
    const Received got = group.recv(view(received), kAnyRank).received();
    sent.wait();
    group.broadcast("of rank 0", view(expected = mine), 0).wait();
    const bool is_right = got.source == source && got.count == mine.size();
    if (!is_right || (source == 0 && received != expected)) {
      throw WrongSum("a group's message is wrong");
    }
  }

  Runtime& job_;
  std::vector<Group> groups_;
};

}  // namespace kolo::test
