#include "benchmarks/agreement/agreement_trips.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/base/byte_codec.h"
#include "comm/base/clock.h"
#include "comm/coordinator/coordinator.h"
#include "runtime/engine/connect.h"

namespace kolo::bench {
namespace {

constexpr BucketId kBucket = 0, kPing = 1, kPong = 2;
/// The last rank is late by this much, in which all others become ready and wait.
constexpr Duration kLate = std::chrono::microseconds(200);
constexpr int kIdlePolls = 1'000;

struct Nobody final : Waited {
  int waiters() const override { return 0; }
};

class Trips {
 public:
  explicit Trips(Connection& connection)
      : transport_(*connection.transport),
        grid_(connection.grid),
        coordinator_(transport_, grid_, clock_, {.buckets = connection.limits.buckets}),
        last_(grid_.ranks_of_node(grid_.num_nodes() - 1).back()) {}

  int last() const { return last_; }
  bool is_last() const { return transport_.rank() == last_; }
  bool crosses_nodes() const { return grid_.num_nodes() > 1; }

  /// Microseconds of a message from the last rank to the first and back. The first returns 0.
  double round_trip(std::uint64_t round) {
    const bool is_first = transport_.rank() == 0;
    if (!is_first && !is_last()) return 0;
    const TimePoint began = clock_.now();
    if (is_last()) transfer(kPing, round, /*sends=*/true);
    if (is_first) transfer(kPing, round, /*sends=*/false);
    if (is_first) transfer(kPong, round, /*sends=*/true);
    if (is_last()) transfer(kPong, round, /*sends=*/false);
    return is_last() ? to_us(clock_.now() - began) : 0;
  }

  struct Times {
    TimePoint ready, started;
  };
  Times agree(std::uint64_t round) {
    if (is_last()) {
      const TimePoint end = clock_.now() + kLate;
      poll_until([&] { return clock_.now() >= end; });
    }
    Times times{.ready = clock_.now(), .started = {}};
    coordinator_.arrive(kBucket, round, {.text = text_, .waited = nobody_});
    poll_until([&] {
      coordinator_.poll();
      return coordinator_.failure() || !coordinator_.take_agreed().empty();
    });
    times.started = clock_.now();
    if (coordinator_.failure()) throw KoloError(*coordinator_.failure());
    return times;
  }

 private:
  template <typename Done>
  void poll_until(Done done) {
    for (int idle = 0;;) {
      idle = transport_.poll() ? 0 : idle + 1;
      if (done()) return;
      if (const auto failure = transport_.failure()) throw KoloError(*failure);
      if (idle >= kIdlePolls) std::this_thread::yield();
    }
  }

  void transfer(BucketId kind, std::uint64_t round, bool sends) {
    const int sender = kind == kPing ? last_ : 0;
    const Tag tag{.source = static_cast<std::uint32_t>(sender),
                  .bucket = kind,
                  .iteration = static_cast<std::uint32_t>(round)};
    Completion done;
    if (sends) {
      transport_.isend(kind == kPing ? 0 : last_, tag, message_, done);
    } else {
      transport_.irecv(sender, tag, message_, done);
    }
    poll_until([&] { return done.state == Completion::State::kDone; });
  }

  Transport& transport_;
  const ProcessGrid& grid_;
  const SteadyClock clock_;
  const Nobody nobody_;
  const std::string text_ = "a bucket";
  Coordinator coordinator_;
  const int last_;
  std::array<std::byte, 8> message_{};
};

/// The times of all ranks; a node's ranks share a clock, so on the last rank's node the slowest
/// counts.
AgreementTrips summarise_trips(Rendezvous& rendezvous, const Trips& trips, const ProcessGrid& grid,
                               const std::vector<Trips::Times>& times,
                               const std::vector<double>& round_trips_us) {
  std::vector<std::byte> bytes;
  ByteWriter writer(bytes);
  const auto write_time = [&](TimePoint time) {
    writer.number(static_cast<std::uint64_t>(time.time_since_epoch().count()));
  };
  for (const Trips::Times& each : times) {
    write_time(each.ready);
    write_time(each.started);
  }
  for (const double us : round_trips_us) writer.number(static_cast<std::uint64_t>(us * 1e3));
  const std::vector<std::string> all =
      rendezvous.all_gather({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  std::vector<std::uint64_t> ready(times.size()), started(times.size());
  std::vector<double> network_us;
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    if (!grid.same_node(rank, trips.last())) continue;
    ByteReader reader(std::as_bytes(std::span(all[static_cast<std::size_t>(rank)])));
    for (std::size_t i = 0; i < times.size(); ++i) {
      const auto ready_ns = reader.number<std::uint64_t>();
      if (rank == trips.last()) ready[i] = ready_ns;
      started[i] = std::max(started[i], reader.number<std::uint64_t>());
    }
    for (std::size_t i = 0; rank == trips.last() && i < round_trips_us.size(); ++i) {
      network_us.push_back(static_cast<double>(reader.number<std::uint64_t>()) / 1e3);
    }
  }
  std::vector<double> agree_us;
  for (std::size_t i = 0; i < times.size(); ++i) {
    agree_us.push_back(static_cast<double>(started[i] - ready[i]) / 1e3);
  }
  return {.agree_us = summarise(std::move(agree_us)),
          .network_us = network_us.empty() ? std::nullopt
                                           : std::make_optional(summarise(std::move(network_us)))};
}

}  // namespace

AgreementTrips measure_trips(Rendezvous& rendezvous, const Options& options,
                             std::size_t agreements) {
  Connection connection = connect(rendezvous, options);
  Trips trips(connection);
  std::vector<Trips::Times> times;
  std::vector<double> round_trips_us;
  // The first make connections.
  constexpr std::size_t kWarmUp = 10;
  for (std::size_t round = 0; round < kWarmUp + agreements; ++round) {
    const double network_us = trips.crosses_nodes() ? trips.round_trip(round) : 0;
    const Trips::Times agreed = trips.agree(round);
    if (round < kWarmUp) continue;
    times.push_back(agreed);
    if (trips.crosses_nodes()) round_trips_us.push_back(network_us);
  }
  AgreementTrips result =
      summarise_trips(rendezvous, trips, connection.grid, times, round_trips_us);
  connection.transport->shutdown(/*orderly=*/true);
  return result;
}

}  // namespace kolo::bench
