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

/// Costs inside one node. Rates count bytes read plus bytes written by all ranks of a node at once,
/// in lines that each rank wrote itself, by working set: rates in between are interpolated, those
/// beyond are the nearest one. Source of the defaults: measured on two cores of an AMD EPYC
/// (AVX-512, 32 MiB of L3) with two ranks.
struct MemoryCost {
  double latency_us = 0.3;               ///< From a flag's store until ranks that await it go on.
  double cached_bytes_per_us = 400'000;  ///< A working set of 1 MiB,
  double bytes_per_us_8m = 250'000;      ///< of 8 MiB,
  double bytes_per_us_32m = 90'000;      ///< of 32 MiB,
  double bytes_per_us = 65'000;          ///< of 64 MiB and more.
  double shared_bytes_per_us = 40'000;   ///< Rate of cached lines that another rank wrote.
  /// Rate of the caller's tensors through slots in the cache, to the rank that sums them and back,
  /// beside reading and writing the tensors once. Each byte counts once.
  double slot_bytes_per_us = 25'000;
  /// Rate of contributions to a sum that another rank of the node makes: read, packed into slots
  /// through the cache, and summed from there. Bytes that change ranks count, once.
  double packed_bytes_per_us = 23'000;
  double streamed_bytes_per_us = 20'000;  ///< The same, packed past the cache.

  /// Whether the second costs clearly less: reading lines that another core holds can take several
  /// times as long as reading them from memory. Close rates are left to the cache, in which a
  /// larger bucket than the one that was measured fares better.
  bool packs_past_cache() const { return streamed_bytes_per_us > 1.25 * packed_bytes_per_us; }
};

/// Costs between nodes: of one node's link, full duplex, which its ranks share.
struct NetworkCost {
  double latency_us = 15;      ///< Delay of a message, beside sending and receiving it.
  double bytes_per_us = 1200;  ///< Rate in each direction.
  double message_us = 1;       ///< Time of a rank to send or receive one more message.
  /// Bytes in each direction that a shaped link passes at once after a rest, as a token bucket
  /// does; 0: the link is not shaped.
  double burst_bytes = 0;
  /// Share of a link's time that is lost while several peers send to it at once: packets queue
  /// before the link and are dropped. Source of the default: 0.02 to 0.04 between four hosts with
  /// TCP's control of congestion by CUBIC, 0.15 to 0.2 with BBR (docs/results.md); nothing between
  /// two, or where one sends to several.
  double crowded_loss = 0.03;
};

/// Costs of compression on one core.
struct SelectorCost {
  double bytes_per_us = 10'000;  ///< Selection and casts; they move 12 bytes an element.
  double pair_us = 0.02;         ///< Time of a pair: sent, summed and received.
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
  /// Device to host, and back. The latency is that of two launches: the copy, and the event
  /// behind it.
  LinkCost staging{.latency_us = 2 * 5.0, .bytes_per_us = 25'000};
  /// Between nodes as the device's own library reaches it, one node's link.
  LinkCost native_network{.latency_us = 15.0, .bytes_per_us = 1200};
  /// Rate of each node's link, by node, in bytes per microsecond in each direction; 0: unknown.
  /// Empty: all as `network.bytes_per_us`, which is that of the slowest.
  std::vector<double> node_rates;
  double node_rate(int node) const {
    const auto index = static_cast<std::size_t>(node);
    const bool is_known = index < node_rates.size() && node_rates[index] > 0;
    return is_known ? node_rates[index] : network.bytes_per_us;
  }
  double bucket_us = 0.2;  ///< Time of a rank for each bucket, whatever its size.
  double step_us = 0.05;   ///< Time of each step of a schedule, beside its bytes.
  /// Time of the system call by which a rank reads private memory of a peer, beside its bytes.
  double private_read_us = 2;
  /// Time beside that for each small page, of 4 KiB, which the system looks up and copies. Source
  /// of the default: measured on an AMD EPYC.
  double private_page_us = 0.25;
  /// Whether private memory in small pages is better read so than from slots, to which its rank
  /// copies it meanwhile: not where cores are near enough to read each other's lines faster.
  bool reads_small_pages() const { return private_page_us * memory.shared_bytes_per_us < 4096; }
  /// Cores that each rank has to itself; less than 1 where a machine has more ranks than cores. The
  /// ranks of such a machine handle messages one after the other, and select what a sparse exchange
  /// sends.
  double rank_cores = 1;
};

/// Reads link costs from text, as `--link-costs` and KOLO_LINK_COSTS give them: comma-separated
/// `key=value`. The keys are the fields of `LinkCosts`, joined by underscores: memory_latency_us,
/// network_bytes_per_us, bucket_us, ... Keys that are left out keep the value they have in
/// `defaults`, except that native_network follows network, and staging_latency_us
/// device_latency_us, unless they are named themselves.
///
///   parse_link_costs("network_latency_us=2.5,network_bytes_per_us=12000")
///
/// `node_rates` takes one number per node, with colons between them: node_rates=1200:120:1200.
///
/// Errors:  std::invalid_argument naming key and value: unknown key, not a number, negative or
///          infinite, a rate or a size of zero (bursts and single node_rates may be).
/// Threads: pure; any.
LinkCosts parse_link_costs(std::string_view text, LinkCosts defaults = {});

/// Every key with its value, but for `node_rates`.
std::vector<std::pair<std::string_view, double>> link_cost_values(const LinkCosts& costs);

/// The text that `parse_link_costs` reads back as `costs`; only keys that begin with `prefix`.
std::string to_string(const LinkCosts& costs, std::string_view prefix = "");

}  // namespace kolo
