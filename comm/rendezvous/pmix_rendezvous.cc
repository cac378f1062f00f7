#include "comm/rendezvous/pmix_rendezvous.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "comm/base/check.h"
#include "comm/rendezvous/pmix_library.h"

namespace kolo {
namespace {

using std::chrono::milliseconds;

/// The status of a call that is complete on return and does not call its callback.
constexpr PmixStatus kPmixDoneAtOnce = -157;

PmixInfo argument(std::string_view key, PmixType type) {
  PmixInfo info{};
  key.copy(info.key, sizeof info.key - 1);
  info.value.type = type;
  return info;
}

struct ReleaseValue {
  void operator()(PmixValue* value) const {
    // NOLINTBEGIN(cppcoreguidelines-no-malloc): PMIx allocates them with malloc.
    if (value->type == PmixType::kBytes) std::free(value->bytes.begin);
    std::free(value);
    // NOLINTEND(cppcoreguidelines-no-malloc)
  }
};
using OwnedValue = std::unique_ptr<PmixValue, ReleaseValue>;

[[noreturn]] void fail(const PmixLibrary& pmix, PmixStatus status, const char* call) {
  throw KoloError({.code = ErrorCode::kPeerLost,
                   .what = fmt::format("rendezvous: {}: {}", call, pmix.error_string(status))});
}

/// PMIx in this process, from the first rendezvous until the process ends. If a process left PMIx
/// earlier, other ranks could wait for it in a fence.
class PmixSession {
 public:
  static const PmixSession& of_process() {
    static const PmixSession session;
    return session;
  }
  PmixSession(const PmixSession&) = delete;
  PmixSession& operator=(const PmixSession&) = delete;

  const PmixLibrary& library() const { return pmix_; }
  const PmixProcess& self() const { return self_; }

 private:
  PmixSession() {
    const PmixStatus status = pmix_.init(&self_, nullptr, 0);
    if (status != kPmixSuccess) fail(pmix_, status, "PMIx_Init");
  }
  /// A forked child is not a rank and has no thread of PMIx, for which it would wait.
  ~PmixSession() {
    if (::getpid() == process_) pmix_.finalize(nullptr, 0);
  }

  const pid_t process_ = ::getpid();
  const PmixLibrary pmix_;
  PmixProcess self_{};
};

/// Returns a number for the keys of one rendezvous. PMIx keeps values, so keys must not repeat.
unsigned next_rendezvous() {
  static std::atomic<unsigned> count{0};
  return count++;
}

}  // namespace

PmixLibrary::PmixLibrary()
    : library_({.file = "libpmix.so.2",
                .purpose = "start-up under this launcher needs PMIx",
                .remedy = "install PMIx (package libpmix2), or start the ranks with torchrun or "
                          "srun --mpi=none"}) {}

class PmixRendezvous::Client {
 public:
  explicit Client(milliseconds timeout) : timeout_(timeout) {
    const OwnedValue size = get(kPmixAllRanks, kPmixJobSize, PmixType::kUint32);
    size_ = narrow<int>(size->uint32);
  }

  int rank() const { return static_cast<int>(self_.rank); }
  int size() const { return size_; }

  std::vector<std::string> all_gather(const std::string& mine) {
    const std::string key = fmt::format("kolo.{}.{}", rendezvous_, round_++);
    put(key, mine);
    fence();
    std::vector<std::string> all;
    for (int rank = 0; rank < size_; ++rank) {
      const OwnedValue value = get(static_cast<std::uint32_t>(rank), key, PmixType::kBytes);
      all.emplace_back(value->bytes.begin, value->bytes.size);
    }
    return all;
  }

 private:
  PmixProcess process(std::uint32_t rank) const {
    PmixProcess process = self_;
    process.rank = rank;
    return process;
  }

  void put(const std::string& key, std::string bytes) {
    PmixValue value{};
    value.type = PmixType::kBytes;
    value.bytes = {.begin = bytes.data(), .size = bytes.size()};
    require(pmix_.put(kPmixGlobal, key.c_str(), &value), "PMIx_Put");
    require(pmix_.commit(), "PMIx_Commit");
  }

  /// Returns when all ranks have called it; each rank then sees everything that was put before. A
  /// thread of PMIx signals completion, possibly after this function has timed out.
  void fence() {
    PmixInfo collect = argument(kPmixCollectData, PmixType::kBool);
    collect.value.flag = true;
    auto done = std::make_unique<std::promise<PmixStatus>>();
    std::future<PmixStatus> status = done->get_future();
    const PmixProcess all = process(kPmixAllRanks);
    const auto set_status = [](PmixStatus result, void* promise) {
      const std::unique_ptr<std::promise<PmixStatus>> owned(
          static_cast<std::promise<PmixStatus>*>(promise));
      owned->set_value(result);
    };
    const PmixStatus begun = pmix_.fence_nb(&all, 1, &collect, 1, set_status, done.get());
    if (begun == kPmixDoneAtOnce) return;
    require(begun, "PMIx_Fence_nb");
    static_cast<void>(done.release());  // now owned by `set_status`
    if (status.wait_for(timeout_) != std::future_status::ready) {
      throw KoloError({.code = ErrorCode::kTimeout,
                       .what = fmt::format("rendezvous: not all ranks joined within {} ms; did "
                                           "every rank start, and open as many runtimes?",
                                           timeout_.count())});
    }
    require(status.get(), "PMIx_Fence_nb");
  }

  OwnedValue get(std::uint32_t rank, const std::string& key, PmixType type) const {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(timeout_).count();
    PmixInfo limit = argument(kPmixTimeout, PmixType::kInt);
    limit.value.integer = narrow<int>(seconds);
    const PmixProcess owner = process(rank);
    PmixValue* got = nullptr;
    require(pmix_.get(&owner, key.c_str(), &limit, 1, &got), "PMIx_Get");
    OwnedValue value(got);
    ensure(value != nullptr && value->type == type, "PMIx has a value of another type");
    return value;
  }

  void require(PmixStatus status, const char* call) const {
    if (status != kPmixSuccess) fail(pmix_, status, call);
  }

  const PmixSession& session_ = PmixSession::of_process();
  const PmixLibrary& pmix_ = session_.library();
  const PmixProcess& self_ = session_.self();
  const milliseconds timeout_;
  const unsigned rendezvous_ = next_rendezvous();
  int size_ = 0;
  unsigned round_ = 0;
};

PmixRendezvous::PmixRendezvous(milliseconds timeout) : client_(std::make_unique<Client>(timeout)) {}
PmixRendezvous::~PmixRendezvous() = default;

int PmixRendezvous::rank() const { return client_->rank(); }
int PmixRendezvous::size() const { return client_->size(); }

std::vector<std::string> PmixRendezvous::all_gather(const std::string& mine) {
  if (failure_) throw KoloError(*failure_);
  try {
    return client_->all_gather(mine);
  } catch (const KoloError& error) {
    failure_ = error.error();
    throw;
  }
}

}  // namespace kolo
