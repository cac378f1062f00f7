// One rank of a job that the tests of this folder start, disturb and watch. Its first argument
// names its work; the result is one line on standard output and the exit status:
//
//   all_reduce ROUNDS   single tensors of several sizes, dtypes and operations; every sum checked
//   gradients ROUNDS    a set of gradients; exact sums checked, and a digest of all result bits
//   groups ROUNDS       sums in groups of ranks that overlap; exact ones checked, and a digest
//   endless CALL        all_reduce or gradients until something goes wrong
//   straggle CALL       all_reduce, gradients or register once, then once more, the last rank only
//                       when a line has come from standard input
//   close               works and closes; the last rank after a line from standard input
//   drop COUNT          drops and closes groups with sums of COUNT elements in flight; all checked
//   outstanding MORE    closes with calls in flight, the last rank with MORE that nobody else makes
//   leave | throw       the last rank ends after the first sum: orderly, or by an exception
//   keep | exit         a static variable holds the job; works and returns, or exits in a thread
//   fork                forks a child in which every call is refused
//   idle                works, says so, and then does nothing until standard input ends
//
// SIGUSR1 holds the main thread where it is until SIGUSR2.

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/api/kolo.h"
#include "tests/integration/job_closing.h"
#include "tests/integration/job_values.h"

namespace {

using kolo::DType;
using kolo::ReduceOp;
using kolo::Runtime;
using kolo::test::Digest;
using kolo::test::expect_sums;
using kolo::test::Gradients;
using kolo::test::Groups;
using kolo::test::ranks_of;
using kolo::test::write_whole;
using kolo::test::WrongSum;
using Arguments = std::vector<std::string>;

template <typename T>
void reduce_and_check(Runtime& job, std::size_t count, int round, Digest& digest) {
  std::vector<T> values(count);
  write_whole(values, job.rank(), round);
  const kolo::BufferView view = values;
  const std::string name =
      std::string(to_string(view.dtype)) + " tensor of " + std::to_string(count) + " elements";
  job.all_reduce(name, view).wait();
  expect_sums(values, ranks_of(job), round, name);
  digest.add(view);
}

void all_reduce_round(Runtime& job, int round, Digest& digest) {
  for (const std::size_t count : std::initializer_list<std::size_t>{1, 3, 1000, 4097, 300'001}) {
    reduce_and_check<float>(job, count, round, digest);
    reduce_and_check<double>(job, count, round, digest);
    reduce_and_check<std::int32_t>(job, count, round, digest);
  }
  std::int64_t greatest = job.rank();
  job.all_reduce("greatest rank", {&greatest, 1, DType::kInt64}, ReduceOp::kMax).wait();
  if (greatest != job.world_size() - 1) throw WrongSum("greatest rank: wrong");
  job.barrier().wait();
}

void say(const Runtime& job, const std::string& text) {
  const std::string line = "rank " + std::to_string(job.rank()) + ": " + text + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

std::string hexadecimal(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

using Round = std::function<void(int, Digest&)>;

Round round_of(Runtime& job, const std::string& call) {
  if (call == "all_reduce") {
    return [&job](int round, Digest& digest) { all_reduce_round(job, round, digest); };
  }
  if (call == "groups") {
    auto groups = std::make_shared<Groups>(job);
    return [groups](int round, Digest& digest) { groups->round(round, digest); };
  }
  auto gradients = std::make_shared<Gradients>(job);
  return [gradients](int round, Digest& digest) { gradients->round(round, digest); };
}

void work(Runtime& job, const std::string& call, int rounds) {
  const Round round = round_of(job, call);
  Digest digest;
  for (int i = 0; i < rounds; ++i) round(i, digest);
  const std::uint64_t network_bytes = job.network_bytes_sent();
  job.close();
  say(job, "done on node " + std::to_string(job.node()) + " of " + std::to_string(job.num_nodes()) +
               ", digest " + hexadecimal(digest.value()) + ", " + std::to_string(network_bytes) +
               " bytes to other nodes");
}

void endless(Runtime& job, const std::string& call) {
  Digest digest;
  const Round round = round_of(job, call);
  for (int i = 0;; ++i) {
    round(i % 2, digest);
    if (i == 2) say(job, "in the middle");
  }
}

void straggle(Runtime& job, const std::string& call) {
  Digest digest;
  const bool registers = call == "register";
  const Round round = round_of(job, registers ? "all_reduce" : call);
  round(0, digest);
  say(job, "in the middle");
  if (job.rank() == job.world_size() - 1) {
    std::string line;
    std::getline(std::cin, line);
  }
  if (registers) {
    Gradients(job).round(0, digest);
  } else {
    round(1, digest);
  }
  job.close();
  say(job, "done, digest " + hexadecimal(digest.value()));
}

void close(Runtime& job) {
  Digest digest;
  all_reduce_round(job, 0, digest);
  Gradients(job).round(0, digest);
  if (job.rank() == job.world_size() - 1) {
    say(job, "in the middle");
    std::string line;
    std::getline(std::cin, line);
  }
  say(job, "closing");
  job.close();
  say(job, "closed");
}

/// Returns when all ranks of the group call this, or when the job has ended.
void stay_until_all_know(kolo::Group& group) noexcept {
  try {
    group.barrier().wait();
  } catch (const kolo::KoloError&) {
    // Another rank, which knows, has left before this one.
  }
}

void part(Runtime& job, bool by_exception) {
  Digest digest;
  all_reduce_round(job, 0, digest);
  if (job.rank() != job.world_size() - 1) {
    std::vector<int> others(static_cast<std::size_t>(job.world_size() - 1));
    std::iota(others.begin(), others.end(), 0);
    kolo::Group stay = job.group(others);
    try {
      endless(job, "all_reduce");
    } catch (const kolo::KoloError&) {
      // A rank that left at once would be the error of those that have not called yet.
      stay_until_all_know(stay);
      throw;
    }
  }
  if (by_exception) throw std::runtime_error("this rank has had enough");
  std::vector<float> values(1000);
  std::vector<kolo::Ticket> alone;
  for (int i = 0; i < 10; ++i) {
    alone.push_back(job.all_reduce("alone " + std::to_string(i), values));
  }
  job.close();
}

/// Runs two runtimes at the same time, and then one after another.
void jobs(Runtime& job) {
  Digest digest;
  for (int i = 0; i < 2; ++i) {
    Runtime other = Runtime::from_environment();
    all_reduce_round(job, i, digest);
    work(other, "all_reduce", 2);
    all_reduce_round(job, i, digest);
  }
  say(job, "has had three jobs");
}

void idle(Runtime& job) {
  Digest digest;
  Gradients(job).round(0, digest);
  job.barrier().wait();
  say(job, "idle");
  while (std::cin.get() != std::char_traits<char>::eof()) {
  }
  work(job, "all_reduce", 1);
}

/// From now on SIGUSR1 holds the main thread until SIGUSR2, in any call, like a library or system
/// call that does not return. Other threads continue.
void hold_main_thread_on_signal() {
  struct sigaction release = {};
  release.sa_handler = [](int) {};
  ::sigaction(SIGUSR2, &release, nullptr);
  struct sigaction hold = {};
  hold.sa_handler = [](int) {
    sigset_t all_but_release;
    ::sigfillset(&all_but_release);
    ::sigdelset(&all_but_release, SIGUSR2);
    ::sigsuspend(&all_but_release);
  };
  hold.sa_flags = SA_RESTART;
  ::sigaddset(&hold.sa_mask, SIGUSR2);
  ::sigaction(SIGUSR1, &hold, nullptr);
}

/// Destroyed after every static variable that it has created.
std::optional<Runtime> kept;

void play(Runtime& job, const Arguments& arguments) {
  const std::string& scene = arguments.at(0);
  if (scene == "all_reduce" || scene == "gradients" || scene == "groups") {
    work(job, scene, std::stoi(arguments.at(1)));
  } else if (scene == "endless") {
    endless(job, arguments.at(1));
  } else if (scene == "straggle") {
    straggle(job, arguments.at(1));
  } else if (scene == "close") {
    close(job);
  } else if (scene == "leave" || scene == "throw") {
    part(job, scene == "throw");
  } else if (scene == "jobs") {
    jobs(job);
  } else if (scene == "keep") {
    Digest digest;
    all_reduce_round(job, 0, digest);
    kept.emplace(std::move(job));
  } else if (scene == "idle") {
    idle(job);
  } else if (!kolo::test::play_end(job, arguments)) {
    throw std::invalid_argument("there is no scene '" + scene + "'");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments(argv + 1, argv + argc);
  hold_main_thread_on_signal();
  int rank = -1;
  try {
    Runtime job = Runtime::from_environment();
    rank = job.rank();
    play(job, arguments);
    return EXIT_SUCCESS;
  } catch (const kolo::KoloError& e) {
    std::printf("rank %d: error %d about rank %d: %s\n", rank, exit_status(e.error().code),
                e.error().peer, e.error().what.c_str());
    return exit_status(e.error().code);
  } catch (const std::exception& e) {
    std::printf("rank %d: exception: %s\n", rank, e.what());
    return EXIT_FAILURE;
  }
}
