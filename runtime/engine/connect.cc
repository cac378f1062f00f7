#include "runtime/engine/connect.h"

#include <sys/random.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/error.h"
#include "comm/base/log.h"
#include "comm/base/open_files.h"
#include "comm/coordinator/combining_tree.h"
#include "comm/native/network_factory.h"
#include "comm/rendezvous/batched_exchange.h"
#include "comm/rendezvous/launch.h"
#include "comm/transport/routed_transport.h"
#include "comm/transport/shm_transport.h"
#include "compression/compression_spec.h"
#include "runtime/calibration/native_probe.h"
#include "runtime/calibration/probe.h"
#include "runtime/options/option_table.h"
#include "runtime/options/version.h"
#include "topology/discovery.h"

namespace kolo {
namespace {

constexpr std::size_t kSecretBytes = 32;
constexpr std::size_t kJobIdBytes = 8;
constexpr std::size_t kSocketBytes = 16;
constexpr std::string_view kNoDevice = "cpu";
constexpr std::string_view kSelectorKeys = "selector_";

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  if (::getrandom(bytes.data(), count, 0) != static_cast<ssize_t>(count)) {
    throw KoloError({.code = ErrorCode::kIo, .what = "getrandom gave no random bytes"});
  }
  return bytes;
}

std::string hex(const std::string& bytes) {
  std::string text;
  for (char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

/// Returns the kind of a device: "cuda" for "cuda:1".
std::string device_kind(const std::string& device) { return device.substr(0, device.find(':')); }

/// Returns the settings that must be equal on all ranks, as (name, value).
std::vector<std::pair<std::string, std::string>> job_wide_settings(const Options& options) {
  std::vector<std::pair<std::string, std::string>> settings = {
      {"version", kVersion}, {"device", device_kind(options.device)}};
  for (const OptionEntry& entry : option_table()) {
    if (entry.job_wide) settings.emplace_back(entry.name, entry.get(options));
  }
  return settings;
}

/// Formats differing values: "fusion_bytes is 7 on rank 2 and auto on ranks 0, 1", or "".
std::string difference(std::string_view name, const std::vector<std::string>& value_of_rank) {
  std::map<std::string, std::vector<int>> ranks_by_value;
  for (std::size_t rank = 0; rank < value_of_rank.size(); ++rank) {
    ranks_by_value[value_of_rank[rank]].push_back(static_cast<int>(rank));
  }
  if (ranks_by_value.size() == 1) return {};
  std::string text;
  for (const auto& [value, ranks] : ranks_by_value) {
    text += fmt::format("{}{} on rank{} {}", text.empty() ? "" : " and ",
                        value.empty() ? "empty" : value, ranks.size() == 1 ? "" : "s",
                        fmt::join(ranks, ", "));
  }
  return fmt::format("{} is {}", name, text);
}

// Keys in the exchange; the key of a setting is `kSetting` and its name.
constexpr const char* kSetting = "setting ";
constexpr const char* kNode = "node";
constexpr const char* kIdentity = "identity";
constexpr const char* kPlace = "place";
constexpr const char* kSocket = "socket";
constexpr const char* kAddress = "address";
constexpr const char* kOutOfBandAbort = "out-of-band abort";
constexpr const char* kTakesDeviceMemory = "takes device memory";
constexpr const char* kSelector = "selector";
constexpr const char* kIntroduction = "introduction of a device";
constexpr const char* kNativeTime = "time of a native collective";

/// Throws KoloError(kConfig), equal on all ranks, if settings differ between ranks.
void compare_settings(BatchedExchange& exchange, const Options& options) {
  // The version comes first: ranks of other versions may have other settings.
  for (const auto& [name, value] : job_wide_settings(options)) {
    const std::string found = difference(name, exchange.texts(kSetting + name));
    if (found.empty()) continue;
    throw KoloError({.code = ErrorCode::kConfig,
                     .what = "ranks were started differently: " + found +
                             "; start all ranks with the same value"});
  }
}

/// Measures on rank 0 the rate of selection, by which all ranks choose compression alike.
void post_selector(BatchedExchange& exchange, const Options& options) {
  const bool chooses =
      exchange.rank() == 0 && options.calibrate == "on" && !options.reproducible &&
      CompressionRules::parse(options.compression).any(&CompressionSpec::leaves_choices);
  if (!chooses) return;
  LinkCosts measured;
  measured.selector = probe_selector();
  exchange.post(kSelector, to_string(measured, kSelectorKeys));
}

int choose_reduce_threads(const Options& options, const CoreSharers& sharers, std::size_t granted) {
  if (options.reduce_threads != kAutoThreads) return options.reduce_threads;
  const int threads = spare_reduce_threads(sharers, granted);
  log::debug(fmt::format("{} threads help with reductions: {} cores, {} ranks on this node",
                         threads, granted, sharers.node.size()));
  return threads;
}

/// Finds the network path to the other nodes. If UCX settings exclude TCP, nodes need not reach
/// each other by TCP. Rank 0 logs the path, because a wrong path is only slow, not an error.
NetworkPath find_path(PathFinder& finder, const std::string& devices, BatchedExchange& exchange,
                      const ProcessGrid& grid, const std::string& job_id, const Options& options) {
  NetworkPath path = finder.find(exchange, grid, job_id, options.connect_timeout);
  if (!network_uses_tcp()) return path;
  if (!path.problem.empty()) {
    throw KoloError({.code = ErrorCode::kIo,
                     .what = path.problem +
                             "; let TCP pass between these hosts, or name the interface that "
                             "connects them in UCX_NET_DEVICES"});
  }
  const bool is_shown = exchange.rank() == 0 && !path.is_loopback;
  (is_shown ? log::notice : log::info)(
      fmt::format("the network between nodes is {} {}{}", path.interface, path.address,
                  devices.empty() ? "" : ", of UCX_NET_DEVICES=" + devices));
  return path;
}

/// Returns the neighbours on other nodes in the tree of agreement. Connections to them are made at
/// start, because the tree must also report links that fail later.
std::vector<int> control_peers(const ProcessGrid& grid, int rank) {
  const CombiningTree tree = CombiningTree::build(rank, grid);
  std::vector<int> peers = tree.children;
  if (tree.parent >= 0) peers.push_back(tree.parent);
  std::erase_if(peers, [&](int peer) { return grid.node(peer) == grid.node(rank); });
  return peers;
}

/// Returns null on failure; peers on other nodes then only notice that a stuck rank is silent.
std::unique_ptr<OutOfBandAbort> open_listener(const NetworkPath& path) {
  if (path.address.empty()) return nullptr;
  try {
    return std::make_unique<OutOfBandAbort>(path.address);
  } catch (const KoloError& e) {
    log::debug(std::string("no listener for errors of other nodes: ") + e.what());
    return nullptr;
  }
}

/// Returns the listener addresses of the leaders of the other nodes; each leader tells its node.
std::vector<std::string> listeners_of_others(const std::vector<std::string>& addresses,
                                             const ProcessGrid& grid, int rank) {
  std::vector<std::string> listeners;
  for (int node = 0; node < grid.num_nodes(); ++node) {
    const std::string& address = addresses[static_cast<std::size_t>(grid.leader(node))];
    if (node != grid.node(rank) && !address.empty()) listeners.push_back(address);
  }
  return listeners;
}

}  // namespace

Connection connect(Rendezvous& found, const Options& options, const DeviceSource& devices) {
  raise_open_file_limit();
  CountedRendezvous rendezvous(found);
  BatchedExchange exchange(rendezvous);
  const int rank = exchange.rank();
  const std::string node = node_identity(options.node_id);
  log::set_identity(rank, short_node_name(node));
  for (const auto& [name, value] : job_wide_settings(options)) {
    exchange.post(kSetting + name, value);
  }
  exchange.post(kNode, node);
  // Rank 0 draws the identity of the job, which is known to all participants of the rendezvous.
  if (rank == 0) exchange.post(kIdentity, random_bytes(kJobIdBytes + kSecretBytes));
  exchange.post(kPlace, own_place());
  exchange.post(kSocket, "kolo-" + hex(random_bytes(kSocketBytes)));
  const std::string interfaces = process_environment()("UCX_NET_DEVICES").value_or("");
  std::optional<PathFinder> finder;
  if (exchange.size() > 1) finder.emplace(interfaces).post(exchange);
  exchange.run();
  compare_settings(exchange, options);
  ProcessGrid grid(exchange.texts(kNode));
  const std::string identity = exchange.text_of_rank_0(kIdentity);
  const std::string job_id = hex(identity.substr(0, kJobIdBytes));
  // Other nodes wait for an answer for seconds; shared memory of a large node may take longer.
  if (grid.num_nodes() > 1) finder->serve(grid, rank, job_id);
  const std::vector<RankPlace> places = places_of(exchange.texts(kPlace));

  std::vector<std::string> sockets;
  for (const int each : grid.ranks_of_node(grid.node(rank))) {
    sockets.push_back(exchange.texts(kSocket)[static_cast<std::size_t>(each)]);
  }

  TransportLimits limits{.arena_bytes = options.arena_bytes};
  TransportLimits with_groups = limits;
  with_groups.arena_bytes += options.group_arena_bytes;
  std::unique_ptr<Transport> transport = std::make_unique<ShmTransport>(
      ShmTransport::Config{.secret = identity.substr(kJobIdBytes),
                           .rank = rank,
                           .node_ranks = grid.ranks_of_node(grid.node(rank)),
                           .sockets = std::move(sockets),
                           .limits = with_groups,
                           .connect_within = options.connect_timeout},
      grid.world_size());
  std::unique_ptr<NetworkTransport> network;
  NetworkPath path;
  std::unique_ptr<OutOfBandAbort> listener;
  if (grid.num_nodes() > 1) {
    path = find_path(*finder, interfaces, exchange, grid, job_id, options);
    listener = open_listener(path);
    if (listener != nullptr) exchange.post(kOutOfBandAbort, listener->address());
    network = open_network({.rank = rank,
                            .world_size = grid.world_size(),
                            .ucx_library = options.ucx_library,
                            .interface = network_uses_tcp() ? path.interface : "",
                            .address = path.address,
                            .control_peers = control_peers(grid, rank)});
    exchange.post(kAddress, network->address());
    exchange.post(kTakesDeviceMemory, network->takes_device_memory() ? "yes" : "no");
  }
  finder.reset();
  std::optional<DeviceContext> device_context;
  if (options.device != kNoDevice) {
    device_context.emplace().device = devices.open(options.device, grid.local_rank(rank));
    exchange.post(kIntroduction,
                  devices.introduce(rank, *device_context->device, options.nccl_library));
  }
  Calibrator calibrator(rank, grid, places, options);
  calibrator.post(exchange);
  post_selector(exchange, options);
  if (grid.world_size() > 1 || device_context) exchange.run();
  if (network != nullptr) {
    network->connect(exchange.texts(kAddress));
    // Schedules must fit each other, so if one rank must stage device memory, all ranks do.
    if (device_context) {
      device_context->network_takes_memory =
          std::ranges::count(exchange.texts(kTakesDeviceMemory), "no") == 0;
    }
    transport = std::make_unique<RoutedTransport>(std::move(transport), std::move(network));
  }
  const bool measured = calibrator.measure(exchange, *transport, limits);
  if (device_context) {
    DeviceCommunicators groups = devices.connect(exchange.texts(kIntroduction), rank, grid,
                                                 *device_context->device, options.connect_timeout);
    device_context->node = std::move(groups.node);
    device_context->world = std::move(groups.world);
    device_context->connector = std::move(groups.connector);
  }
  // No rank uses its device communicators before all are connected.
  if (measured || (device_context && grid.world_size() > 1)) exchange.run();
  const bool is_timed = grid.num_nodes() > 1 && options.calibrate == "on" &&
                        !options.reproducible && device_context && device_context->world != nullptr;
  if (is_timed) {
    exchange.post(kNativeTime,
                  fmt::format("{}", time_native(*device_context->device, *device_context->world,
                                                options.connect_timeout)));
    exchange.run();
  }
  Calibration calibration = calibrator.finish(exchange);
  limits.flags_per_peer -= kProbeFlags;
  calibration.costs = parse_link_costs(exchange.text_of_rank_0(kSelector), calibration.costs);
  if (device_context) calibration.costs.native_timed = 0;
  if (const std::string us = exchange.text_of_rank_0(kNativeTime); !us.empty()) {
    fit_native(std::stod(us), grid, calibration.costs);
  }
  calibration.costs = parse_link_costs(options.link_costs, calibration.costs);
  const CoreSharers sharers = core_sharers(places, grid, rank);
  const std::size_t granted = granted_cores();
  const int reduce_threads = choose_reduce_threads(options, sharers, granted);
  std::vector<std::string> listeners =
      listeners_of_others(exchange.texts(kOutOfBandAbort), grid, rank);
  return {.grid = std::move(grid),
          .limits = limits,
          .transport = std::move(transport),
          .reduce_threads = reduce_threads,
          .wait = choose_wait_policy(sharers, granted, options.spin, reduce_threads),
          .calibration = std::move(calibration),
          .device_context = std::move(device_context),
          .network = std::move(path),
          .listener = std::move(listener),
          .listeners = std::move(listeners),
          .start_up_rounds = rendezvous.rounds()};
}

}  // namespace kolo
