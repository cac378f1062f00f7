#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/schedule/step.h"
#include "comm/verify/contents.h"

namespace kolo {

/// A codec step as the verifier plays it, without data: puts what the step writes into `result`,
/// where `sources` is what it reads, and returns what is wrong with that, as the end of a sentence.
/// Contributions must be merged in the order of ranks. Threads: pure; any.
std::optional<std::string> play_codec_step(const Step& step,
                                           const std::vector<SymbolicRuns>& sources,
                                           SymbolicRuns& result);

}  // namespace kolo
