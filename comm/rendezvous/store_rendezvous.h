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
/// of them under one key, which the other ranks read.
///
///   PREFIX/ROUND/RANK   contribution of RANK, or its error
///   PREFIX/ROUND/all    contributions of all ranks, or the error for all ranks
///
/// Threads: one. Errors: every later call throws the first failure again. All ranks throw a failure
///          of rank 0: KoloError(kTimeout) with the ranks that did not contribute in time,
///          KoloError(kPeerLost) with a rank that failed during start-up, KoloError(kConfig) for
///          another version or world size. If rank 0 stores nothing, every other rank throws
///          KoloError(kTimeout).
/// Cost:    per round each rank sets one key and reads one; rank 0 reads all. The value under `all`
///          holds the contributions of all ranks. Keys stay in the store.
class StoreRendezvous final : public Rendezvous {
 public:
  struct Config {
    int rank = 0;
    int size = 1;
    std::chrono::milliseconds timeout{60'000};  ///< Limit for each exchange.
    /// Prefix of all keys, equal on all ranks. No other rendezvous over the same store uses it.
    std::string prefix = "kolo";
  };

  /// Errors: UsageError if rank or size are out of range.
  StoreRendezvous(std::unique_ptr<KeyValueStore> store, Config config);
  /// If an exception is being thrown, stores an error for the other ranks.
  ~StoreRendezvous() override;

  int rank() const override { return config_.rank; }
  int size() const override { return config_.size; }
  std::vector<std::string> all_gather(const std::string& mine) override;

 private:
  using Contributions = std::vector<std::string>;

  /// Returns this round's key for the contribution of `rank`. For rank 0 it is the key for all
  /// contributions.
  std::string key(int rank) const;
  Contributions collect(const std::string& mine);
  Contributions contribute(const std::string& mine);
  /// Returns the contributions under the key of `rank`; nothing if the key has no value in time.
  /// Throws a stored error.
  std::optional<Contributions> read(int rank, std::size_t count, std::chrono::milliseconds timeout);
  void publish(const Error& error) noexcept;

  std::unique_ptr<KeyValueStore> store_;
  const Config config_;
  const int exceptions_;
  std::size_t round_ = 0;
  std::optional<Error> failure_;
};

}  // namespace kolo
