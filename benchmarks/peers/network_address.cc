#include "benchmarks/peers/network_address.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string_view>

#include <fmt/format.h>

#include "comm/base/error.h"

namespace kolo::bench {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

std::string in_numbers(const sockaddr* address) {
  const socklen_t size =
      address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
  std::array<char, NI_MAXHOST> text{};
  const int status =
      ::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return status == 0 ? text.data() : "";
}

/// Empty if there is no such interface or it has no address.
std::string address_of_interface(std::string_view name) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || name != entry->ifa_name) continue;
    if (entry->ifa_addr->sa_family == AF_INET) return in_numbers(entry->ifa_addr);
  }
  return {};
}

/// UCX names devices "eth0", or "mlx5_0:1" where they are no interfaces; several by commas.
std::string address_for_ucx() {
  const char* devices = std::getenv("UCX_NET_DEVICES");
  std::string_view rest = devices == nullptr ? "" : devices;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    if (std::string found = address_of_interface(rest.substr(0, comma)); !found.empty()) {
      return found;
    }
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return {};
}

std::string address_of_name(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &list) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  return in_numbers(list->ai_addr);
}

}  // namespace

std::string network_address(const Runtime& runtime) {
  if (runtime.num_nodes() == 1) return kLoopback;
  if (std::string address = address_for_ucx(); !address.empty()) return address;
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  const std::string address = address_of_name(name.data());
  if (!address.empty() && !address.starts_with("127.") && address != "::1") return address;
  throw KoloError(
      {.code = ErrorCode::kConfig,
       .rank = runtime.rank(),
       .what = fmt::format("'{}' is not a name that other nodes can reach; name the network's "
                           "interface in UCX_NET_DEVICES",
                           name.data())});
}

}  // namespace kolo::bench
