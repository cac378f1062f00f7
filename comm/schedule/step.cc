#include "comm/schedule/step.h"

namespace kolo {

std::string_view to_string(Region region) {
  static constexpr std::string_view kNames[] = {"bucket",  "scratch", "user", "input",
                                                "staging", "payload", "lent", "offered"};
  return kNames[static_cast<std::size_t>(region)];
}

std::string_view to_string(StepKind kind) {
  static constexpr std::string_view kNames[] = {"send",   "recv",     "signal", "await",
                                                "reduce", "copy",     "pack",   "unpack",
                                                "offer",  "exchange", "native", "codec"};
  return kNames[static_cast<std::size_t>(kind)];
}

}  // namespace kolo
