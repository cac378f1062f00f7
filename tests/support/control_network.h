#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "comm/base/check.h"
#include "comm/coordinator/frame.h"
#include "comm/transport/transport.h"
#include "topology/process_grid.h"

namespace kolo::test {

/// Carries control frames and counters of thousands of ranks in one thread. It implements only the
/// part of a transport that coordinators use, and counts the frames that each rank handles.
class ControlNetwork {
 public:
  /// The frames that one rank has sent and received.
  struct Load {
    std::uint64_t frames = 0;
    std::uint64_t bytes = 0;
    std::uint64_t notices = 0;  ///< Frames that announce the failure of the job.
  };

  explicit ControlNetwork(ProcessGrid grid)
      : grid_(std::move(grid)),
        mail_(static_cast<std::size_t>(grid_.world_size())),
        counters_(mail_.size()),
        loads_(mail_.size()),
        is_gone_(mail_.size()),
        heard_(mail_.size()) {}

  const ProcessGrid& grid() const { return grid_; }

  /// Returns the transport of one rank. The network must outlive it.
  std::unique_ptr<Transport> transport(int rank) { return std::make_unique<Station>(*this, rank); }

  /// Returns the ranks that have received frames since the last call, each once.
  std::vector<int> take_rung() {
    for (const int rank : rung_) at(heard_, rank) = 0;
    return std::exchange(rung_, {});
  }

  /// Makes a rank silent: frames to it are lost.
  void freeze(int rank) { at(is_gone_, rank) = 1; }
  bool is_frozen(int rank) const { return is_gone_[static_cast<std::size_t>(rank)] != 0; }

  const Load& load(int rank) const { return loads_[static_cast<std::size_t>(rank)]; }
  void forget_loads() { loads_.assign(loads_.size(), {}); }

 private:
  template <typename Value>
  static Value& at(std::vector<Value>& values, int rank) {
    return values[static_cast<std::size_t>(rank)];
  }

  class Station final : public Transport {
   public:
    Station(ControlNetwork& network, int rank) : network_(network), rank_(rank) {}

    int rank() const override { return rank_; }
    int world_size() const override { return network_.grid_.world_size(); }

    void send_control(int peer, std::span<const std::byte> bytes) override {
      count(bytes);
      if (at(network_.is_gone_, peer) != 0) return;
      at(network_.mail_, peer).push_back({rank_, {bytes.begin(), bytes.end()}});
      network_.ring(peer);
    }
    bool receive_control(ControlFrame& frame) override {
      auto& mail = at(network_.mail_, rank_);
      if (mail.empty()) return false;
      frame = std::move(mail.front());
      mail.pop_front();
      count(frame.bytes);
      return true;
    }

    std::uint64_t arrive(int owner, std::uint32_t counter) override {
      return ++at(network_.counters_, owner)[counter];
    }
    std::uint64_t counter(int owner, std::uint32_t counter) const override {
      return at(network_.counters_, owner)[counter];
    }
    void set_counter(std::uint32_t counter, std::uint64_t value) override {
      at(network_.counters_, rank_)[counter] = value;
    }
    void ring(int peer) override { network_.ring(peer); }
    void post_error(const Error&) override { refuse(); }
    void note_stuck(std::string_view) override { refuse(); }
    std::string stuck_in(int) const override { return {}; }
    bool is_mapped(int peer) const override { return network_.grid_.same_node(rank_, peer); }
    bool poll() override { return false; }
    std::optional<Error> failure() const override { return std::nullopt; }

    void isend(int, const Tag&, std::span<const std::byte>, Completion&) override { refuse(); }
    void irecv(int, const Tag&, std::span<std::byte>, Completion&) override { refuse(); }
    void abandon(const Tag&) override { refuse(); }
    std::span<std::byte> memory(int) override { return {}; }
    bool is_open_to_peers() override { return false; }
    bool is_in_huge_pages(std::span<const std::byte>) override { return true; }
    void read_memory(int, std::uint64_t, std::span<std::byte>) override {}
    void write_memory(int, std::uint64_t, std::span<const std::byte>) override {}
    void commit(std::size_t, std::size_t, const Pause&) override { refuse(); }
    void signal(int, std::uint32_t, std::uint64_t) override { refuse(); }
    std::uint64_t signalled(int, std::uint32_t) const override { return 0; }
    bool arm() override { return true; }
    void disarm() override {}
    bool arm_idle() override { return true; }
    void unarm() override {}
    bool sleep(Duration) override {
      refuse();
      return false;
    }
    std::vector<int> wake_fds() const override { return {}; }
    void say_goodbye() override {}
    void shutdown(bool) override {}
    TrafficCounters traffic(int) const override { return {}; }

   private:
    static void refuse() { ensure(false, "a network of control frames carries no data"); }
    void count(std::span<const std::byte> frame) {
      Load& load = at(network_.loads_, rank_);
      ++load.frames;
      load.bytes += frame.size();
      if (frame[0] == static_cast<std::byte>(FrameKind::kFail)) ++load.notices;
    }

    ControlNetwork& network_;
    const int rank_;
  };

  void ring(int rank) {
    if (std::exchange(at(heard_, rank), 1) != 0) return;
    rung_.push_back(rank);
  }

  const ProcessGrid grid_;
  std::vector<std::deque<ControlFrame>> mail_;
  std::vector<std::map<std::uint32_t, std::uint64_t>> counters_;
  std::vector<Load> loads_;
  std::vector<char> is_gone_, heard_;
  std::vector<int> rung_;
};

}  // namespace kolo::test
