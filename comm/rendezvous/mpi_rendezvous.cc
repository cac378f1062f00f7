#include "comm/rendezvous/mpi_rendezvous.h"

#include <mpi.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <limits>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "comm/base/clock.h"
#include "comm/base/error.h"
#include "comm/base/log.h"
#include "comm/base/mutex.h"

namespace kolo {
namespace {

[[noreturn]] void fail(ErrorCode code, std::string what) {
  throw KoloError(Error{.code = code, .verb = {}, .bucket = {}, .what = std::move(what)});
}

void check_mpi(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(status, text.data(), &length);
  fail(ErrorCode::kPeerLost, fmt::format("{}: {}", call, text.data()));
}

/// Ends the process if an MPI call that cannot be interrupted takes longer than `limit`.
class CallLimit {
 public:
  CallLimit(const char* call, std::chrono::milliseconds limit)
      : watchdog_([this, call, limit] {
          MutexLock lock(mutex_);
          const bool is_over =
              over_.wait_for(lock, limit, [this]() KOLO_REQUIRES(mutex_) { return is_over_; });
          if (!is_over) end_process(call, limit);
        }) {}
  ~CallLimit() {
    {
      const MutexLock lock(mutex_);
      is_over_ = true;
    }
    over_.notify_one();
    watchdog_.join();
  }
  CallLimit(const CallLimit&) = delete;
  CallLimit& operator=(const CallLimit&) = delete;

 private:
  /// Does not call `exit`, because its handlers would wait for the same MPI call.
  [[noreturn]] static void end_process(const char* call, std::chrono::milliseconds limit) {
    log::error(
        fmt::format("rendezvous: not all ranks came within {} ms ({}); connect_timeout sets "
                    "this limit",
                    limit.count(), call));
    std::_Exit(exit_status(ErrorCode::kTimeout));
  }

  Mutex mutex_;
  ConditionVariable over_;
  bool is_over_ KOLO_GUARDED_BY(mutex_) = false;
  std::thread watchdog_;
};

struct StartedMpi {
  pid_t process;
  std::chrono::milliseconds limit;
};

/// Runs when a process that has started MPI ends, and in its forked children. MPI_Finalize waits
/// for all ranks. A rank that ends with an error skips it, and mpirun stops the other ranks. A
/// forked child is not a rank, so it skips it, too.
void finalize_at_exit(int status, void* started) {
  const auto& [process, limit] = *static_cast<const StartedMpi*>(started);
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (status != 0 || finalized != 0 || ::getpid() != process) return;
  const CallLimit within("MPI_Finalize", limit);
  MPI_Finalize();
}

/// Starts MPI if it is not running.
void start_mpi(std::chrono::milliseconds timeout) {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) fail(ErrorCode::kConfig, "MPI was finalized already");
  int running = 0;
  MPI_Initialized(&running);
  if (running == 0) {
    const CallLimit within("MPI_Init", timeout);
    int provided = 0;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    static StartedMpi started{::getpid(), timeout};  // a process can start MPI only once
    ::on_exit(finalize_at_exit, &started);
    return;
  }
  int level = 0;
  int is_main = 0;
  MPI_Query_thread(&level);
  MPI_Is_thread_main(&is_main);
  if (level < MPI_THREAD_SERIALIZED && is_main == 0) {
    fail(ErrorCode::kConfig, "MPI works on the main thread only; create the runtime there");
  }
}

}  // namespace

/// A duplicate of MPI_COMM_WORLD, which separates Kolo's messages from the user's.
class MpiRendezvous::Communicator {
 public:
  explicit Communicator(std::chrono::milliseconds timeout) : timeout_(timeout) {
    start_mpi(timeout);
    {
      const CallLimit within("MPI_Comm_dup", timeout);
      check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &handle_), "MPI_Comm_dup");
    }
    MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(handle_, &rank_);
    MPI_Comm_size(handle_, &size_);
  }

  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  ~Communicator() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (failed_) static_cast<void>(exchange_.release());  // MPI may still write to it
    // MPI_Comm_free is collective, so it is not called while this rank throws an exception.
    const bool is_unwinding = std::uncaught_exceptions() > exceptions_;
    if (!failed_ && !is_unwinding && finalized == 0) MPI_Comm_free(&handle_);
  }

  int rank() const { return rank_; }
  int size() const { return size_; }

  std::vector<std::string> all_gather(const std::string& mine) {
    if (failed_) fail(ErrorCode::kPeerLost, "the rendezvous has already failed");
    Exchange& io = *exchange_;
    const auto count = static_cast<std::size_t>(size_);
    io.mine = mine;
    io.length = mine.size();
    io.lengths.assign(count, 0);
    MPI_Request request = MPI_REQUEST_NULL;
    const int gathering = MPI_Iallgather(&io.length, 1, MPI_UINT64_T, io.lengths.data(), 1,
                                         MPI_UINT64_T, handle_, &request);
    wait(gathering, request, "MPI_Iallgather");

    io.counts.resize(count);
    io.offsets.resize(count);
    std::uint64_t total = 0;
    for (std::size_t rank = 0; rank < count; ++rank) {
      constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<int>::max());
      if (io.lengths[rank] > kMost - total) {
        fail(ErrorCode::kResources, "the contributions to all_gather exceed 2 GiB");
      }
      io.counts[rank] = static_cast<int>(io.lengths[rank]);
      io.offsets[rank] = static_cast<int>(total);
      total += io.lengths[rank];
    }
    io.all.resize(total);
    const int exchanging = MPI_Iallgatherv(
        io.mine.data(), io.counts[static_cast<std::size_t>(rank_)], MPI_BYTE, io.all.data(),
        io.counts.data(), io.offsets.data(), MPI_BYTE, handle_, &request);
    wait(exchanging, request, "MPI_Iallgatherv");

    std::vector<std::string> contributions;
    for (std::size_t rank = 0; rank < count; ++rank) {
      contributions.push_back(
          io.all.substr(static_cast<std::size_t>(io.offsets[rank]), io.lengths[rank]));
    }
    return contributions;
  }

 private:
  /// Memory that MPI reads and writes during an exchange.
  struct Exchange {
    std::string mine;
    std::uint64_t length = 0;
    std::vector<std::uint64_t> lengths;
    std::vector<int> counts;
    std::vector<int> offsets;
    std::string all;
  };

  /// Waits for a non-blocking collective, because MPI's collectives have no deadline. After a
  /// failure the collective stays pending and no other is started.
  void wait(int started, MPI_Request& request, const char* call) {
    constexpr int kQuickTests = 1000;
    const TimePoint deadline = SteadyClock{}.now() + timeout_;
    failed_ = true;
    check_mpi(started, call);
    int done = 0;
    for (int tests = 0; done == 0; ++tests) {
      check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), call);
      if (done == 0 && SteadyClock{}.now() >= deadline) {
        fail(ErrorCode::kTimeout,
             fmt::format("rendezvous: not all ranks joined within {} ms; did every rank start, and "
                         "open as many runtimes?",
                         timeout_.count()));
      }
      if (done == 0 && tests > kQuickTests) ::poll(nullptr, 0, 1);
    }
    failed_ = false;
  }

  std::chrono::milliseconds timeout_;
  const int exceptions_ = std::uncaught_exceptions();
  bool failed_ = false;
  std::unique_ptr<Exchange> exchange_ = std::make_unique<Exchange>();
  MPI_Comm handle_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 0;
};

MpiRendezvous::MpiRendezvous(std::chrono::milliseconds timeout)
    : communicator_(std::make_unique<Communicator>(timeout)) {}
MpiRendezvous::~MpiRendezvous() = default;

int MpiRendezvous::rank() const { return communicator_->rank(); }
int MpiRendezvous::size() const { return communicator_->size(); }
std::vector<std::string> MpiRendezvous::all_gather(const std::string& mine) {
  return communicator_->all_gather(mine);
}

}  // namespace kolo
