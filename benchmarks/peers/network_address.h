#pragma once

#include <string>

#include "runtime/api/kolo.h"

namespace kolo::bench {

/// The address at which other ranks reach this one by TCP, in numbers. With all ranks on one node,
/// the loopback's. Else that of the first interface which UCX_NET_DEVICES names and which exists,
/// so that peers and limits take the network that Kolo was told to take; else what this machine's
/// own name stands for. Errors: KoloError(kConfig) if that is no address other nodes could reach.
std::string network_address(const Runtime& runtime);

}  // namespace kolo::bench
