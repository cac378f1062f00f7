// Tickets that are waited for piece by piece or through a descriptor, and operations without names.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "tests/runtime/api/runtime_calls.h"

namespace kolo::test {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

bool is_readable(int descriptor, milliseconds limit) {
  pollfd poll{.fd = descriptor, .events = POLLIN, .revents = 0};
  return ::poll(&poll, 1, static_cast<int>(limit.count())) == 1;
}

// The second rank begins when the first one has seen that nothing is there yet.
TEST(RuntimeTickets, AreWaitedForPieceByPieceAndThroughADescriptor) {
  std::atomic<bool> may_begin{false};
  RuntimeJob(2, test_options()).run([&](Runtime& runtime) {
    std::vector<float> data(10, 1.0F), message(3);
    if (runtime.rank() == 0) {
      Ticket sum = runtime.all_reduce_async("sum", view(data));
      ReceiveTicket receive = runtime.recv_async(view(message), 1);
      require(!sum.wait_for(milliseconds(0)) && !sum.wait_for(milliseconds(5)), "sum too early");
      require(!receive.wait_for(milliseconds(5)), "message too early");
      require(!is_readable(sum.event(), milliseconds(0)), "readable too early");
      may_begin = true;
      require(is_readable(sum.event(), milliseconds(60'000)), "sum");
      require(is_readable(receive.event(), milliseconds(60'000)), "message");
      require(sum.done() && sum.wait_for(milliseconds(0)), "a sum that is done");
      require(receive.wait_for(milliseconds(0)), "a message that is there");
      require(receive.received().source == 1 && receive.received().count == 3, "what was received");
      const Ticket over = sum;
      require(is_readable(Ticket(over).event(), milliseconds(0)), "a descriptor made afterwards");
    } else {
      while (!may_begin) std::this_thread::yield();
      runtime.all_reduce("sum", view(data));
      runtime.send(view(message), 0);
    }
    require(data == std::vector<float>(10, 2.0F), "the sum");
  });
}

TEST(RuntimeTickets, GiveTheErrorOfTheOperationPieceByPiece) {
  Texts errors(2);
  RuntimeJob(2, test_options()).run([&](Runtime& runtime) {
    std::vector<float> data(runtime.rank() == 0 ? 10 : 11);
    Ticket ticket = runtime.all_reduce_async("x", view(data));
    errors.set(runtime.rank(), error_of([&] {
                 while (!ticket.wait_for(milliseconds(20))) {
                 }
               }));
  });
  for (const std::string& error : errors.all()) EXPECT_THAT(error, HasSubstr("mismatch"));
}

// Rank 1 neither submits the tensor nor waits, and might submit it as far as Kolo knows.
TEST(RuntimeTickets, AStallEndsAWaitThroughADescriptor) {
  Options options = test_options();
  options.stall_abort = milliseconds(200);
  std::string error;
  std::atomic<bool> is_over{false};
  RuntimeJob(2, options).run([&](Runtime& runtime) {
    if (runtime.rank() == 0) {
      std::vector<float> data(10);
      Ticket ticket = runtime.all_reduce_async("x", view(data));
      const bool has_ended = is_readable(ticket.event(), milliseconds(60'000));
      is_over = true;
      require(has_ended, "no end");
      error = error_of([&] { ticket.wait(); });
    } else {
      while (!is_over) std::this_thread::sleep_for(milliseconds(1));
    }
  });
  EXPECT_THAT(error, AllOf(HasSubstr("stall"), HasSubstr("'x'"), HasSubstr("rank 1")));
}

TEST(RuntimeTickets, AStallEndsAWaitThroughTheDescriptorOfASet) {
  Options options = test_options();
  options.stall_abort = milliseconds(200);
  std::string error;
  std::atomic<bool> is_over{false};
  RuntimeJob(2, options).run([&](Runtime& runtime) {
    auto set = runtime.register_gradients("set", {{.name = "a", .shape = {10}}});
    if (runtime.rank() == 0) {
      const int event = set.event();
      set.ready(0);
      require(is_readable(event, milliseconds(60'000)), "no end");
      error = error_of([&] { set.take_combined(); });
      is_over = true;
    } else {
      while (!is_over) std::this_thread::sleep_for(milliseconds(1));
    }
  });
  EXPECT_THAT(error, AllOf(HasSubstr("stall"), HasSubstr("'set'"), HasSubstr("rank 1")));
}

TEST(RuntimeTickets, OneGradientIsWaitedForPieceByPiece) {
  std::atomic<bool> has_looked{false};
  RuntimeJob(2, test_options()).run([&](Runtime& runtime) {
    auto set = runtime.register_gradients("set", {{.name = "a", .shape = {1}}});
    const auto value = static_cast<float*>(set.view(0).data);
    *value = static_cast<float>(runtime.rank());
    if (runtime.rank() == 0) {
      const int event = set.event();
      set.ready(0);
      require(!set.wait_for(0, milliseconds(0)), "a gradient that is there too early");
      has_looked = true;
      require(is_readable(event, milliseconds(60'000)), "the event");
      require(set.take_combined() == std::vector<std::size_t>{0}, "what is there");
    } else {
      while (!has_looked) std::this_thread::yield();
      set.ready(0);
    }
    while (!set.wait_for(0, milliseconds(20))) {
    }
    require(*value == 0.5F, "the average");
    set.wait();
  });
}

TEST(RuntimeTickets, AnIterationIsWaitedForPieceByPiece) {
  std::atomic<int> iterations{0};
  RuntimeJob(2, test_options()).run([&](Runtime& runtime) {
    std::vector<float> data(10);
    auto set =
        runtime.register_gradients("set", {{.name = "a", .shape = {10}, .data = data.data()}});
    for (int i = 0; i < 3; ++i) {
      data.assign(10, static_cast<float>(runtime.rank()));
      if (runtime.rank() == 0) {
        set.ready(0);
        require(!set.wait_for(milliseconds(0)), "an iteration that is over too early");
        iterations = i + 1;
      } else {
        while (iterations <= i) std::this_thread::yield();
        set.ready(0);
      }
      while (!set.wait_for(milliseconds(20))) {
      }
      require(data == std::vector<float>(10, 0.5F), "the average");
    }
  });
}

TEST(RuntimeTickets, OperationsWithoutNamesMeetByTheirArguments) {
  RuntimeJob(2, test_options()).run([&](Runtime& runtime) {
    std::vector<float> first(3, 1.0F), second(3, 10.0F), other(5, 100.0F);
    std::vector<float> copied(3, static_cast<float>(runtime.rank()));
    std::vector<Ticket> tickets;
    if (runtime.rank() == 0) tickets.push_back(runtime.all_reduce_async("", view(other)));
    tickets.push_back(runtime.all_reduce_async("", view(first)));
    tickets.push_back(runtime.all_reduce_async("", view(second)));
    tickets.push_back(runtime.broadcast_async("", view(copied), 1));
    if (runtime.rank() == 1) tickets.push_back(runtime.all_reduce_async("", view(other)));
    for (Ticket& ticket : tickets) ticket.wait();
    require(first.front() == 2 && second.front() == 20 && other.front() == 200, "sums");
    require(copied.front() == 1, "a copy");
  });
}

TEST(RuntimeTickets, OperationsWithoutNamesThatNeverMeetAreNamedInTheError) {
  Texts errors(2);
  RuntimeJob(2, test_options()).run([&](Runtime& runtime) {
    std::vector<float> data(runtime.rank() == 0 ? 3 : 4);
    errors.set(runtime.rank(), error_of([&] { runtime.all_reduce("", view(data)); }));
  });
  EXPECT_THAT(errors.all()[0], HasSubstr("all_reduce float32 [3] sum"));
  EXPECT_THAT(errors.all()[1], HasSubstr("all_reduce float32 [4] sum"));
}

TEST(RuntimeTickets, ARankThatAbortsTellsTheOthersWhy) {
  Texts errors(3);
  RuntimeJob(3, test_options()).run([&](Runtime& runtime) {
    all_reduce_works(runtime, "x");
    if (runtime.rank() == 1) runtime.abort("has seen enough");
    errors.set(runtime.rank(), error_of([&] {
                 for (;;) runtime.barrier();
               }));
  });
  for (const std::string& error : errors.all()) {
    EXPECT_THAT(error,
                AllOf(HasSubstr("peer lost"), HasSubstr("rank 1: left the job: has seen enough")));
  }
}

}  // namespace
}  // namespace kolo::test
