#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "runtime/api/kolo.h"
#include "trainer/checkpoint/job_identity.h"
#include "trainer/checkpoint/state_visitor.h"

namespace kolo::trainer {

struct ResumeOptions {
  std::filesystem::path run;  ///< Folder of the run; may be empty unless `choice` is "auto".
  std::string choice = "no";  ///< "auto", "no", or the path of a checkpoint.
  JobIdentity job;
};

/// Restores `state` from a checkpoint, which is returned; empty if training begins anew. "auto"
/// takes the newest checkpoint of the run that every rank finds complete, and logs why it passes
/// over others. Collective; all ranks take the same one.
///
/// Errors: KoloError(kConfig), naming the option, if the checkpoint belongs to another job or has
///         state of single ranks that are not as many now, and for "no" if the run has checkpoints;
///         KoloError(kData) if the checkpoint at a path cannot be read; those of the runtime.
std::optional<std::filesystem::path> resume(Runtime& runtime, const ResumeOptions& options,
                                            Stateful& state);

}  // namespace kolo::trainer
