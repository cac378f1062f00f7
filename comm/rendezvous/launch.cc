#include "comm/rendezvous/launch.h"

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "comm/base/error.h"

namespace kolo {
namespace {

class HostlistParser {
 public:
  explicit HostlistParser(std::string_view list) : list_(list), rest_(list) {}

  std::vector<std::string> parse() {
    std::vector<std::string> hosts;
    do {
      for (std::string& host : next_item()) hosts.push_back(std::move(host));
      if (hosts.size() > kMaxHosts) reject("names too many hosts");
    } while (accept(','));
    return hosts;
  }

 private:
  [[noreturn]] void reject(std::string_view why) const {
    throw KoloError(
        Error{.code = ErrorCode::kConfig, .what = fmt::format("host list '{}' {}", list_, why)});
  }

  bool accept(char wanted) {
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }

  /// Parses one item of the outer list. Each bracket multiplies the number of names.
  std::vector<std::string> next_item() {
    std::vector<std::string> names{""};
    while (!rest_.empty() && rest_.front() != ',') {
      if (accept('[')) {
        names = product(names, bracket());
      } else {
        const std::string_view literal = take_until(",[]");
        if (literal.empty()) reject("has a ']' without '['");
        for (std::string& name : names) name += literal;
      }
    }
    if (names.front().empty()) reject("has an empty name");
    return names;
  }

  std::vector<std::string> product(const std::vector<std::string>& heads,
                                   const std::vector<std::string>& tails) const {
    if (heads.size() * tails.size() > kMaxHosts) reject("names too many hosts");
    std::vector<std::string> all;
    for (const std::string& head : heads) {
      for (const std::string& tail : tails) all.push_back(head + tail);
    }
    return all;
  }

  std::vector<std::string> bracket() {
    std::vector<std::string> numbers;
    do {
      const std::string_view first = take_until("-,]");
      const std::string_view last = accept('-') ? take_until(",]") : first;
      const std::uint32_t low = number(first);
      const std::uint32_t high = number(last);
      if (low > high) reject("has a range that falls");
      if (high - low >= kMaxHosts - numbers.size()) reject("names too many hosts");
      for (std::uint32_t value = low; value <= high; ++value) {
        numbers.push_back(fmt::format("{:0{}}", value, first.size()));
      }
    } while (accept(','));
    if (!accept(']')) reject("has a '[' without ']'");
    return numbers;
  }

  std::string_view take_until(std::string_view stops) {
    const std::string_view taken = rest_.substr(0, rest_.find_first_of(stops));
    rest_.remove_prefix(taken.size());
    return taken;
  }

  std::uint32_t number(std::string_view digits) const {
    constexpr std::size_t kMaxDigits = 9;  // More digits could overflow the width or the value.
    std::uint32_t value = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (digits.empty() || digits.size() > kMaxDigits || error != std::errc{} || stop != end) {
      reject("has something else than a number in brackets");
    }
    return value;
  }

  std::string_view list_;
  std::string_view rest_;
};

}  // namespace

std::vector<std::string> parse_hostlist(std::string_view list) {
  return HostlistParser(list).parse();
}

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

namespace {

[[noreturn]] void fail_launch(std::string what) {
  throw KoloError(
      Error{.code = ErrorCode::kConfig, .verb = {}, .bucket = {}, .what = std::move(what)});
}

/// Removes the brackets of an IPv6 address: "fd00::1" for "[fd00::1]".
std::string without_brackets(std::string host) {
  const bool has_brackets = host.starts_with('[') && host.ends_with(']');
  return has_brackets ? host.substr(1, host.size() - 2) : host;
}

class LaunchDetector {
 public:
  LaunchDetector(const Environment& environment, std::chrono::milliseconds timeout)
      : environment_(environment), timeout_(timeout) {}

  std::optional<Launch> open_mpi() const {
    if (!get("OMPI_COMM_WORLD_SIZE")) return std::nullopt;
    return mpi(optional_number("OMPI_COMM_WORLD_RANK"), optional_number("OMPI_COMM_WORLD_SIZE"));
  }

  std::optional<Launch> pmi() const {
    if (!get("PMI_SIZE") && !get("PMI_RANK") && !get("PMIX_RANK")) return std::nullopt;
    const std::optional<int> rank = optional_number("PMIX_RANK");
    return mpi(rank ? rank : optional_number("PMI_RANK"), optional_number("PMI_SIZE"));
  }

  /// Reads rank and size, which mpiexec sets, and the address of rank 0, which the user sets.
  std::optional<Launch> pmi_and_place() const {
    if (!get("PMI_RANK") || !get("PMI_SIZE") || !get("MASTER_ADDR")) return std::nullopt;
    const int rank = number("PMI_RANK", 0, kMaxTcpRanks);
    const int size = number("PMI_SIZE", 1, kMaxTcpRanks);
    return tcp(rank, size, "PMI_SIZE", required("MASTER_ADDR"), number("MASTER_PORT", 1, kMaxPort),
               "");
  }

  std::optional<Launch> pmix() const {
    if (!get("PMIX_NAMESPACE") || !get("PMIX_RANK")) return std::nullopt;
    return Launch{.kind = Launch::Kind::kPmix, .rank = {}, .size = {}, .tcp = {}};
  }

  bool is_pmi() const { return get("PMI_RANK") && !get("PMIX_RANK"); }

  std::optional<Launch> torchrun() const {
    if (!get("RANK") && !get("WORLD_SIZE")) return std::nullopt;
    const int rank = number("RANK", 0, kMaxTcpRanks);
    const int size = number("WORLD_SIZE", 1, kMaxTcpRanks);
    if (size == 1) return Launch{};
    // torchrun's own store uses MASTER_PORT while the ranks run, so Kolo uses the next port.
    const int shift = get("TORCHELASTIC_USE_AGENT_STORE") == "True" ? 1 : 0;
    const int port = number("MASTER_PORT", 1, kMaxPort - shift) + shift;
    return tcp(rank, size, "WORLD_SIZE", required("MASTER_ADDR"), port,
               get("TORCHELASTIC_RUN_ID").value_or(""));
  }

  /// Reads what srun sets for a step. A batch script has only the variables of its job, such as
  /// SLURM_NTASKS, and is one process.
  std::optional<Launch> slurm() const {
    constexpr const char* kTasks = "SLURM_STEP_NUM_TASKS";
    if (!get("SLURM_PROCID") || !get(kTasks)) return std::nullopt;
    const int rank = number("SLURM_PROCID", 0, kMaxTcpRanks);
    const int size = number(kTasks, 1, kMaxTcpRanks);
    if (size == 1) return Launch{};
    const std::string step = get("SLURM_STEP_ID").value_or("0");
    const std::string job = required("SLURM_JOB_ID") + "." + step;
    const int port = get("MASTER_PORT") ? number("MASTER_PORT", 1, kMaxPort) : slurm_port(job);
    return tcp(rank, size, kTasks, slurm_host(), port, job);
  }

 private:
  static constexpr int kMaxPort = std::numeric_limits<std::uint16_t>::max();

  std::optional<std::string> get(const std::string& name) const {
    std::optional<std::string> value = environment_(name);
    if (value && value->empty()) return std::nullopt;
    return value;
  }

  std::string required(const std::string& name) const {
    if (std::optional<std::string> value = get(name)) return *std::move(value);
    fail_launch(fmt::format("{} is not set", name));
  }

  int number(const std::string& name, int low, int high) const {
    const std::string text = required(name);
    int value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || stop != end || value < low || value > high) {
      fail_launch(fmt::format("{}='{}' is not a number from {} to {}", name, text, low, high));
    }
    return value;
  }

  std::optional<int> optional_number(const std::string& name) const {
    if (!get(name)) return std::nullopt;
    return number(name, 0, std::numeric_limits<int>::max());
  }

  static Launch mpi(std::optional<int> rank, std::optional<int> size) {
    if (size == 1) return Launch{};
    return Launch{.kind = Launch::Kind::kMpi, .rank = rank, .size = size, .tcp = {}};
  }

  Launch tcp(int rank, int size, std::string_view size_name, std::string host, int port,
             std::string job) const {
    if (rank >= size)
      fail_launch(fmt::format("rank {} does not exist with {}={}", rank, size_name, size));
    return Launch{.kind = Launch::Kind::kTcp,
                  .rank = {},
                  .size = {},
                  .tcp = {.rank = rank,
                          .size = size,
                          .host = without_brackets(std::move(host)),
                          .port = static_cast<std::uint16_t>(port),
                          .job_id = std::move(job),
                          .timeout = timeout_}};
  }

  std::string slurm_host() const {
    if (const auto chosen = get("MASTER_ADDR")) return *chosen;
    const std::optional<std::string> of_step = get("SLURM_STEP_NODELIST");
    return parse_hostlist(of_step ? *of_step : required("SLURM_JOB_NODELIST")).front();
  }

  /// Returns a port that is equal on all ranks of a step, most likely differs from other steps, and
  /// is below the ports that Linux assigns itself (32768 and up).
  static int slurm_port(std::string_view job) {
    constexpr std::uint64_t kFirst = 16'384;
    constexpr std::uint64_t kCount = 16'384;
    std::uint64_t sum = 0;
    for (const char letter : job) sum = sum * 31 + static_cast<unsigned char>(letter);
    return static_cast<int>(kFirst + sum % kCount);
  }

  const Environment& environment_;
  std::chrono::milliseconds timeout_;
};

}  // namespace

Launch detect_launch(const Environment& environment, bool mpi_available,
                     std::chrono::milliseconds timeout) {
  const LaunchDetector detector(environment, timeout);
  const std::optional<Launch> open_mpi = detector.open_mpi();
  const std::optional<Launch> by_mpi = open_mpi ? open_mpi : detector.pmi();
  const bool usable = by_mpi && (mpi_available || by_mpi->kind == Launch::Kind::kSingle);
  if (usable) return *by_mpi;
  if (!open_mpi) {
    if (const std::optional<Launch> launch = detector.torchrun()) return *launch;
    if (const std::optional<Launch> launch = detector.slurm()) return *launch;
    if (const std::optional<Launch> launch = detector.pmi_and_place()) return *launch;
  }
  if (const std::optional<Launch> launch = detector.pmix()) return *launch;
  if (by_mpi && detector.is_pmi()) {
    fail_launch(
        "started by an mpiexec that speaks PMI (PMI_RANK is set), as those of MPICH and Intel MPI "
        "do. They tell the ranks no place to meet: set MASTER_ADDR to the host of rank 0 and "
        "MASTER_PORT to a free port there; or start the ranks with Open MPI's mpirun, torchrun or "
        "srun");
  }
  if (by_mpi) {
    fail_launch(
        fmt::format("started by {} but Kolo was built without MPI: configure with "
                    "-DKOLO_WITH_MPI=ON, or start the ranks with torchrun or srun",
                    open_mpi ? "mpirun (OMPI_COMM_WORLD_SIZE is set)"
                             : "an MPI launcher (PMI_* or PMIX_* is set)"));
  }
  return Launch{};
}

}  // namespace kolo
