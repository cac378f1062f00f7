#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "trainer/models/gpt.h"

namespace kolo::trainer {

struct GenerateOptions {
  std::size_t bytes = 400;
  double temperature = 0.8;  ///< 0: always the likeliest byte.
  std::string prompt = "\n";
  std::uint64_t seed = 1;
};

/// Text that `model` continues the prompt with, without the prompt. Depends on weights and options
/// alone. Before: the prompt is not empty.
std::string generate(const Gpt& model, const GenerateOptions& options);

/// `text` with control characters other than line feed and tab replaced by '?'.
std::string printable(std::string text);

}  // namespace kolo::trainer
