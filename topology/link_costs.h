#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kolo {

/// Cost of one kind of link in the alpha-beta model: a message of b bytes takes
/// latency_us + b / bytes_per_us.
struct LinkCost {
  double latency_us = 0;
  double bytes_per_us = 1;
};

/// Costs inside one node. Rates count bytes read plus bytes written by all ranks of a node
/// together, in cache lines that each rank wrote itself, by working set: rates in between are
/// interpolated; beyond the range, the nearest rate is used. Source of the defaults: measured on
/// two cores of an AMD EPYC (AVX-512, 32 MiB of L3) with two ranks.
struct MemoryCost {
  double latency_us = 0.3;               ///< From the store to a flag until ranks that await it
                                         ///< continue.
  double cached_bytes_per_us = 400'000;  ///< Working set of 1 MiB.
  double bytes_per_us_8m = 250'000;      ///< Working set of 8 MiB.
  double bytes_per_us_32m = 90'000;      ///< Working set of 32 MiB.
  double bytes_per_us = 65'000;          ///< Working set of 64 MiB and more.
  double shared_bytes_per_us = 40'000;   ///< Rate for cached lines written by another rank.
  /// Rate at which the caller's tensors pass through slots in the cache to the rank that sums them
  /// and back, beyond reading and writing the tensors once. Each byte counts once.
  double slot_bytes_per_us = 25'000;
  /// Rate of contributions to a sum that another rank of the node makes: read, packed into slots
  /// through the cache, and summed from there. Only bytes that move between ranks count, once each.
  double packed_bytes_per_us = 23'000;
  double streamed_bytes_per_us = 20'000;  ///< As above, packed past the cache.

  /// Whether packing past the cache is clearly cheaper: reading lines that another core holds can
  /// take several times as long as reading them from memory. If the rates are close, the cache is
  /// used, since buckets larger than the measured one gain from it.
  bool packs_past_cache() const { return streamed_bytes_per_us > 1.25 * packed_bytes_per_us; }
};

/// Costs between nodes: of one node's full-duplex link, which its ranks share.
struct NetworkCost {
  double latency_us = 15;      ///< Delay of a message, without the time to send and receive it.
  double bytes_per_us = 1200;  ///< Rate in each direction.
  double message_us = 1;       ///< Time that a rank takes to send or receive one more message.
  /// Bytes per direction that a rate-limited (token bucket) link passes at once after a rest; 0:
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
  double bytes_per_us = 10'000;  ///< Selection and casts, which move 12 bytes per element.
  double pair_us = 0.02;         ///< Time to send, sum and receive one pair.
};

/// Costs of a job. The defaults stand for a shared-memory node and a 10 Gbit/s network.
///
/// Units:   microseconds; bytes per microsecond (1000 is 1 GB/s); bytes.
/// Source:  Alexandrov, Ionescu, Schauser and Scheiman, LogGP, SPAA 1995: latency is their L,
///          1 / bytes_per_us their G, message_us their o. The rates of memory are gamma in Thakur,
///          Rabenseifner and Gropp, IJHPCA 2005, per byte moved instead of per element combined.
struct LinkCosts {
  MemoryCost memory = {};
  NetworkCost network = {};
  SelectorCost selector = {};
  LinkCost device{.latency_us = 5.0, .bytes_per_us = 360'000};  ///< Between devices of one node.
  /// Copies from device to host, and back. The latency covers two launches: the copy, and the event
  /// after it.
  LinkCost staging{.latency_us = 2 * 5.0, .bytes_per_us = 25'000};
  /// Between nodes through the device's native library: one node's link.
  LinkCost native_network{.latency_us = 15.0, .bytes_per_us = 1200};
  /// Rate of each node's link, by node, in bytes per microsecond and direction; 0: unknown. Empty:
  /// all links have `network.bytes_per_us`, the rate of the slowest.
  std::vector<double> node_rates;
  double node_rate(int node) const {
    const auto index = static_cast<std::size_t>(node);
    const bool is_known = index < node_rates.size() && node_rates[index] > 0;
    return is_known ? node_rates[index] : network.bytes_per_us;
  }
  double bucket_us = 0.2;  ///< Fixed time per rank and bucket.
  double step_us = 0.05;   ///< Time of each step of a schedule, without its bytes.
  /// Time of the system call that reads private memory of a peer, without its bytes.
  double private_read_us = 2;
  /// Additional time per small page (4 KiB), which the system looks up and copies. Source of the
  /// default: measured on an AMD EPYC.
  double private_page_us = 0.25;
  /// Whether reading private memory in small pages directly is faster than going through slots, to
  /// which its rank copies it: false if cores are close enough to read each other's lines faster.
  bool reads_small_pages() const { return private_page_us * memory.shared_bytes_per_us < 4096; }
  /// Cores per rank; less than 1 if a machine has more ranks than cores. The ranks of such a
  /// machine take turns to handle messages and to select the values of a sparse exchange.
  double rank_cores = 1;
};

/// Reads link costs from text, as in `--link-costs` and KOLO_LINK_COSTS: comma-separated
/// `key=value`. The keys are the fields of `LinkCosts`, joined by underscores: memory_latency_us,
/// network_bytes_per_us, bucket_us, ... Omitted keys keep their value in `defaults`, except that
/// native_network follows network, and staging_latency_us follows device_latency_us, unless they
/// are given.
///
///   parse_link_costs("network_latency_us=2.5,network_bytes_per_us=12000")
///
/// `node_rates` takes one number per node, with colons between them: node_rates=1200:120:1200.
///
/// Errors:  std::invalid_argument naming key and value: unknown key, not a number, negative or
///          infinite, a rate or a size of zero (allowed for bursts and single node_rates).
/// Threads: pure; any.
LinkCosts parse_link_costs(std::string_view text, LinkCosts defaults = {});

/// Every key with its value, except `node_rates`.
std::vector<std::pair<std::string_view, double>> link_cost_values(const LinkCosts& costs);

/// The text that `parse_link_costs` parses to `costs`; only keys that begin with `prefix`.
std::string to_string(const LinkCosts& costs, std::string_view prefix = "");

}  // namespace kolo
