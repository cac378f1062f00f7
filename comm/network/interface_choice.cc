#include "comm/network/interface_choice.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "comm/base/error.h"
#include "topology/discovery.h"

namespace kolo {
namespace {

struct FreeInterfaces {
  void operator()(ifaddrs* list) const { ::freeifaddrs(list); }
};

/// Formats an address. Returns an empty text for link-local addresses and other address families.
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

namespace {

/// Limit of pairs of nodes in an error text.
constexpr int kPairsInError = 4;

class Chooser {
 public:
  Chooser(const ProcessGrid& grid, const std::vector<NodeReach>& reach)
      : grid_(grid), reach_(reach), chosen_(reach.size(), InterfaceChoice::kNone) {}

  InterfaceChoice choose() {
    for (int node = 0; node < num_nodes(); ++node) chosen_[at(node)] = best_of(node);
    return {.of_node = chosen_, .problem = problem()};
  }

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  int num_nodes() const { return static_cast<int>(reach_.size()); }
  const NetworkInterface& interface(int node, int index) const {
    return reach_[at(node)].interfaces[at(index)];
  }

  bool reaches(int from_node, int from, int to_node, int to) const {
    const Way way{.to_node = to_node, .to = to, .from = from};
    return std::ranges::binary_search(reach_[at(from_node)].ways, way);
  }
  bool meet(int a, int of_a, int b, int of_b) const {
    return reaches(a, of_a, b, of_b) && reaches(b, of_b, a, of_a);
  }

  /// Counts the other nodes with which `node` can connect in both directions through interface
  /// `index`. First: through the interfaces chosen so far. Second: through any of their interfaces.
  std::pair<int, int> partners(int node, int index) const {
    int agreed = 0;
    int possible = 0;
    for (int other = 0; other < num_nodes(); ++other) {
      if (other == node) continue;
      const int theirs = chosen_[at(other)];
      if (theirs != InterfaceChoice::kNone && meet(node, index, other, theirs)) ++agreed;
      const auto count = static_cast<int>(reach_[at(other)].interfaces.size());
      for (int each = 0; each < count; ++each) {
        if (!meet(node, index, other, each)) continue;
        ++possible;
        break;
      }
    }
    return {agreed, possible};
  }

  int best_of(int node) const {
    const auto count = static_cast<int>(reach_[at(node)].interfaces.size());
    int best = InterfaceChoice::kNone;
    for (int index = 0; index < count; ++index) {
      if (partners(node, index).second == 0) continue;
      if (best == InterfaceChoice::kNone || is_better(node, index, best)) best = index;
    }
    return best;
  }

  bool is_better(int node, int index, int than) const {
    const auto merit = [&](int each) {
      const NetworkInterface& found = interface(node, each);
      return std::tuple(partners(node, each), found.is_loopback, found.mbit_per_s,
                        found.address.find(':') == std::string::npos);
    };
    const auto mine = merit(index);
    const auto other = merit(than);
    return mine != other ? mine > other
                         : interface(node, index).address < interface(node, than).address;
  }

  std::string problem() const {
    std::string text;
    int pairs = 0;
    for (int a = 0; a < num_nodes(); ++a) {
      for (int b = a + 1; b < num_nodes(); ++b) {
        const int of_a = chosen_[at(a)];
        const int of_b = chosen_[at(b)];
        const bool both = of_a != InterfaceChoice::kNone && of_b != InterfaceChoice::kNone;
        if (both && meet(a, of_a, b, of_b)) continue;
        if (++pairs > kPairsInError) continue;
        text += fmt::format("{}{} and {} do not reach each other ({}; {})", pairs == 1 ? "" : "; ",
                            name(a), name(b), attempt(a, b), attempt(b, a));
      }
    }
    if (pairs > kPairsInError) text += fmt::format("; and {} more pairs", pairs - kPairsInError);
    return text;
  }

  std::string name(int node) const {
    return fmt::format("rank {} on {}", grid_.leader(node), short_node_name(grid_.node_id(node)));
  }

  std::string attempt(int from, int to) const {
    for (const NoWay& none : reach_[at(from)].no_ways) {
      if (none.to_node == to) return fmt::format("to rank {}: {}", grid_.leader(to), none.why);
    }
    for (const Way& way : reach_[at(from)].ways) {
      if (way.to_node != to) continue;
      return fmt::format("to rank {}: only {} answered, through {}", grid_.leader(to),
                         to_string(interface(to, way.to)), to_string(interface(from, way.from)));
    }
    return fmt::format("to rank {}: not tried", grid_.leader(to));
  }

  const ProcessGrid& grid_;
  const std::vector<NodeReach>& reach_;
  std::vector<int> chosen_;
};

}  // namespace

InterfaceChoice choose_interfaces(const ProcessGrid& grid, const std::vector<NodeReach>& reach) {
  return Chooser(grid, reach).choose();
}

}  // namespace kolo
