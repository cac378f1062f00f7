#pragma once

#include <string>

namespace CLI {
class App;
}  // namespace CLI

namespace kolo {

/// The subcommand `schedule`, which prints the schedules of an all-reduce without a job.
class ScheduleCommand {
 public:
  /// Adds it to `app`, which outlives it.
  explicit ScheduleCommand(CLI::App& app);

  /// Whether the command line asks for it.
  bool chosen() const;
  /// Errors: UsageError for arguments that do not fit each other; KoloError(kIo).
  void run() const;

 private:
  struct Arguments {
    std::string algorithm = "auto";
    int ranks = 4;
    int nodes = 1;
    std::string size = "64K";
    std::string memory = "arena";
    std::string svg;
  };

  CLI::App& command_;
  Arguments arguments_;
};

}  // namespace kolo
