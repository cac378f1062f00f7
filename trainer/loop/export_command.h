#pragma once

namespace kolo::trainer {

/// True if the arguments begin with the subcommand "export".
bool is_export(int argc, const char* const* argv);

/// `kolo-train export CHECKPOINT FILE`: writes the weights of a checkpoint to a safetensors file,
/// without a job. Returns the exit status.
/// Errors: UsageError for other arguments; those of `export_checkpoint`.
int run_export(int argc, const char* const* argv);

}  // namespace kolo::trainer
