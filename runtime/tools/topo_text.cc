#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/tools/topo_report.h"

namespace kolo {
namespace {

using nlohmann::json;

/// Formats a size: "4 B", "64 KiB", "1 GiB".
std::string size_text(std::size_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return fmt::format("{} {}", bytes, kUnits[unit]);
}

/// Formats a count: "1 rank", "2 ranks".
std::string count_text(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

using Row = std::vector<std::string>;

/// Formats rows of equal length. Each column is as wide as its widest cell and right-aligned.
std::string table_text(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      fmt::format_to(std::back_inserter(text), "  {:>{}}", row[i], widths[i]);
    }
    text += '\n';
  }
  return text;
}

std::string ranks_text(const json& ranks) {
  std::vector<Row> rows = {{"rank", "node", "local rank", "cross rank"}};
  for (const json& rank : ranks) {
    Row row;
    for (const char* key : {"rank", "node", "local_rank", "cross_rank"}) {
      row.push_back(std::to_string(rank[key].get<int>()));
    }
    rows.push_back(std::move(row));
  }
  return table_text(rows) +
         "\n  local rank: number of the rank among those of its node\n"
         "  cross rank: number of its node among the nodes that have this local rank\n";
}

/// Returns vendor and model, or their numbers if the machine does not know the names.
std::string device_name(const json& device) {
  const std::string name = device["name"];
  if (!name.empty()) return name;
  return fmt::format("PCI device {:04x}:{:04x}", device["vendor_id"].get<int>(),
                     device["device_id"].get<int>());
}

std::string cache_name(const json& cache) {
  const std::string kind = cache["kind"];
  return fmt::format("L{}{} cache", cache["level"].get<int>(),
                     kind == "d"   ? " data"
                     : kind == "i" ? " instruction"
                                   : "");
}

std::string hardware_text(const json& hardware) {
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "  {}, {}, {} of memory\n", count_text(hardware["cores"], "core"),
                 count_text(hardware["pus"], "hardware thread"),
                 size_text(hardware["memory_bytes"]));
  for (const json& package : hardware["packages"]) {
    fmt::format_to(out, "  package {}: {}, {}\n", package["os_index"].get<int>(),
                   count_text(package["cores"], "core"), package["model"].get<std::string>());
  }
  for (const json& numa : hardware["numa_nodes"]) {
    fmt::format_to(out, "  NUMA node {}: {}, {}\n", numa["os_index"].get<int>(),
                   count_text(numa["cores"], "core"), size_text(numa["memory_bytes"]));
  }
  for (const json& cache : hardware["caches"]) {
    fmt::format_to(out, "  {}: {} x {}, each for {}\n", cache_name(cache),
                   cache["count"].get<int>(), size_text(cache["bytes"]),
                   count_text(cache["pus_sharing"], "hardware thread"));
  }
  for (const json& device : hardware["devices"]) {
    std::string names;
    for (const json& name : device["os_devices"]) names += name.get<std::string>() + ", ";
    const int numa_node = device["numa_node"];
    fmt::format_to(out, "  {}: {}{}, {}{}\n",
                   device["kind"] == "gpu" ? "graphics adapter" : "network card", names,
                   device_name(device), device["address"].get<std::string>(),
                   numa_node < 0 ? "" : fmt::format(", NUMA node {}", numa_node));
  }
  return text;
}

/// The meaning of each link cost, in the order of the report.
constexpr std::pair<std::string_view, std::string_view> kCostTexts[] = {
    {"memory_latency_us", "delay of a flag between two ranks of a node"},
    {"memory_cached_bytes_per_us", "memory rate of a node's ranks together, working set of 1 MiB"},
    {"memory_bytes_per_us_8m", "the same, 8 MiB"},
    {"memory_bytes_per_us_32m", "the same, 32 MiB"},
    {"memory_bytes_per_us", "the same, 64 MiB and more"},
    {"memory_shared_bytes_per_us", "rate of cache lines that another rank has written"},
    {"memory_slot_bytes_per_us", "rate of caller's tensors through shared staging slots"},
    {"memory_packed_bytes_per_us",
     "rate of contributions that another rank sums, through the cache"},
    {"memory_streamed_bytes_per_us", "the same, written past the cache"},
    {"network_latency_us", "delay of a message between nodes"},
    {"network_bytes_per_us", "rate of a node's link, each way"},
    {"network_message_us", "time of a rank to send or receive one more message"},
    {"network_burst_bytes", "burst that a shaped link lets pass at once; 0: link is not shaped"},
    {"network_crowded_loss", "share of a link's time lost while several peers send to it at once"},
    {"selector_bytes_per_us", "rate of selection for sparse gradients, one core"},
    {"selector_pair_us", "time of one sparse element: send, sum and receive"},
    {"device_latency_us", "delay between GPUs of a node"},
    {"device_bytes_per_us", "rate between GPUs of a node"},
    {"staging_latency_us", "delay of a copy between GPU and host"},
    {"staging_bytes_per_us", "rate of copies between GPU and host, each way"},
    {"native_network_latency_us", "delay between nodes by the GPU library"},
    {"native_network_bytes_per_us", "rate between nodes by the GPU library"},
    {"native_timed", "1: these are measured or given; 0: auto takes the GPU library"},
    {"bucket_us", "time of a rank for each bucket"},
    {"step_us", "time of each step of a schedule, beside its bytes"},
    {"private_read_us", "time of the call that reads a peer's private memory, beside its bytes"},
    {"private_page_us", "time beside that for each of its pages, if these are small"},
    {"rank_cores", "cores of each rank; below 1, ranks outnumber cores"},
};

/// The kinds of links that the job has. Link costs and choices of other kinds are not shown.
struct Parts {
  bool several_ranks = false, several_nodes = false, devices = false;
};

Parts parts_of(const json& report) {
  const auto has_devices = [](const json& node) { return !node["gpus"]["devices"].empty(); };
  return {.several_ranks = report["ranks"].size() > 1,
          .several_nodes = report["nodes"].size() > 1,
          .devices = std::ranges::any_of(report["nodes"], has_devices)};
}

bool is_shown(std::string_view cost, const Parts& parts) {
  const bool is_of_devices =
      cost.starts_with("device_") || cost.starts_with("staging_") || cost.starts_with("native_");
  if (is_of_devices && !parts.devices) return false;
  const bool is_of_network = cost.find("network_") != std::string_view::npos;
  return !is_of_network || parts.several_nodes;
}

std::string costs_text(const json& report, const Parts& parts) {
  std::string text = fmt::format(
      "\nCollective rounds before the first operation: {}\n\nLink costs ({})\n\n",
      report["start_up_rounds"].get<int>(), report["link_costs_source"].get<std::string>());
  const auto out = std::back_inserter(text);
  const auto add = [&](std::string_view name, double value, std::string_view meaning) {
    fmt::format_to(out, "  {:<28} {:>10.6g}{}{}\n", name, value, meaning.empty() ? "" : "   ",
                   meaning);
  };
  json left = report["link_costs"];
  for (const auto& [key, meaning] : kCostTexts) {
    const auto found = left.find(key);
    if (found == left.end()) continue;
    if (is_shown(key, parts)) add(key, found->get<double>(), meaning);
    left.erase(found);
  }
  for (const auto& [key, value] : left.items()) {
    if (is_shown(key, parts)) add(key, value.get<double>(), "");
  }
  for (std::size_t node = 0; node < report["node_rates"].size(); ++node) {
    add(fmt::format("node_rates[{}]", node), report["node_rates"][node].get<double>(),
        "rate of this node's link, each way");
  }
  return text + "\n  us: microseconds; bytes_per_us: 1000 is 1 GB/s. --link-costs sets them.\n";
}

/// Returns "hier:ring" for "hierarchical:direct,ring", to keep the table narrow.
std::string column_name(const std::string& algorithm) {
  const std::size_t comma = algorithm.find(',');
  return comma == std::string::npos ? algorithm : "hier:" + algorithm.substr(comma + 1);
}

std::string predictions_text(const json& predictions, const Parts& parts) {
  // On one node a hierarchy equals its inner algorithm.
  std::vector<std::string> algorithms;
  for (const auto& [name, us] : predictions.front()["us"].items()) {
    if (parts.several_nodes || name.find(',') == std::string::npos) algorithms.push_back(name);
  }
  std::vector<Row> rows = {{"size", "auto", "16-bit", "chunk", "bucket"}};
  if (parts.devices) rows.front().emplace_back("on GPUs");
  for (const std::string& name : algorithms) rows.front().push_back(column_name(name));
  for (const json& prediction : predictions) {
    Row row = {size_text(prediction["bytes"]), column_name(prediction["chosen"]),
               column_name(prediction["chosen_16bit"]), size_text(prediction["chunk_bytes"]),
               size_text(prediction["fusion_bytes"])};
    if (parts.devices) row.push_back(column_name(prediction["chosen_device"]));
    for (const std::string& name : algorithms) {
      row.push_back(fmt::format("{:.1f}", prediction["us"][name].get<double>()));
    }
    rows.push_back(std::move(row));
  }
  std::string text =
      "\nPredicted time of an all-reduce by each algorithm, in microseconds\n\n" +
      table_text(rows) +
      "\n  size: bytes of the buffer on each rank\n"
      "  auto: algorithm that --algorithm auto takes; 16-bit: for float16 and "
      "bfloat16\n"
      "  chunk, bucket: sizes that --chunk-bytes auto and --fusion-bytes auto take\n";
  if (parts.devices) text += "  on GPUs: algorithm that --algorithm auto takes\n";
  if (parts.several_nodes) text += "  hier:X: hierarchical with X between nodes\n";
  return text;
}

}  // namespace

std::string to_text(const json& report) {
  const Parts parts = parts_of(report);
  std::string text = fmt::format("{} on {}\n\n", count_text(report["ranks"].size(), "rank"),
                                 count_text(report["nodes"].size(), "node"));
  text += ranks_text(report["ranks"]);
  for (const json& node : report["nodes"]) {
    text +=
        fmt::format("\nnode {}: {}\n", node["node"].get<int>(), node["name"].get<std::string>());
    text += hardware_text(node["hardware"]);
    const json& network = node["network"];
    if (!network["interface"].get<std::string>().empty()) {
      text += fmt::format("  to other nodes: {} {}\n", network["interface"].get<std::string>(),
                          network["address"].get<std::string>());
    }
    text += fmt::format("  {} beside each rank for reductions\n",
                        count_text(node["reduce_threads"], "helper thread"));
    text += gpus_to_text(node["gpus"], node["hardware"]);
  }
  text += costs_text(report, parts);
  if (parts.several_ranks) text += predictions_text(report["predictions"], parts);
  return text;
}

}  // namespace kolo
