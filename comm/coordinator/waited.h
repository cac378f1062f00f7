#pragma once

#include <cstddef>
#include <vector>

namespace kolo {

/// Something that threads of the program wait for. One object stands for all topics that the same
/// waits are about, so that no thread is counted twice.
class Waited {
 public:
  /// How many threads wait for it now. Threads: the coordinator's.
  virtual int waiters() const = 0;
  /// Whether the program waits for it in a way of its own, such as a descriptor, so that it must
  /// not stay undecided for ever. Threads: as above.
  virtual bool is_watched() const { return false; }
  /// How a rank that has joined takes part in what is proposed; empty: none can. Threads: as above.
  virtual std::vector<std::byte> terms() const { return {}; }

 protected:
  ~Waited() = default;
};

}  // namespace kolo
