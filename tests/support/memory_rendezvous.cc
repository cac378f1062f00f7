#include "tests/support/memory_rendezvous.h"

#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/check.h"
#include "comm/base/error.h"
#include "comm/base/mutex.h"

namespace kolo {
namespace {

/// Where the threads meet. A round ends when the last rank contributes; its results stay until the
/// next round ends, which cannot be before every rank has fetched them.
class MeetingPoint {
 public:
  MeetingPoint(int size, std::chrono::milliseconds timeout)
      : timeout_(timeout), size_(size), contributions_(static_cast<std::size_t>(size)) {}

  std::vector<std::string> all_gather(int rank, const std::string& mine) {
    MutexLock lock(mutex_);
    if (failure_) throw KoloError(*failure_);
    const std::size_t round = rounds_done_;
    contributions_[static_cast<std::size_t>(rank)] = mine;
    if (missing().empty()) {
      finish_round();
    } else if (!changed_.wait_for(lock, timeout_, [&]() KOLO_REQUIRES(mutex_) {
                 return failure_ || rounds_done_ > round;
               })) {
      fail({.code = ErrorCode::kTimeout,
            .rank = rank,
            .verb = {},
            .bucket = {},
            .what = fmt::format("rendezvous: rank {} did not join within {} ms",
                                fmt::join(missing(), ", "), timeout_.count())});
    }
    if (rounds_done_ == round) throw KoloError(*failure_);
    return results_;
  }

  void leave(int rank) {
    const MutexLock lock(mutex_);
    if (failure_) return;
    fail({.code = ErrorCode::kPeerLost,
          .peer = rank,
          .verb = {},
          .bucket = {},
          .what = "left the rendezvous"});
  }

  int size() const { return size_; }

 private:
  std::vector<int> missing() const KOLO_REQUIRES(mutex_) {
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < contributions_.size(); ++rank) {
      if (!contributions_[rank]) ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
  }

  void finish_round() KOLO_REQUIRES(mutex_) {
    results_.clear();
    for (std::optional<std::string>& contribution : contributions_) {
      results_.push_back(std::move(*contribution));
      contribution.reset();
    }
    ++rounds_done_;
    changed_.notify_all();
  }

  void fail(Error error) KOLO_REQUIRES(mutex_) {
    failure_ = std::move(error);
    changed_.notify_all();
  }

  const std::chrono::milliseconds timeout_;
  const int size_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::vector<std::optional<std::string>> contributions_ KOLO_GUARDED_BY(mutex_);
  std::vector<std::string> results_ KOLO_GUARDED_BY(mutex_);
  std::size_t rounds_done_ KOLO_GUARDED_BY(mutex_) = 0;
  std::optional<Error> failure_ KOLO_GUARDED_BY(mutex_);
};

class MemoryRendezvous final : public Rendezvous {
 public:
  MemoryRendezvous(std::shared_ptr<MeetingPoint> point, int rank)
      : point_(std::move(point)), rank_(rank) {}
  ~MemoryRendezvous() override { point_->leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return point_->size(); }
  std::vector<std::string> all_gather(const std::string& mine) override {
    return point_->all_gather(rank_, mine);
  }

 private:
  std::shared_ptr<MeetingPoint> point_;  // Shared: the endpoints end in any order.
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Rendezvous>> make_memory_rendezvous(int size,
                                                                std::chrono::milliseconds timeout) {
  check(size >= 1, "a rendezvous has at least one rank");
  const auto point = std::make_shared<MeetingPoint>(size, timeout);
  std::vector<std::unique_ptr<Rendezvous>> endpoints;
  for (int rank = 0; rank < size; ++rank) {
    endpoints.push_back(std::make_unique<MemoryRendezvous>(point, rank));
  }
  return endpoints;
}

}  // namespace kolo
