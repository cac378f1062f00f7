#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "comm/base/aligned_memory.h"
#include "comm/schedule/binding.h"
#include "comm/schedule/codec.h"
#include "comm/schedule/schedule.h"

namespace kolo {

/// The payloads of a bucket, and the steps of its codec that the processor runs. It is made at plan
/// time and used in every iteration. Threads: the executor's. Steady state allocates nothing.
class CodecRun {
 public:
  /// `schedule` and `binding` must outlive the run.
  CodecRun(const Schedule& schedule, const Binding& binding);

  /// Whether a step of the codec runs on the processor.
  static bool runs(const Schedule& schedule, const Step& step) {
    return step.kind == StepKind::kCodec &&
           !(schedule.layout.is_on_device() && works_on_elements(step.verb));
  }
  /// Returns the range of elements that a step of the codec reads or writes; empty if it works on
  /// payloads only.
  static Range elements_of(const Step& step);

  /// Returns the memory of a payload; its size is the payload's capacity.
  std::span<std::byte> payload(const Range& range) const;
  /// Runs a whole step. `elements` are those of `elements_of`.
  void run(const Step& step, const CodecElements& elements);

 private:
  void append(const Range& range, std::vector<std::span<std::byte>>& to) const;

  const Schedule& schedule_;
  const Binding& binding_;
  AlignedMemory payloads_;
  std::vector<std::span<std::byte>> targets_, sources_;  // of the current step
};

}  // namespace kolo
