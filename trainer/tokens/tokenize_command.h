#pragma once

namespace kolo::trainer {

/// `kolo-train tokenize`: a text as tokens in a folder, or a check of such a folder. Returns the
/// exit status. Errors: UsageError for other arguments; those of trainer/tokens/tokenize.h.
int run_tokenize_command(int argc, const char* const* argv);

}  // namespace kolo::trainer
