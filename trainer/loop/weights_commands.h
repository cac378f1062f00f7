#pragma once

#include "trainer/catalog.h"

namespace kolo::trainer {

// Subcommands that work on files, without a job. Each returns the exit status.
// Errors: UsageError for other arguments; those of trainer/checkpoint/export.h.

/// `kolo-train export WEIGHTS FILE [--layout NAME]`: the weights of a checkpoint as one safetensors
/// file, in a layout of one of the models of `catalog` if asked.
int run_export(const Catalog& catalog, int argc, const char* const* argv);

/// `kolo-train average FILE WEIGHTS...`: the means of the weights of several checkpoints or files.
int run_average(int argc, const char* const* argv);

}  // namespace kolo::trainer
