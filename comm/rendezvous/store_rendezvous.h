#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/base/error.h"
#include "comm/rendezvous/key_value_store.h"
#include "comm/rendezvous/rendezvous.h"

namespace kolo {

/// A rendezvous over a key-value store. Rank 0 collects the contributions of a round and stores all
/// of them under one key, which the others read.
///
///   PREFIX/ROUND/RANK   what this rank gives, or why it gave up
///   PREFIX/ROUND/all    what all gave, or the error that all ranks get
///
/// Threads: one. Errors: the first failure is thrown by every later call, too. Those of rank 0 are
///          thrown on all ranks: KoloError(kTimeout) with the ranks that did not come in time,
///          KoloError(kPeerLost) with one that failed during start-up, KoloError(kConfig) for
///          another version or world size. Every other rank has its own KoloError(kTimeout) if
///          rank 0 does not come.
/// Cost:    per round each rank sets one key and reads one; rank 0 reads all. The value under `all`
///          holds the contributions of all ranks. Keys stay in the store.
class StoreRendezvous final : public Rendezvous {
 public:
  struct Config {
    int rank = 0;
    int size = 1;
    std::chrono::milliseconds timeout{60'000};  ///< For each exchange.
    /// Begins all keys: equal on all ranks, and another one for each rendezvous over a store.
    std::string prefix = "kolo";
  };

  /// Errors: UsageError if rank or size are out of range.
  StoreRendezvous(std::unique_ptr<KeyValueStore> store, Config config);
  /// While an error unwinds, tells the others that this rank gives up.
  ~StoreRendezvous() override;

  int rank() const override { return config_.rank; }
  int size() const override { return config_.size; }
  std::vector<std::string> all_gather(const std::string& mine) override;

 private:
  using Contributions = std::vector<std::string>;

  /// The key of this round under which `rank` says what it gives; rank 0 says it for all.
  std::string key(int rank) const;
  Contributions collect(const std::string& mine);
  Contributions contribute(const std::string& mine);
  /// Empty if nothing is there in time. Throws the failure that is there instead.
  std::optional<Contributions> read(int rank, std::size_t count, std::chrono::milliseconds timeout);
  void publish(const Error& error) noexcept;

  std::unique_ptr<KeyValueStore> store_;
  const Config config_;
  const int exceptions_;
  std::size_t round_ = 0;
  std::optional<Error> failure_;
};

}  // namespace kolo
