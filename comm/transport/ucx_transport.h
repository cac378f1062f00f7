#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/transport/transport.h"

namespace kolo {

/// Messages between ranks through UCX, over the network transports it finds (`UCX_TLS=^sm` unless
/// the user sets UCX_TLS): within a node Kolo has shared memory of its own. A connection is made
/// when two ranks first have something to say, one for data and one for control frames, which
/// therefore never wait for data.
///
/// Before: every tag's `source` is the sending rank; UCX matches by tag alone. At most 65534 ranks.
/// Errors: construction throws KoloError(kIo) with UCX's reason. A peer whose process ends is
///         reported as lost when UCX notices: at once on a live host, never while a cut link or a
///         frozen host keeps the connection silent; bounding that takes heartbeats above this
///         layer.
class UcxTransport final : public MessageTransport {
 public:
  struct Config {
    int rank = 0;
    int world_size = 1;
    Duration shutdown_within = std::chrono::seconds(2);  ///< For telling peers goodbye.
  };

  explicit UcxTransport(const Config& config);
  ~UcxTransport() override;

  /// What the others need to know to reach this rank; opaque bytes.
  std::string address() const;

  /// Takes the addresses of all ranks, by rank, once, before any message.
  void connect(std::vector<std::string> addresses);

  int rank() const override;
  int world_size() const override;

  /// As the installed UCX says; it finds out for itself what memory a message lies in.
  bool takes_device_memory() const override;
  void expect_messages_in(std::span<std::byte> memory) override;

  void isend(int peer, const Tag& tag, std::span<const std::byte> data, Completion& done) override;
  void irecv(int peer, const Tag& tag, std::span<std::byte> data, Completion& done) override;
  void abandon(const Tag& first) override;
  void send_control(int peer, std::span<const std::byte> bytes) override;
  bool receive_control(ControlFrame& frame) override;

  bool poll() override;
  bool arm() override;
  void disarm() override {}
  std::vector<int> wake_fds() const override;

  std::optional<Error> failure() const override;
  void shutdown(bool orderly) override;
  TrafficCounters traffic(int peer) const override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kolo
