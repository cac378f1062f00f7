// Tests waits for tickets with a time limit or through a descriptor, and operations without names.

#include <gmock/gmock.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

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

// The second rank begins after the first has seen that no ticket is done.
TEST(RuntimeTickets, AreWaitedForPieceByPieceAndThroughADescriptor) {
  std::atomic<bool> may_begin{false};
  RuntimeJob(2, test_options()).run([&](Runtime& runtime) {
    std::vector<float> data(10, 1.0F), message(3);
    if (runtime.rank() == 0) {
      Ticket sum = runtime.all_reduce("sum", view(data));
      Ticket receive = runtime.recv(view(message), 1);
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
      runtime.all_reduce("sum", view(data)).wait();
      runtime.send(view(message), 0).wait();
    }
    require(data == std::vector<float>(10, 2.0F), "the sum");
  });
}

TEST(RuntimeTickets, GiveTheErrorOfTheOperationPieceByPiece) {
  Texts errors(2);
  RuntimeJob(2, test_options()).run([&](Runtime& runtime) {
    std::vector<float> data(runtime.rank() == 0 ? 10 : 11);
    Ticket ticket = runtime.all_reduce("x", view(data));
    errors.set(runtime.rank(), error_of([&] {
                 while (!ticket.wait_for(milliseconds(20))) {
                 }
               }));
  });
  for (const std::string& error : errors.all()) EXPECT_THAT(error, HasSubstr("mismatch"));
}

// Rank 1 neither submits the tensor nor waits, so Kolo must assume that it may still submit it.
TEST(RuntimeTickets, AStallEndsAWaitThroughADescriptor) {
  Options options = test_options();
  options.stall_abort = milliseconds(200);
  std::string error;
  std::atomic<bool> is_over{false};
  RuntimeJob(2, options).run([&](Runtime& runtime) {
    if (runtime.rank() == 0) {
      std::vector<float> data(10);
      Ticket ticket = runtime.all_reduce("x", view(data));
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
    if (runtime.rank() == 0) tickets.push_back(runtime.all_reduce("", view(other)));
    tickets.push_back(runtime.all_reduce("", view(first)));
    tickets.push_back(runtime.all_reduce("", view(second)));
    tickets.push_back(runtime.broadcast("", view(copied), 1));
    if (runtime.rank() == 1) tickets.push_back(runtime.all_reduce("", view(other)));
    for (Ticket& ticket : tickets) ticket.wait();
    require(first.front() == 2 && second.front() == 20 && other.front() == 200, "sums");
    require(copied.front() == 1, "a copy");
  });
}

TEST(RuntimeTickets, OperationsWithoutNamesThatNeverMeetAreNamedInTheError) {
  Texts errors(2);
  RuntimeJob(2, test_options()).run([&](Runtime& runtime) {
    std::vector<float> data(runtime.rank() == 0 ? 3 : 4);
    errors.set(runtime.rank(), error_of([&] { runtime.all_reduce("", view(data)).wait(); }));
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
                 for (;;) runtime.barrier().wait();
               }));
  });
  for (const std::string& error : errors.all()) {
    EXPECT_THAT(error,
                AllOf(HasSubstr("peer lost"), HasSubstr("rank 1: left the job: has seen enough")));
  }
}

// --- Tickets that are dropped
// ---------------------------------------------------------------------

/// Rank 1 begins only when rank 0 has begun and is about to drop its ticket. The drop must
/// therefore wait for the peer.
class Drop {
 public:
  using Begin = std::function<Ticket(Runtime& runtime)>;

  void run(Runtime& runtime, const Begin& begin) {
    if (runtime.rank() == 0) {
      {
        const Ticket dropped = begin(runtime);
        may_begin_ = true;
      }
      require(has_begun_, "the operation of a ticket that was dropped goes on");
    } else {
      while (!may_begin_) std::this_thread::yield();
      has_begun_ = true;
      begin(runtime).wait();
    }
    runtime.barrier().wait();
  }

 private:
  std::atomic<bool> may_begin_{false}, has_begun_{false};
};

TEST(RuntimeDroppedTickets, WaitForWhatIsInFlight) {
  Drop drops[4];
  RuntimeJob(2, test_options()).run([&](Runtime& runtime) {
    auto data = std::make_unique<std::vector<float>>(500'000, 1.0F);
    drops[0].run(runtime, [&](Runtime& of) { return of.all_reduce("sum", *data); });
    require(*data == std::vector<float>(data->size(), 2.0F), "the sum");
    drops[1].run(runtime, [&](Runtime& of) {
      return of.rank() == 0 ? of.send(*data, 1) : of.recv(*data, 0);
    });
    drops[2].run(runtime, [&](Runtime& of) {
      return of.rank() == 0 ? of.recv(*data, 1) : of.send(*data, 0);
    });
    const std::vector<std::int64_t> indices{0, 3};
    const TableRows rows{.table = {.height = 4, .width = 100, .dtype = DType::kFloat32},
                         .indices = indices,
                         .rows = data->data()};
    drops[3].run(runtime, [&](Runtime& of) { return of.sparse_all_reduce("rows", rows); });
    data.reset();
    Ticket copied = runtime.barrier();
    copied = runtime.barrier();  // a barrier uses no memory, so its first ticket is not waited for
    copied.wait();
  });
}

TEST(RuntimeDroppedTickets, LogAnErrorThatNoWaitHasThrown) {
  for (const bool waits : {false, true}) {
    ::testing::internal::CaptureStderr();
    RuntimeJob(2, test_options()).run([&](Runtime& runtime) {
      std::vector<float> data(runtime.rank() == 0 ? 10 : 11);
      Ticket ticket = runtime.all_reduce("x", view(data));
      while (!ticket.done()) std::this_thread::yield();
      if (waits) require(!error_of([&] { ticket.wait(); }).empty(), "no mismatch");
    });
    const std::string log = ::testing::internal::GetCapturedStderr();
    for (const char* call : {"[10] sum, whose ticket was dropped: agree of 'x'",
                             "[11] sum, whose ticket was dropped: agree of 'x'"}) {
      EXPECT_EQ(log.find(call) != std::string::npos, !waits) << log;
    }
  }
}

// Rank 1 might never begin rank 0's operation, so the drop does not wait for it.
TEST(RuntimeDroppedTickets, LeaveTheJobWhileAnExceptionUnwinds) {
  Texts errors(2);
  std::atomic<bool> has_left{false};
  RuntimeJob(2, test_options()).run([&](Runtime& runtime) {
    if (runtime.rank() == 0) {
      try {
        std::vector<float> data(100'000);
        const Ticket dropped = runtime.all_reduce("x", data);
        throw std::runtime_error("something else");
      } catch (const std::runtime_error&) {
        has_left = true;
      }
    }
    while (!has_left) std::this_thread::yield();
    errors.set(runtime.rank(), error_of([&] { runtime.barrier().wait(); }));
  });
  for (const std::string& error : errors.all()) {
    EXPECT_THAT(error, AllOf(HasSubstr("rank 0: left the job"),
                             HasSubstr("'x': all_reduce float32 [100000] sum was dropped by an "
                                       "exception")));
  }
}

TEST(RuntimeDroppedTickets, LeaveTheJobWhenPeersDoNotCome) {
  Options options = test_options();
  options.operation_timeout = milliseconds(100);
  options.stall_abort = std::chrono::minutes(1);
  Texts errors(2);
  std::atomic<bool> has_left{false};
  RuntimeJob(2, options).run([&](Runtime& runtime) {
    if (runtime.rank() == 0) {
      std::vector<float> data(100'000);
      { const Ticket dropped = runtime.all_reduce("x", data); }
      data = {};
      has_left = true;
    }
    while (!has_left) std::this_thread::yield();
    errors.set(runtime.rank(), error_of([&] { runtime.barrier().wait(); }));
  });
  for (const std::string& error : errors.all()) {
    EXPECT_THAT(error, AllOf(HasSubstr("rank 0: left the job"),
                             HasSubstr("it was not done within operation_timeout")));
  }
}

// The job continues, and the next receive gets the message.
TEST(RuntimeDroppedTickets, TakeReceivesBack) {
  Options options = test_options();
  options.operation_timeout = milliseconds(300);
  std::atomic<bool> may_send{false};
  RuntimeJob(2, options).run([&](Runtime& runtime) {
    std::vector<float> data(100'000, static_cast<float>(runtime.rank()));
    if (runtime.rank() == 0) {
      { const Ticket late = runtime.recv(data, 1); }
      try {
        const Ticket unwound = runtime.recv(data, 1);
        throw std::runtime_error("something else");
      } catch (const std::runtime_error&) {
      }
      require(data.back() == 0, "the buffer of a receive that was taken back");
      may_send = true;
      require(runtime.recv(data, 1).received().count == data.size(), "the message");
      require(data.back() == 1, "what was sent");
    } else {
      while (!may_send) std::this_thread::yield();
      runtime.send(data, 0).wait();
    }
  });
}

TEST(RuntimeTickets, OfOtherOperationsHaveNoMessageAndNoRows) {
  RuntimeJob(1, test_options()).run([](Runtime& runtime) {
    std::vector<float> data(3);
    Ticket sum = runtime.all_reduce("x", data);
    EXPECT_THAT(error_of([&] { sum.received(); }), HasSubstr("not that of a receive"));
    EXPECT_THAT(error_of([&] { sum.cancel(); }), HasSubstr("not that of a receive"));
    EXPECT_THAT(error_of([&] { sum.sums(); }), HasSubstr("not that of a row-sparse all-reduce"));
  });
}

}  // namespace
}  // namespace kolo::test
