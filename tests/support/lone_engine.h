#pragma once

#include "runtime/engine/engines.h"

namespace kolo::test {

/// Wraps the engine of a job without groups as the `Engines` that a `ProgressEngine` needs.
class LoneEngine {
 public:
  LoneEngine(Engine& engine, Transport& transport, const ProcessGrid& grid, EngineClocks clocks,
             Pulse* pulse = nullptr)
      : engines_(engine, demux_,
                 {.transport = transport,
                  .grid = grid,
                  .clocks = clocks,
                  .options = options_,
                  .calibration = calibration_,
                  .pulse = pulse},
                 arena_) {}

  Engines& engines() { return engines_; }

 private:
  const Options options_;
  const Calibration calibration_;
  ControlDemux demux_;
  LocalArena arena_{0, 0};
  Engines engines_;
};

}  // namespace kolo::test
