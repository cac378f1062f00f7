#include "benchmarks/peers/network_address.h"

#include "comm/base/error.h"

namespace kolo::bench {

std::string network_address(const Runtime& runtime) {
  if (runtime.num_nodes() == 1) return "127.0.0.1";
  const std::string address = runtime.network_address();
  if (!address.empty()) return address;
  throw KoloError({.code = ErrorCode::kIo,
                   .rank = runtime.rank(),
                   .what = "no address of this host answers to the other nodes over TCP, and the "
                           "compared libraries need one"});
}

}  // namespace kolo::bench
