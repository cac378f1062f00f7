#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/durable_file.h"
#include "trainer/checkpoint/job_identity.h"

namespace kolo::trainer {

/// Describes a checkpoint, and proves that it is complete: it is written last.
struct Manifest {
  static constexpr const char* kFileName = "manifest.json";
  static constexpr std::uint64_t kFormat = 1;

  struct File {
    std::string name;
    FileSum sum;
    friend bool operator==(const File&, const File&) = default;
  };

  std::uint64_t step = 0;  ///< Steps taken.
  JobIdentity job;
  std::optional<double> eval_loss;  ///< Held-out loss, if it was evaluated after this step.
  std::vector<File> files;          ///< By rank.
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

std::string to_json(const Manifest& manifest);

/// The manifest of the checkpoint in `folder`. Errors: KoloError(kData) naming the file, if it is
/// missing, malformed, of another format, or names files outside of its folder.
Manifest read_manifest(const std::filesystem::path& folder);

/// "rank-00003.safetensors".
std::string rank_file_name(int rank);

}  // namespace kolo::trainer
