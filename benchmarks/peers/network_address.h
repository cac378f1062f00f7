#pragma once

#include <string>

#include "runtime/api/kolo.h"

namespace kolo::bench {

/// The numeric address at which other ranks reach this one by TCP: with all ranks on one node that
/// of the loopback, else the one that Kolo has found, so that peers and limits use the same
/// network. Errors: KoloError(kIo) if no address reaches other nodes.
std::string network_address(const Runtime& runtime);

}  // namespace kolo::bench
