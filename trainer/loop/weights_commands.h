#pragma once

namespace kolo::trainer {

// Subcommands that work on files, without a job. Each returns the exit status.
// Errors: UsageError for other arguments; those of trainer/checkpoint/export.h.

/// `kolo-train export WEIGHTS FILE`: the weights of a checkpoint as one safetensors file.
int run_export(int argc, const char* const* argv);

/// `kolo-train average FILE WEIGHTS...`: the means of the weights of several checkpoints or files.
int run_average(int argc, const char* const* argv);

}  // namespace kolo::trainer
