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
  /// How a rank that has joined takes part in what is proposed; empty: none can. Threads: as above.
  virtual std::vector<std::byte> terms() const { return {}; }

 protected:
  ~Waited() = default;
};

}  // namespace kolo
