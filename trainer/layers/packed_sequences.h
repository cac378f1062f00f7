#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kolo::trainer {

/// Where the real steps of sequences of unlike lengths stand when a batch holds nothing else: step
/// by step, so that a recurrent layer takes one step of all sequences at once, and the longest
/// sequence first, so that those which go on are always the first ones of the step before.
///
///     lengths 2, 4, 1     rows  | 1.0  0.0  2.0 | 1.1  0.1 | 1.2 | 1.3 |  …     as sequence.step
///                         step  |       0       |    1     |  2  |  3  | padding
///
/// The rows end with padding, which belongs to no sequence.
///
/// Threads: one.
class PackedSequences {
 public:
  /// Rows are a multiple of it, and at least it. So few numbers of rows occur, for each of which
  /// primitives are made.
  static constexpr std::size_t kRowBlock = 16;

  /// The rows of one step.
  struct Step {
    std::size_t begin;
    std::size_t rows;
  };
  /// The step of a sequence that a row stands for.
  struct Place {
    std::size_t sequence;
    std::size_t step;
  };

  /// For batches of `sequences` sequences of at most `length` steps.
  PackedSequences(std::size_t sequences, std::size_t length);

  /// Most rows of a batch.
  std::size_t capacity() const { return capacity_; }
  std::size_t sequences() const { return lengths_.size(); }

  /// Before: as many lengths as sequences, each in 0 … length.
  void assign(std::span<const std::int32_t> lengths);

  std::size_t rows() const;
  /// Of the rows that are no padding.
  std::span<const Place> places() const { return places_; }
  std::span<const Step> steps() const { return steps_; }
  std::size_t length_of(std::size_t sequence) const { return lengths_[sequence]; }

 private:
  std::size_t capacity_;
  std::vector<std::size_t> lengths_;
  std::vector<std::size_t> order_;  // sequences, the longest first
  std::vector<Place> places_;
  std::vector<Step> steps_;
};

}  // namespace kolo::trainer
