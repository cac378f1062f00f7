#pragma once

#include <string>

#include "runtime/api/kolo.h"

namespace kolo::bench {

/// The numeric address at which other ranks reach this one by TCP. With all ranks on one node it is
/// the loopback; else the first existing interface in UCX_NET_DEVICES, so that peers and limits use
/// the network that Kolo was told to use; else the address of this machine's name. Errors:
/// KoloError(kConfig) if other nodes could not reach that address.
std::string network_address(const Runtime& runtime);

}  // namespace kolo::bench
