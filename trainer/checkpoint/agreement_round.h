#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/api/kolo.h"

namespace kolo::trainer {

/// An exchange of a few words between all ranks that takes place while training goes on: what is
/// given after one step is read after the next, so that nobody waits for it.
///
/// Collective: all ranks call `begin` and `take` equally often, in turn. Threads: one.
class AgreementRound {
 public:
  static constexpr std::size_t kWords = 4;
  using Words = std::vector<std::uint64_t>;  // kWords of each rank, by rank

  explicit AgreementRound(Runtime& runtime);
  ~AgreementRound();
  AgreementRound(const AgreementRound&) = delete;
  AgreementRound& operator=(const AgreementRound&) = delete;

  bool is_under_way() const { return ticket_.has_value(); }
  void begin(std::span<const std::uint64_t, kWords> mine);
  /// Before: is_under_way(). The words of all ranks, valid until the next `begin`.
  /// Errors: those of the runtime.
  std::span<const std::uint64_t> take();

 private:
  struct Memory {
    std::uint64_t mine[kWords];
    Words all;
  };
  Runtime& runtime_;
  std::unique_ptr<Memory> memory_;
  std::optional<Ticket> ticket_;
};

}  // namespace kolo::trainer
