#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/error.h"
#include "comm/coordinator/rank_set.h"
#include "runtime/calls/operation_calls.h"
#include "tests/support/engine_job.h"
#include "tests/support/group_job.h"

/// Helpers for tables of calls in which members of a group disagree.
namespace kolo::mismatch {

using test::GroupJob;

/// Captures the log, because every error is logged. Prints it if the test fails.
class CapturedLog {
 public:
  CapturedLog() { testing::internal::CaptureStderr(); }
  ~CapturedLog() {
    const std::string log = testing::internal::GetCapturedStderr();
    if (testing::Test::HasFailure()) std::cerr << log;
  }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;
};

/// A call of one member.
struct Called {
  std::function<bool()> done;
  std::function<std::string()> error;  ///< "CLASS: TEXT", or empty. Before: the call is done.
};

inline std::string error_of(TicketState& ticket) {
  try {
    ticket.wait(std::chrono::milliseconds(1));
    return {};
  } catch (const KoloError& e) {
    return std::string(to_string(e.error().code)) + ": " + e.what();
  }
}

/// Makes a call that counts as waited for. `memory` exists as long as the call.
inline Called called(const std::shared_ptr<TicketState>& ticket,
                     std::shared_ptr<const void> memory = {}) {
  ticket->event();
  return {.done = [ticket] { return ticket->done(); },
          .error = [ticket, memory = std::move(memory)] { return error_of(*ticket); }};
}

/// The ranks that disagree: all ranks of the job, or the members of a group.
struct Members {
  std::string prefix;            ///< Begins their error texts.
  std::vector<Engine*> engines;  ///< By rank in the group.
  const ProcessGrid* grid;

  int size() const { return static_cast<int>(engines.size()); }
  Engine& engine(int rank) const { return *engines[static_cast<std::size_t>(rank)]; }
};

/// The engines of four ranks on two nodes, and of a group of three of them, in one thread.
class MismatchJob {
 public:
  explicit MismatchJob(std::uint64_t seed)
      : job_(ProcessGrid::with_node_sizes({2, 2}), seed, std::size_t{4} << 20, options()),
        grid_(ProcessGrid::with_node_sizes({2, 2})),
        created_(job_.create_all({3, 0, 2}, "pp", std::size_t{1} << 19)) {
    all_.grid = &grid_;
    for (int rank = 0; rank < job_.world_size(); ++rank) {
      all_.engines.push_back(&job_.engine(rank));
    }
    some_.prefix = "group 'pp' [3, 0, 2]: ";
    some_.grid = &created_.front()->grid();
    for (const auto& member : created_) some_.engines.push_back(&member->engine());
  }

  GroupJob& job() { return job_; }
  const Options& options_in_force() const { return options_; }
  std::vector<const Members*> both() const { return {&all_, &some_}; }

  /// Runs the job until all calls are done.
  void finish(const std::vector<Called>& calls) {
    job_.run_until(
        [&] { return std::ranges::all_of(calls, [](const Called& call) { return call.done(); }); },
        std::chrono::milliseconds(5));
  }

  /// Checks that all calls have the same mismatch error. It quotes the submission of each rank,
  /// which is in `texts`, by rank.
  static std::string expect_disagreement(const Members& members, const std::vector<Called>& calls,
                                         const std::vector<std::string>& texts) {
    const std::string error = expect_common_error(calls);
    EXPECT_THAT(error, testing::StartsWith("mismatch: " + members.prefix + "agree"));
    const auto ranks_by_text = by_text(texts);
    EXPECT_GT(ranks_by_text.size(), 1u);
    for (const auto& [text, ranks] : ranks_by_text) {
      const char* const verb = ranks.count() == 1 ? " submits " : " submit ";
      EXPECT_THAT(error, testing::HasSubstr(ranks_text(ranks) + verb + text));
    }
    return error;
  }

  /// Checks that all calls have the same stall error. It quotes the call for which each rank waits,
  /// which is in `texts`, by rank; empty for ranks that did not call.
  static void expect_stall(const Members& members, const std::vector<Called>& calls,
                           const std::vector<std::string>& texts) {
    const std::string error = expect_common_error(calls);
    EXPECT_THAT(error, testing::StartsWith("stall: " + members.prefix + "agree of 'x': "));
    for (const auto& [text, ranks] : by_text(texts)) {
      const char* const verb = ranks.count() == 1 ? " waits for " : " wait for ";
      EXPECT_THAT(error,
                  testing::HasSubstr(text.empty() ? "which " + ranks_text(ranks) +
                                                        (ranks.count() == 1 ? " has" : " have") +
                                                        " not submitted"
                                                  : ranks_text(ranks) + verb + text));
    }
  }

  /// Checks that all calls have the same error. It quotes the ranks that waited; their calls are in
  /// `texts`, by rank; empty for other ranks.
  static void expect_late_error(const Members& members, const std::vector<Called>& calls,
                                const std::vector<std::string>& texts) {
    const std::string error = expect_common_error(calls);
    EXPECT_THAT(error,
                testing::AnyOf(testing::StartsWith("stall: " + members.prefix + "agree of "),
                               testing::StartsWith("mismatch: " + members.prefix + "agree of ")));
    for (const auto& [text, ranks] : by_text(texts)) {
      EXPECT_THAT(error, testing::HasSubstr(text));
      if (!text.empty()) {
        EXPECT_THAT(error, testing::HasSubstr(ranks_text(ranks)));
      }
    }
  }

  void expect_success(const std::vector<Called>& calls) {
    finish(calls);
    for (const Called& call : calls) EXPECT_EQ(call.error(), "");
  }

  /// Checks the sums of an all-reduce by all ranks of the job, and of one by the group.
  void expect_sums_everywhere() {
    std::vector<Called> calls;
    std::vector<std::vector<float>> data;
    data.reserve(all_.engines.size() + some_.engines.size());
    for (const Members* const members : both()) {
      for (int rank = 0; rank < members->size(); ++rank) {
        data.emplace_back(10, 1.0F);
        const OperationCalls make(pool_, rank, members->size());
        auto operation = make.make(OperationKind::kAllReduce, "something else", data.back());
        members->engine(rank).submit(operation);
        calls.push_back(called(operation->ticket, operation));
      }
    }
    expect_success(calls);
    for (std::size_t i = 0; i < data.size(); ++i) {
      const std::size_t contributions = i < all_.engines.size() ? all_.engines.size() : 3;
      EXPECT_THAT(data[i], testing::Each(static_cast<float>(contributions)));
    }
  }

 private:
  static std::string expect_common_error(const std::vector<Called>& calls) {
    for (const Called& call : calls) EXPECT_EQ(call.error(), calls.front().error());
    return calls.front().error();
  }

  static std::map<std::string, RankSet> by_text(const std::vector<std::string>& texts) {
    std::map<std::string, RankSet> ranks;
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      ranks[texts[rank]].add(RankSet(static_cast<int>(rank)));
    }
    return ranks;
  }

  static Options options() {
    return {.arena_bytes = GroupJob::kJobArena,
            .mismatch_after = std::chrono::milliseconds(20),
            .operation_timeout = std::chrono::milliseconds(500)};
  }

  const Options options_ = options();
  GroupJob job_;
  const ProcessGrid grid_;
  std::vector<std::shared_ptr<GroupEngine>> created_;
  Members all_, some_;
  OperationPool pool_;
};

/// A field in which calls may differ.
template <typename Terms>
struct Field {
  const char* name;
  void (*change)(Terms& terms);
  std::string (*value)(const Terms& terms, int ranks);  ///< Returns the value as errors quote it.
};

/// Returns the terms of each member. Member 1 differs from `base` in one field, and member 2 in
/// another one if the fields differ.
template <typename Terms>
std::vector<Terms> disagreement(const Terms& base, int ranks, const Field<Terms>& of_1,
                                const Field<Terms>& of_2) {
  std::vector<Terms> terms(static_cast<std::size_t>(ranks), base);
  of_1.change(terms[1]);
  if (of_1.name != of_2.name) of_2.change(terms[2]);
  return terms;
}

}  // namespace kolo::mismatch
