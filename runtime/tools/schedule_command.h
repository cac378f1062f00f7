#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "comm/schedule/schedule.h"
#include "topology/process_grid.h"

namespace CLI {
class App;
}  // namespace CLI

namespace kolo {

/// The subcommand `schedule`, which prints the schedules of a collective without a job.
class ScheduleCommand {
 public:
  /// Adds the subcommand to `app`, which must outlive this object.
  explicit ScheduleCommand(CLI::App& app);

  /// Returns whether the command line has the subcommand.
  bool chosen() const;
  /// Prints the schedules. Throws UsageError if arguments contradict each other; KoloError(kIo).
  void run() const;

 private:
  struct Arguments {
    std::string collective = "all-reduce";
    std::string algorithm = "auto";
    int ranks = 4;
    int nodes = 1;
    std::string size = "64K";
    std::string memory = "arena";
    std::string svg;
  };

  /// Returns the schedules of all ranks, by rank.
  std::vector<Schedule> schedules(const ProcessGrid& grid, std::size_t bytes) const;

  CLI::App& command_;
  Arguments arguments_;
};

}  // namespace kolo
