#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kolo {

/// The cost of one kind of link in the alpha-beta model: latency_us + b / bytes_per_us for b bytes.
struct LinkCost {
  double latency_us = 0;
  double bytes_per_us = 1;
};

/// Costs inside one node. A rate counts bytes read plus bytes written by all ranks of a node
/// together, in cache lines that each rank wrote itself. Rates depend on the size of the working
/// set: between the given sizes they are interpolated; outside them, the nearest rate applies.
/// Source of the defaults: two ranks on two cores of an AMD EPYC (AVX-512, 32 MiB of L3).
struct MemoryCost {
  /// Time from the store to a flag until the ranks that await it continue.
  double latency_us = 0.3;
  double cached_bytes_per_us = 400'000;  ///< Working set of 1 MiB.
  double bytes_per_us_8m = 250'000;      ///< Working set of 8 MiB.
  double bytes_per_us_32m = 90'000;      ///< Working set of 32 MiB.
  double bytes_per_us = 65'000;          ///< Working set of 64 MiB and more.
  double shared_bytes_per_us = 40'000;   ///< Rate for cached lines that another rank wrote.
  /// Rate at which the caller's tensors are copied through slots in the cache to the rank that sums
  /// them, and back, in addition to reading and writing the tensors once. Each byte counts once.
  double slot_bytes_per_us = 25'000;
  /// Rate of contributions that one rank packs into slots through the cache and another rank of the
  /// node sums from there. Only bytes that move between ranks count, once each.
  double packed_bytes_per_us = 23'000;
  double streamed_bytes_per_us = 20'000;  ///< As above, if packing bypasses the cache.

  /// Whether packing past the cache is clearly cheaper: reading lines that another core holds can
  /// take several times as long as reading them from memory. If the rates are close, the cache is
  /// used, because larger buckets than the measured ones gain from it.
  bool packs_past_cache() const { return streamed_bytes_per_us > 1.25 * packed_bytes_per_us; }
};

/// Costs between nodes, of one node's full-duplex link, which the node's ranks share.
struct NetworkCost {
  double latency_us = 15;      ///< Latency of a message, without the time to send and receive it.
  double bytes_per_us = 1200;  ///< Rate in each direction.
  double message_us = 1;       ///< Time that a rank takes to send or receive one more message.
  /// Bytes per direction that a rate-limited (token bucket) link sends at once after a pause; 0 if
  /// the link has no such limit.
  double burst_bytes = 0;
  /// Share of a link's time that is lost while several peers send to it at once, because packets
  /// queue before the link and are dropped. Source of the default: 0.02 to 0.04 between four hosts
  /// with TCP congestion control CUBIC, 0.15 to 0.2 with BBR (docs/results.md); 0 between two
  /// hosts, or when one host sends to several.
  double crowded_loss = 0.03;
};

/// Costs of compression on one core.
struct SelectorCost {
  double bytes_per_us = 10'000;  ///< Rate of selection and casts; 12 bytes per element.
  double pair_us = 0.02;         ///< Time to send, sum and receive one pair.
};

/// Costs of a job. The defaults describe a shared-memory node and a 10 Gbit/s network.
///
/// Units:   microseconds; bytes per microsecond (1000 is 1 GB/s); bytes.
/// Source:  Alexandrov, Ionescu, Schauser and Scheiman, LogGP, SPAA 1995: latency is their L, the
///          inverse rate their G, message_us their o. The inverse of a memory rate corresponds to
///          gamma in Thakur, Rabenseifner and Gropp, IJHPCA 2005, but counts bytes that are moved,
///          not bytes that are reduced.
struct LinkCosts {
  MemoryCost memory = {};
  NetworkCost network = {};
  SelectorCost selector = {};
  LinkCost device{.latency_us = 5.0, .bytes_per_us = 360'000};  ///< Between devices of one node.
  /// Copies from device to host, or from host to device. The latency covers two launches: of the
  /// copy, and of the event after it.
  LinkCost staging{.latency_us = 2 * 5.0, .bytes_per_us = 25'000};
  /// Between nodes through the device library; the costs of one node's link.
  LinkCost native_network{.latency_us = 15.0, .bytes_per_us = 1200};
  /// 0 if these costs are a guess: `auto` then takes the device library. 1 otherwise.
  double native_timed = 1;
  /// Rate of each node's link, by node, in bytes per microsecond and direction; 0 if unknown. If
  /// empty, all links have the rate `network.bytes_per_us`, which is that of the slowest link.
  std::vector<double> node_rates;
  double node_rate(int node) const {
    const auto index = static_cast<std::size_t>(node);
    const bool is_known = index < node_rates.size() && node_rates[index] > 0;
    return is_known ? node_rates[index] : network.bytes_per_us;
  }
  double bucket_us = 0.2;  ///< Fixed time per rank and bucket.
  double step_us = 0.05;   ///< Time of each step of a schedule, without the time for its bytes.
  /// Time of the system call that reads private memory of a peer, without the time for its bytes.
  double private_read_us = 2;
  /// Additional time per small page (4 KiB), which the system looks up and copies. Source of the
  /// default: measured on an AMD EPYC.
  double private_page_us = 0.25;
  /// Whether reading private memory in small pages directly is faster than reading it from slots,
  /// to which the other rank must copy it. False if cores read each other's lines faster.
  bool reads_small_pages() const { return private_page_us * memory.shared_bytes_per_us < 4096; }
  /// Cores per rank; less than 1 if a machine has more ranks than cores. The ranks of such a
  /// machine alternate in handling messages and in selecting values for a sparse exchange.
  double rank_cores = 1;
};

/// Reads link costs from text, as in `--link-costs` and KOLO_LINK_COSTS: comma-separated
/// `key=value`. The keys are the fields of `LinkCosts`, joined by underscores: memory_latency_us,
/// network_bytes_per_us, bucket_us, ... Omitted keys keep their value in `defaults`, with three
/// exceptions: if network is given, native_network gets the same values; if either is given,
/// native_timed becomes 1; if device_latency_us is given, staging_latency_us gets twice its value.
///
///   parse_link_costs("network_latency_us=2.5,network_bytes_per_us=12000")
///
/// `node_rates` takes one number per node, separated by colons: node_rates=1200:120:1200.
///
/// Errors:  std::invalid_argument that names key and value: unknown key, not a number, negative or
///          infinite, a rate or a size of zero (allowed for bursts and single node_rates).
/// Threads: pure; any.
LinkCosts parse_link_costs(std::string_view text, LinkCosts defaults = {});

/// Returns every key with its value, except `node_rates`.
std::vector<std::pair<std::string_view, double>> link_cost_values(const LinkCosts& costs);

/// Returns a text that `parse_link_costs` accepts, with the keys that start with `prefix`.
std::string to_string(const LinkCosts& costs, std::string_view prefix = "");

}  // namespace kolo
