#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "trainer/checkpoint/manifest.h"

namespace kolo::trainer {

/// The checkpoints of a run. Each is a folder, "step-00000200", that is made under a temporary name
/// and renamed when it is complete:
///
///     step-00000200/rank-00000.safetensors, ..., manifest.json
///     step-00000300.partial/                being written or removed, or left by a job that ended
///
/// Threads: any, but only one publishes, removes or clears.
/// Errors:  KoloError(kIo) naming path and cause.
class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoint(std::uint64_t step) const;
  std::filesystem::path partial(std::uint64_t step) const;

  /// Steps of the checkpoints that were completed, newest first. Empty if there is no such folder.
  std::vector<std::uint64_t> steps() const;

  /// Removes what jobs that ended in the middle have left.
  void clear() const;
  void create_partial(std::uint64_t step) const;
  void remove_partial(std::uint64_t step) const;

  /// Completes a checkpoint whose files are durable: checks that they are all here with their
  /// lengths, writes the manifest and renames the folder, in place of an older one.
  void publish(const Manifest& manifest) const;

  /// Removes all checkpoints up to step `newest` but the last `keep` and the one with the lowest
  /// held-out loss. Later ones, which a run that went on from an earlier one has left behind, stay
  /// until it comes to their steps.
  void prune(std::uint64_t newest, std::size_t keep) const;

 private:
  void remove(std::uint64_t step) const;

  std::filesystem::path path_;
};

/// The step in the name of a checkpoint's folder; empty for other names.
std::optional<std::uint64_t> step_of(const std::filesystem::path& checkpoint);

}  // namespace kolo::trainer
