#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/api/kolo.h"
#include "tests/integration/job_values.h"

/// Ends groups, jobs and processes with calls in flight.
namespace kolo::test {

/// Sums once over all ranks, and checks the result.
inline void sum_once(Runtime& job, int round) {
  std::vector<float> values(1000);
  write_whole(values, job.rank(), round);
  job.all_reduce("once", values).wait();
  expect_sums(values, ranks_of(job), round, "once");
}

/// Forks a child in which every call must be refused, and whose exit handlers run. Errors:
/// std::runtime_error if a call is not refused.
inline void fork_a_child(Runtime& job) {
  std::vector<float> values(10);
  const BufferView view{values.data(), values.size()};
  GradientSet set = job.register_gradients("model", {{.name = "g", .shape = {10}}});
  std::vector<float> received(10);
  Ticket late = job.recv({received.data(), received.size()}, job.rank(), 3);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::function<void()> calls[] = {
        [&] { job.all_reduce("x", view).wait(); },
        [&] { job.barrier().wait(); },
        [&] { job.send(view, 0).wait(); },
        [&] { job.group({job.rank()}); },
        [&] { job.register_gradients("more", {{.name = "g", .shape = {10}}}); },
        [&] { set.ready(0); },
        [&] { late.wait(); },
        [&] { job.allocate(10); },
        [&] { job.join(); },
        [&] { job.abort("a child"); },
        [&] { job.close(); },
    };
    int refused = 0;
    for (const auto& call : calls) {
      try {
        call();
      } catch (const UsageError& e) {
        if (e.error().what.find("was forked from") != std::string::npos) ++refused;
      }
    }
    { const Runtime gone = std::move(job); }
    std::exit(refused == std::ssize(calls) ? EXIT_SUCCESS : 100 + refused);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  if (status != 0) throw std::runtime_error("the child ended with " + std::to_string(status));
  job.send(view, job.rank(), 3).wait();
  late.wait();
  sum_once(job, 0);
}

/// Releases and closes groups with sums in flight, and checks that the sums complete. Each summed
/// value identifies its rank, round and index.
inline void drop_groups(Runtime& job, std::size_t count) {
  constexpr int kRounds = 12;
  const std::vector<int> all = ranks_of(job);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<float> values(count);
    std::optional<Group> group(job.group(all, {.name = "dropped"}));
    const bool is_warm = round % 2 == 1;
    if (is_warm) group->all_reduce("x", values).wait();
    write_whole(values, job.rank(), round);
    Ticket ticket = group->all_reduce("x", values);
    if (round % 3 == 0) group->close();
    group.reset();
    ticket.wait();
    expect_sums(values, all, round, "of a group that was dropped");
  }
  sum_once(job, 1);
}

/// Closes all ranks with 300 calls in flight. The last rank has `more` calls that no other rank
/// has. Prints the number of failed calls.
inline void close_with_calls(Runtime& job, int more) {
  constexpr std::size_t kCalls = 300, kCount = 1000;
  const int rank = job.rank(), ranks = job.world_size();
  const std::size_t calls = kCalls + static_cast<std::size_t>(rank == ranks - 1 ? more : 0);
  std::vector<std::vector<float>> data;
  std::vector<Ticket> tickets;
  for (std::size_t call = 0; call < calls; ++call) {
    data.emplace_back(kCount, static_cast<float>(whole(rank, 0, call)));
    tickets.push_back(job.all_reduce("call " + std::to_string(call), {data.back().data(), kCount}));
  }
  job.close();
  int failed = 0;
  for (std::size_t call = 0; call < calls; ++call) {
    try {
      tickets[call].wait();
    } catch (const KoloError& e) {
      if (++failed == 1) std::printf("rank %d: failed: %s\n", rank, e.error().what.c_str());
      continue;
    }
    const auto sum = static_cast<float>(sum_of_whole(ranks, 0, call));
    if (data[call] != std::vector<float>(kCount, sum))
      throw WrongSum("of call " + std::to_string(call));
  }
  std::printf("rank %d: %d of %zu failed\n", rank, failed, calls);
}

/// One thread of the last rank calls exit() while another thread sums. The other ranks sum until
/// they get the error.
inline void exit_in_a_thread(Runtime& job) {
  static std::optional<Runtime> kept;
  kept.emplace(std::move(job));
  const bool exits = kept->rank() == kept->world_size() - 1;
  std::promise<void> has_summed;
  if (exits) {
    std::thread([summed = has_summed.get_future()] {
      summed.wait();
      std::exit(EXIT_SUCCESS);
    }).detach();
  }
  try {
    for (int round = 0;; ++round) {
      sum_once(*kept, round);
      if (exits && round == 0) has_summed.set_value();
    }
  } catch (const KoloError& e) {
    // Returning from this thread would also end the process.
    while (exits) ::pause();
    std::printf("rank %d: told: %s\n", kept->rank(), e.error().what.c_str());
  }
}

/// Runs one of these scenes; returns false if there is no scene of this name.
inline bool play_end(Runtime& job, const std::vector<std::string>& arguments) {
  const std::string& scene = arguments.at(0);
  if (scene == "exit") {
    exit_in_a_thread(job);
    return true;
  }
  if (scene == "fork") {
    fork_a_child(job);
  } else if (scene == "drop") {
    drop_groups(job, std::stoul(arguments.at(1)));
  } else if (scene == "outstanding") {
    close_with_calls(job, std::stoi(arguments.at(1)));
  } else {
    return false;
  }
  job.close();
  std::printf("rank %d: all that was in flight has ended\n", job.rank());
  return true;
}

}  // namespace kolo::test
