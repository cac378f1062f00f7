#include "comm/rendezvous/mpi_rendezvous.h"

#include <mpi.h>
#include <poll.h>

#include <array>
#include <cstdint>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "comm/base/clock.h"
#include "comm/base/error.h"

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

/// Starts MPI unless it runs. Returns whether it was started here.
bool start_mpi() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    fail(ErrorCode::kConfig,
         "MPI was finalized already; call MPI_Init yourself to create several runtimes in "
         "succession");
  }
  int running = 0;
  MPI_Initialized(&running);
  if (running == 0) {
    int provided = 0;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    return true;
  }
  int level = 0;
  int is_main = 0;
  MPI_Query_thread(&level);
  MPI_Is_thread_main(&is_main);
  if (level < MPI_THREAD_SERIALIZED && is_main == 0) {
    fail(ErrorCode::kConfig, "MPI works on the main thread only; create the runtime there");
  }
  return false;
}

}  // namespace

/// A duplicate of MPI_COMM_WORLD, so that no message of the user's can meet ours.
class MpiRendezvous::Communicator {
 public:
  explicit Communicator(std::chrono::milliseconds timeout)
      : timeout_(timeout), started_here_(start_mpi()) {
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &handle_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(handle_, &rank_);
    MPI_Comm_size(handle_, &size_);
  }

  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  ~Communicator() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (failed_) static_cast<void>(exchange_.release());  // MPI may still write there.
    if (failed_ || finalized != 0) return;
    MPI_Comm_free(&handle_);
    if (started_here_) MPI_Finalize();
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

  /// Collectives of MPI have no deadline; testing an asynchronous one has. One that failed is left
  /// pending, and no other is begun.
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
             fmt::format("rendezvous: not all ranks joined within {} ms; did every rank start?",
                         timeout_.count()));
      }
      if (done == 0 && tests > kQuickTests) ::poll(nullptr, 0, 1);
    }
    failed_ = false;
  }

  std::chrono::milliseconds timeout_;
  bool started_here_;
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
