// One rank of a job that the tests of this folder start, break and watch. What it does is its first
// argument; what came of it is one line on standard output and the exit status:
//
//   all_reduce ROUNDS   single tensors of several sizes, dtypes and operations; every sum checked
//   gradients ROUNDS    a set of gradients; exact sums checked, and a digest of all result bits
//   groups ROUNDS       sums in groups of ranks that overlap; exact ones checked, and a digest
//   uneven ROUNDS       gradients that some ranks lack, over contributing ranks and samples, and
//                       ranks that join; checked, and a digest
//   rows ROUNDS         row-sparse all-reduces; exact sums checked, and a digest
//   delayed SEED [WIRE] every collective that reduces, and sets of gradients, in the job and in
//                       groups, until all have joined, after delays and in an order that the seed
//                       decides; a digest. WIRE: a 16-bit dtype
//   mismatch CALL FIELD rank 1 submits another shape, dtype, op or name to all_reduce or
//                       register_gradients; then everybody goes on with the next tensor
//   endless CALL        all_reduce or gradients until something goes wrong
//   straggle CALL       all_reduce, gradients or register once, then once more, the last rank only
//                       when a line has come from standard input
//   close               works and closes; the last rank after a line from standard input
//   drop COUNT          drops and closes groups with sums of COUNT elements in flight; all checked
//   outstanding MORE    closes with calls in flight, the last rank with MORE that nobody else makes
//   leave | throw       the last rank ends after the first sum: orderly, or by an exception
//   messages ROUNDS     every rank sends to every rank, itself too, by all ways that messages take
//   unfit FIELD         rank 0 sends the last rank a message of another length or dtype; then
//                       messages
//   receive             all ranks but the last wait for a message from it, or from any rank; it
//                       does nothing
//   keep | exit         a static variable holds the job; works and returns, or exits in a thread
//   fork                forks a child in which every call is refused
//   huge CALL           a message, a collective or the table of a row-sparse sum of more than 4 GiB
//   idle                works, says so, and then does nothing until standard input ends
//
// SIGUSR1 holds the main thread where it is until SIGUSR2.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/api/kolo.h"
#include "tests/integration/job_closing.h"
#include "tests/integration/job_delayed.h"
#include "tests/integration/job_groups.h"
#include "tests/integration/job_huge.h"
#include "tests/integration/job_rows.h"
#include "tests/integration/job_uneven.h"
#include "tests/integration/job_values.h"
#include "tests/integration/stuck_call.h"

namespace {

using kolo::DType;
using kolo::ReduceOp;
using kolo::Runtime;
using kolo::test::DelayedSums;
using kolo::test::Digest;
using kolo::test::fraction;
using kolo::test::Groups;
using kolo::test::move_huge;
using kolo::test::RunsOutOfData;
using kolo::test::sum_of_whole;
using kolo::test::TableRows;
using kolo::test::UnevenGradients;
using kolo::test::whole;
using kolo::test::WrongSum;
using Arguments = std::vector<std::string>;

template <typename T>
void reduce_and_check(Runtime& job, DType dtype, std::size_t count, int round, Digest& digest) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(whole(job.rank(), round, i));
  const std::string name =
      std::string(to_string(dtype)) + " tensor of " + std::to_string(count) + " elements";
  const kolo::BufferView view{values.data(), count, dtype};
  job.all_reduce(name, view).wait();
  for (std::size_t i = 0; i < count; ++i) {
    if (values[i] == static_cast<T>(sum_of_whole(job.world_size(), round, i))) continue;
    throw WrongSum(name + ": element " + std::to_string(i) + " is wrong");
  }
  digest.add(view);
}

void all_reduce_round(Runtime& job, int round, Digest& digest) {
  for (const std::size_t count : std::initializer_list<std::size_t>{1, 3, 1000, 4097, 300'001}) {
    reduce_and_check<float>(job, DType::kFloat32, count, round, digest);
    reduce_and_check<double>(job, DType::kFloat64, count, round, digest);
    reduce_and_check<std::int32_t>(job, DType::kInt32, count, round, digest);
  }
  std::int64_t greatest = job.rank();
  job.all_reduce("greatest rank", {&greatest, 1, DType::kInt64}, ReduceOp::kMax).wait();
  if (greatest != job.world_size() - 1) throw WrongSum("greatest rank: wrong");
  job.barrier().wait();
}

/// Gradients in memory of the caller and of the runtime, computed in another order on every rank.
class Gradients {
 public:
  explicit Gradients(Runtime& job) : job_(job), set_(make(job, memory_)) {}

  /// Even rounds have exact sums.
  void round(int round, Digest& digest) {
    for (std::size_t k = 0; k < set_.size(); ++k) {
      const std::size_t index = (k + static_cast<std::size_t>(job_.rank() + round)) % set_.size();
      float* values = static_cast<float*>(set_.view(index).data);
      for (std::size_t i = 0; i < set_.view(index).count; ++i) {
        values[i] = round % 2 == 0 ? static_cast<float>(whole(job_.rank(), round, i))
                                   : fraction(job_.rank(), round, i);
      }
      set_.ready(index);
    }
    set_.wait();
    for (std::size_t index = 0; index < set_.size(); ++index) {
      if (round % 2 == 0) check(index, round);
      digest.add(set_.view(index));
    }
  }

 private:
  static constexpr std::size_t kCounts[] = {1, 7, 1000, 4096, 30'000, 300'001, 65'537, 3};

  static kolo::GradientSet make(Runtime& job, std::vector<std::vector<float>>& memory) {
    std::vector<kolo::GradientSpec> specs;
    for (std::size_t count : kCounts) {
      const bool own = specs.size() % 2 == 0;
      memory.emplace_back(own ? count : 0);
      specs.push_back({.name = "gradient " + std::to_string(specs.size()),
                       .shape = {count},
                       .data = own ? memory.back().data() : nullptr});
    }
    return job.register_gradients("gradients", std::move(specs), {.op = ReduceOp::kSum});
  }

  void check(std::size_t index, int round) const {
    const kolo::BufferView view = set_.view(index);
    const auto* values = static_cast<const float*>(view.data);
    for (std::size_t i = 0; i < view.count; ++i) {
      if (values[i] == static_cast<float>(sum_of_whole(job_.world_size(), round, i))) continue;
      throw WrongSum("gradient " + std::to_string(index) + ": element " + std::to_string(i) +
                     " is wrong");
    }
  }

  Runtime& job_;
  std::vector<std::vector<float>> memory_;
  kolo::GradientSet set_;
};

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
  if (call == "uneven") {
    auto gradients = std::make_shared<UnevenGradients>(job);
    auto joins = std::make_shared<RunsOutOfData>(job);
    return [gradients, joins](int round, Digest& digest) {
      gradients->round(round, digest);
      joins->round(round, digest);
    };
  }
  if (call == "rows") {
    auto rows = std::make_shared<TableRows>(job);
    return [rows](int round, Digest& digest) { rows->round(round, digest); };
  }
  auto gradients = std::make_shared<Gradients>(job);
  return [gradients](int round, Digest& digest) { gradients->round(round, digest); };
}

void work(Runtime& job, const Round& round, int rounds) {
  Digest digest;
  for (int i = 0; i < rounds; ++i) round(i, digest);
  const std::uint64_t network_bytes = job.network_bytes_sent();
  job.close();
  say(job, "done on node " + std::to_string(job.node()) + " of " + std::to_string(job.num_nodes()) +
               ", digest " + hexadecimal(digest.value()) + ", " + std::to_string(network_bytes) +
               " bytes to other nodes");
}

void work(Runtime& job, const std::string& call, int rounds) {
  work(job, round_of(job, call), rounds);
}

void delayed(Runtime& job, const Arguments& arguments) {
  std::optional<DType> wire;
  if (arguments.size() > 2) wire = kolo::parse_dtype(arguments[2]);
  DelayedSums sums(job, static_cast<unsigned>(std::stoul(arguments.at(1))), wire);
  work(
      job, [&sums](int round, Digest& digest) { sums.round(round, digest); }, 2);
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

void mismatch(Runtime& job, const std::string& call, const std::string& field) {
  const bool odd = job.rank() == 1;
  const std::string name = odd && field == "name" ? "odd" : "even";
  const std::size_t count = odd && field == "shape" ? 11 : 10;
  const DType dtype = odd && field == "dtype" ? DType::kInt32 : DType::kFloat32;
  const ReduceOp op = odd && field == "op" ? ReduceOp::kMax : ReduceOp::kSum;
  std::vector<float> values(count);
  try {
    if (call == "all_reduce") {
      job.all_reduce(name, {values.data(), count, dtype}, op).wait();
    } else {
      job.register_gradients(
          "set",
          {{.name = "same", .shape = {1}}, {.name = name, .shape = {count, 2}, .dtype = dtype}},
          {.op = op});
    }
    say(job, "no error");
  } catch (const kolo::KoloError& e) {
    say(job, "refused with " + std::to_string(exit_status(e.error().code)) + ": " + e.error().what);
  }
  work(job, call, 2);
}

void part(Runtime& job, bool by_exception) {
  Digest digest;
  all_reduce_round(job, 0, digest);
  if (job.rank() != job.world_size() - 1) return endless(job, "all_reduce");
  if (by_exception) throw std::runtime_error("this rank has had enough");
  std::vector<float> values(1000);
  std::vector<kolo::Ticket> alone;
  for (int i = 0; i < 10; ++i) {
    alone.push_back(job.all_reduce("alone " + std::to_string(i), values));
  }
  job.close();
}

/// Two runtimes at once, and then one after another.
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

/// On both sides of each limit between the ways in which messages travel.
constexpr std::size_t kMessageCounts[] = {0, 1, 1024, 1025, 65'536, 65'537, 1'000'000};

void messages_round(Runtime& job, int round) {
  std::vector<float> in(kMessageCounts[std::size(kMessageCounts) - 1]);
  for (std::uint64_t tag = 0; tag < std::size(kMessageCounts); ++tag) {
    const std::size_t count = kMessageCounts[tag];
    std::vector<float> out(count);
    for (std::size_t i = 0; i < count; ++i)
      out[i] = static_cast<float>(whole(job.rank(), round, i));
    std::vector<kolo::Ticket> sent;
    for (int peer = 0; peer < job.world_size(); ++peer) {
      sent.push_back(job.send({out.data(), count, DType::kFloat32}, peer, tag));
    }
    std::vector<bool> heard(static_cast<std::size_t>(job.world_size()));
    for (int i = 0; i < job.world_size(); ++i) {
      const bool names_peer = round % 2 == 0;
      const kolo::Received got = job.recv(in, names_peer ? i : kolo::kAnyRank, tag).received();
      heard.at(static_cast<std::size_t>(got.source)) = true;
      if (got.count != count) throw WrongSum("a message has another length");
      for (std::size_t k = 0; k < count; ++k) {
        if (in[k] == static_cast<float>(whole(got.source, round, k))) continue;
        throw WrongSum("a message: element " + std::to_string(k) + " is wrong");
      }
    }
    for (const bool each : heard) {
      if (!each) throw WrongSum("a rank was not heard");
    }
    for (kolo::Ticket& ticket : sent) ticket.wait();
    job.barrier().wait();  // Nobody's message of the next round comes from any rank in this one.
  }
}

void messages(Runtime& job, int rounds) {
  for (int round = 0; round < rounds; ++round) messages_round(job, round);
  const std::uint64_t network_bytes = job.network_bytes_sent();
  job.close();
  say(job, "all messages were right, " + std::to_string(network_bytes) + " bytes to other nodes");
}

void unfit(Runtime& job, const std::string& field) {
  constexpr std::uint64_t kTag = 77;
  std::vector<float> values(100'000);
  const bool is_long = field == "length";
  const kolo::BufferView into{values.data(), is_long ? std::size_t{10} : std::size_t{50'000},
                              is_long ? DType::kFloat32 : DType::kInt64};
  const int last = job.world_size() - 1;
  try {
    if (job.rank() == 0) job.send(values, last, kTag).wait();
    if (job.rank() == last) job.recv(into, 0, kTag).wait();
  } catch (const kolo::KoloError& e) {
    say(job, "refused with " + std::to_string(exit_status(e.error().code)) + ": " + e.error().what);
  }
  messages(job, 2);
}

void receive(Runtime& job) {
  std::vector<float> values(10);
  const int last = job.world_size() - 1;
  messages_round(job, 0);
  say(job, "in the middle");
  if (job.rank() == last) {
    std::string line;
    std::getline(std::cin, line);
  } else {
    job.recv(values, job.rank() % 2 == 0 ? last : kolo::kAnyRank, 5).wait();
  }
}

void huge(Runtime& job, const std::string& call) {
  move_huge(job, call);
  job.close();
  say(job, "all " + call + " bytes were right");
}

/// Ends after everything static that its life has made.
std::optional<Runtime> kept;

void play(Runtime& job, const Arguments& arguments) {
  const std::string& scene = arguments.at(0);
  if (scene == "all_reduce" || scene == "gradients" || scene == "groups" || scene == "uneven" ||
      scene == "rows") {
    work(job, scene, std::stoi(arguments.at(1)));
  } else if (scene == "delayed") {
    delayed(job, arguments);
  } else if (scene == "mismatch") {
    mismatch(job, arguments.at(1), arguments.at(2));
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
    messages_round(job, 0);
    kept.emplace(std::move(job));
  } else if (scene == "messages") {
    messages(job, std::stoi(arguments.at(1)));
  } else if (scene == "unfit") {
    unfit(job, arguments.at(1));
  } else if (scene == "receive") {
    receive(job);
  } else if (scene == "huge") {
    huge(job, arguments.at(1));
  } else if (scene == "idle") {
    idle(job);
  } else if (!kolo::test::play_end(job, arguments)) {
    throw std::invalid_argument("there is no scene '" + scene + "'");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments(argv + 1, argv + argc);
  kolo::test::hold_main_thread_on_signal();
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
