#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine/joining.h"
#include "tests/support/engine_job.h"
#include "tests/support/sanitized.h"

/// Helpers for tests of ranks that run out of data.
namespace kolo::joined {

using test::EngineJob;

inline const std::vector<std::vector<int>> kShapes = {{1}, {2}, {1, 1}, {3}, {2, 2}, {2, 1, 1}};

/// Returns the number of seeds for a test that is slow under a sanitizer.
constexpr unsigned seeds(unsigned count) { return test::kSanitized ? (count + 3) / 4 : count; }

inline Options options() {
  return {.fusion_bytes = 1U << 10, .chunk_bytes = 512, .verify_schedules = true};
}

inline std::shared_ptr<JoinTicket> join(EngineJob& job, int rank) {
  auto ticket = std::make_shared<JoinTicket>();
  job.engine(rank).submit(ticket);
  return ticket;
}

/// Returns the last rank that joined, or the error of the ticket.
inline std::string outcome(JoinTicket& ticket) {
  if (!ticket.done()) return "not done";
  try {
    ticket.wait(std::chrono::milliseconds(1));
    return std::to_string(ticket.last);
  } catch (const KoloError& e) {
    return e.what();
  }
}

inline void expect_all_joined(EngineJob& job,
                              const std::vector<std::shared_ptr<JoinTicket>>& tickets,
                              const std::string& last) {
  job.run_until([&] {
    return std::ranges::all_of(tickets, [](const auto& ticket) { return ticket->done(); });
  });
  for (const auto& ticket : tickets) EXPECT_EQ(outcome(*ticket), last);
}

}  // namespace kolo::joined
