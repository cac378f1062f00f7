#include "comm/network/network_interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>

#include "comm/base/error.h"

namespace kolo {
namespace {

struct FreeInterfaces {
  void operator()(ifaddrs* list) const { ::freeifaddrs(list); }
};

/// The address as text; empty for those that no other machine can use without naming a link.
std::string numeric_address(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address->sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  } else if (address->sa_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (IN6_IS_ADDR_LINKLOCAL(&v6)) return {};
    bytes = &v6;
  }
  if (bytes == nullptr) return {};
  return ::inet_ntop(address->sa_family, bytes, text.data(), text.size());
}

int rate_of(const std::string& name) {
  std::ifstream file("/sys/class/net/" + name + "/speed");
  int mbit_per_s = 0;
  return file >> mbit_per_s ? std::max(mbit_per_s, 0) : 0;
}

bool lists(std::string_view devices, std::string_view name) {
  while (!devices.empty()) {
    const std::size_t comma = devices.find(',');
    if (devices.substr(0, comma) == name) return true;
    devices = comma == std::string_view::npos ? "" : devices.substr(comma + 1);
  }
  return false;
}

}  // namespace

std::vector<NetworkInterface> network_interfaces() {
  ifaddrs* read = nullptr;
  if (::getifaddrs(&read) != 0) {
    throw KoloError({.code = ErrorCode::kIo,
                     .what = std::string("reading network interfaces: ") + std::strerror(errno)});
  }
  const std::unique_ptr<ifaddrs, FreeInterfaces> list(read);
  std::vector<NetworkInterface> interfaces;
  for (const ifaddrs* each = list.get(); each != nullptr; each = each->ifa_next) {
    constexpr unsigned kInUse = IFF_UP | IFF_RUNNING;
    if (each->ifa_addr == nullptr || (each->ifa_flags & kInUse) != kInUse) continue;
    std::string address = numeric_address(each->ifa_addr);
    if (address.empty()) continue;
    interfaces.push_back({.name = each->ifa_name,
                          .address = std::move(address),
                          .is_loopback = (each->ifa_flags & IFF_LOOPBACK) != 0,
                          .mbit_per_s = rate_of(each->ifa_name)});
  }
  return interfaces;
}

std::vector<NetworkInterface> listed_interfaces(std::vector<NetworkInterface> interfaces,
                                                std::string_view devices) {
  std::vector<NetworkInterface> listed;
  std::ranges::copy_if(
      interfaces, std::back_inserter(listed),
      [&](const NetworkInterface& interface) { return lists(devices, interface.name); });
  return listed.empty() ? interfaces : listed;
}

std::string to_string(const NetworkInterface& interface) {
  return interface.name + " " + interface.address;
}

}  // namespace kolo
