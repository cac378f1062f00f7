#include "comm/network/network_path.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "comm/base/byte_codec.h"
#include "comm/base/clock.h"
#include "comm/base/error.h"

namespace kolo {
namespace {

constexpr const char* kReachListener = "reach listener";
constexpr const char* kReach = "reach";
constexpr std::size_t kMaxInterfaces = 64;

std::string encoded(const auto& write) {
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  write(writer);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void require_read(const ByteReader& reader, int node) {
  if (reader.ok() && reader.at_end()) return;
  throw KoloError({.code = ErrorCode::kIo,
                   .what = "node " + std::to_string(node) +
                           " described its network interfaces in a way that cannot be read"});
}

void write_interfaces(ByteWriter& writer, const std::vector<NetworkInterface>& interfaces) {
  writer.number(narrow<std::uint32_t>(interfaces.size()));
  for (const NetworkInterface& each : interfaces) {
    writer.text(each.name);
    writer.text(each.address);
    writer.number(static_cast<std::uint8_t>(each.is_loopback));
    writer.rank(each.mbit_per_s);
  }
}

std::vector<NetworkInterface> read_interfaces(ByteReader& reader) {
  constexpr std::size_t kLeastBytes = 13;
  std::vector<NetworkInterface> interfaces(reader.list(kLeastBytes));
  for (NetworkInterface& each : interfaces) {
    each.name = reader.text();
    each.address = reader.text();
    each.is_loopback = reader.number<std::uint8_t>() != 0;
    each.mbit_per_s = reader.rank();
  }
  return interfaces;
}

ReachTarget read_target(int node, const std::string& text) {
  ByteReader reader(std::as_bytes(std::span(text)));
  ReachTarget target{.node = node, .interfaces = {}, .port = reader.number<std::uint16_t>()};
  target.interfaces = read_interfaces(reader);
  require_read(reader, node);
  return target;
}

std::string write_reach(const NodeReach& reach) {
  return encoded([&](ByteWriter& writer) {
    writer.number(narrow<std::uint32_t>(reach.ways.size()));
    for (const Way& way : reach.ways) {
      writer.rank(way.to_node);
      writer.number(narrow<std::uint8_t>(way.to));
      writer.number(narrow<std::uint8_t>(way.from));
    }
    writer.number(narrow<std::uint32_t>(reach.no_ways.size()));
    for (const NoWay& none : reach.no_ways) {
      writer.rank(none.to_node);
      writer.text(none.why);
    }
  });
}

NodeReach read_reach(int node, const std::string& text, std::vector<NetworkInterface> interfaces) {
  ByteReader reader(std::as_bytes(std::span(text)));
  NodeReach reach{.interfaces = std::move(interfaces), .ways = {}, .no_ways = {}};
  reach.ways.resize(reader.list(6));
  for (Way& way : reach.ways) {
    way.to_node = reader.rank();
    way.to = reader.number<std::uint8_t>();
    way.from = reader.number<std::uint8_t>();
  }
  reach.no_ways.resize(reader.list(8));
  for (NoWay& none : reach.no_ways) {
    none.to_node = reader.rank();
    none.why = reader.text();
  }
  require_read(reader, node);
  return reach;
}

}  // namespace

PathFinder::PathFinder(const std::string& devices) {
  try {
    interfaces_ = listed_interfaces(network_interfaces(), devices);
    interfaces_.resize(std::min(interfaces_.size(), kMaxInterfaces));
    listener_ = std::make_unique<ReachListener>();
  } catch (const KoloError& error) {
    problem_ = error;
  }
}

PathFinder::~PathFinder() = default;

void PathFinder::post(BatchedExchange& exchange) {
  exchange.post(kReachListener, encoded([&](ByteWriter& writer) {
                  writer.number(listener_ ? listener_->port() : std::uint16_t{0});
                  write_interfaces(writer, interfaces_);
                }));
}

void PathFinder::serve(const ProcessGrid& grid, int rank, const std::string& job_id) {
  if (listener_ == nullptr) return;  // `find` says why
  const int node = grid.node(rank);
  if (grid.leader(node) == rank) {
    listener_->serve(job_id, node);
  } else {
    listener_.reset();
  }
}

NetworkPath PathFinder::find(BatchedExchange& exchange, const ProcessGrid& grid,
                             const std::string& job_id, std::chrono::milliseconds timeout) {
  const int node = grid.node(exchange.rank());
  const bool is_leader = grid.leader(node) == exchange.rank();
  if (is_leader && problem_) throw KoloError(*problem_);
  std::vector<ReachTarget> nodes;
  for (int each = 0; each < grid.num_nodes(); ++each) {
    const auto leader = static_cast<std::size_t>(grid.leader(each));
    nodes.push_back(read_target(each, exchange.texts(kReachListener)[leader]));
  }
  if (is_leader) {
    std::vector<ReachTarget> others = nodes;
    std::erase_if(others, [&](const ReachTarget& target) { return target.node == node; });
    ReachLimits limits;
    limits.all = std::min(limits.all, saturated(timeout / 2));
    exchange.post(kReach, write_reach(probe_reach(job_id, interfaces_, others, limits)));
  }
  exchange.run();  // the listener serves until all nodes have finished probing
  listener_.reset();
  std::vector<NodeReach> reach;
  for (ReachTarget& each : nodes) {
    const auto leader = static_cast<std::size_t>(grid.leader(each.node));
    reach.push_back(
        read_reach(each.node, exchange.texts(kReach)[leader], std::move(each.interfaces)));
  }
  const InterfaceChoice choice = choose_interfaces(grid, reach);
  const auto place = static_cast<std::size_t>(node);
  NetworkPath path{.problem = choice.problem};
  if (choice.of_node[place] != InterfaceChoice::kNone) {
    const auto index = static_cast<std::size_t>(choice.of_node[place]);
    const NetworkInterface& chosen = reach[place].interfaces[index];
    path.interface = chosen.name;
    path.address = chosen.address;
    path.is_loopback = chosen.is_loopback;
  }
  return path;
}

}  // namespace kolo
