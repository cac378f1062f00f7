#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "comm/base/unique_handle.h"
#include "trainer/checkpoint/job_identity.h"
#include "trainer/checkpoint/safetensors.h"

namespace kolo::trainer {

/// Describes a checkpoint. It is written last, so its presence proves the checkpoint complete.
struct Manifest {
  static constexpr const char* kFileName = "manifest.json";
  static constexpr std::uint64_t kFormat = 1;

  struct File {
    std::string name;
    FileSum sum;
    friend bool operator==(const File&, const File&) = default;
  };

  std::uint64_t step = 0;  ///< Number of steps taken before the checkpoint.
  JobIdentity job;
  std::optional<double> eval_loss;  ///< Held-out loss after this step; empty if not evaluated.
  std::vector<File> files;          ///< One file per rank, in rank order.
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

std::string to_json(const Manifest& manifest);

/// Reads the manifest of the checkpoint in `folder`. Errors: KoloError(kData) naming the file, if
/// it is missing, malformed or of another format, or names files other than `rank_file_name`.
Manifest read_manifest(const std::filesystem::path& folder);

/// The name of a rank's file in a checkpoint, such as "rank-00003.safetensors".
std::string rank_file_name(int rank);

/// The checkpoints of a run. Each is a folder such as "step-00000200", created under a temporary
/// name and renamed when it is complete:
///
///     step-00000200/rank-00000.safetensors, ..., manifest.json
///     step-00000300.partial/                being written or removed, or left by an earlier job
///
/// Threads: any, but only one thread at a time changes the folder.
/// Errors:  KoloError(kIo) naming path and cause.
class RunFolder {
 public:
  explicit RunFolder(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoint(std::uint64_t step) const;
  std::filesystem::path partial(std::uint64_t step) const;

  /// The steps of the completed checkpoints, newest first. Empty if the folder does not exist.
  std::vector<std::uint64_t> steps() const;

  /// Removes checkpoints that earlier jobs left unfinished, and puts back one that a job was killed
  /// while replacing.
  void clear() const;
  void create_partial(std::uint64_t step) const;
  void remove_partial(std::uint64_t step) const;

  /// Completes a checkpoint whose files are durable: checks that all files exist with their
  /// lengths, writes the manifest and renames the folder. Replaces a checkpoint of the same step.
  void publish(const Manifest& manifest) const;

  /// Removes checkpoints of steps up to `newest`, except the `keep` newest of these and the one
  /// with the lowest held-out loss. Later checkpoints, which exist if the run resumed from an
  /// earlier one, stay.
  void prune(std::uint64_t newest, std::size_t keep) const;

 private:
  void remove(std::uint64_t step) const;

  std::filesystem::path path_;
};

/// Keeps other jobs out of a run's folder while it lives, by a lock of the file ".lock" there,
/// which names host and process. The system drops the lock of a process that is killed.
class RunLock {
 public:
  RunLock() = default;  ///< Locks nothing.
  /// Where the file system has no locks, it logs a warning and locks nothing. Errors:
  /// KoloError(kIo) naming host and process of the job that has the folder.
  explicit RunLock(const RunFolder& folder);

 private:
  FileDescriptor file_;
};

/// The step in the name of a checkpoint's folder; empty for any other name.
std::optional<std::uint64_t> step_of(const std::filesystem::path& checkpoint);

}  // namespace kolo::trainer
