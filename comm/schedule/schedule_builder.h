#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "comm/schedule/schedule.h"

namespace kolo {

/// Where the result of a collective goes.
enum class Sink : std::uint8_t {
  kBucket,  ///< This rank's bucket: a further stage works on it.
  kUser,    ///< The caller's tensors, which for an in-place bucket are the bucket.
};

/// Writes one rank's schedule, line by line, and derives what must come first.
///
/// A step waits for every earlier line that touches one of its ranges where one of the two writes,
/// so an algorithm states only what it does, chunks of independent ranges overlap by themselves,
/// and a dependency cannot be forgotten within a rank. Between ranks order comes from messages and
/// flags; for a flag the algorithm says which range it hands over:
///
///   signal(p, r, kRead)   p may read r, which I wrote        await(p, r, kWrite)  p wrote r, I may
///   read signal(p, r, kWrite)  p may write r, which I have read   await(p, r, kWrite)  p has read
///   r, I may write
///
/// Empty ranges yield no step, on both sides of a message alike; a flag keeps its number even so,
/// because ranks of a node must count equally many. The verifier does not know this
/// class; it judges the result. Threads: one.
class ScheduleBuilder {
 public:
  ScheduleBuilder(int rank, std::string algorithm, BucketLayout layout);

  int rank() const { return schedule_.rank; }
  const BucketLayout& layout() const { return schedule_.layout; }

  Range bucket(std::size_t offset, std::size_t count) const {
    return bucket_of(rank(), offset, count);
  }
  Range bucket_of(int rank, std::size_t offset, std::size_t count) const {
    return {rank, Region::kBucket, offset, count};
  }
  /// A new range of scratch memory.
  Range scratch(std::size_t count);

  /// Makes this rank's contribution to `range` present in its bucket (packs, if staged).
  void load(const Range& range);
  /// Brings the finished `range`, which lies in its rank's bucket, to `sink`.
  void deliver(const Range& range, Sink sink);

  void send(int peer, const Range& source);
  void recv(int peer, const Range& target);
  void signal(int peer, const Range& range, Access access);
  void await(int peer, const Range& range);
  void reduce(const Range& target, std::vector<Range> sources, bool finishes);
  void copy(const Range& target, const Range& source);

  Schedule build() &&;

 private:
  struct Touch {
    StepId step;
    Range range;
    Access access;
  };

  void append(Step step, const std::vector<Range>& reads, const std::vector<Range>& writes);
  void depend(Step& step, const Range& range, Access access);

  Schedule schedule_;
  std::map<std::pair<int, Region>, std::vector<Touch>> touched_;
  std::map<int, std::uint32_t> sent_, received_, signalled_, awaited_;
};

}  // namespace kolo
