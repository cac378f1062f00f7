#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

/// Kernels that are correct, and kernels with one mistake each. They use memory of the caller and
/// run on the emulated device of this thread.
namespace kolo::emulator::sample {

/// sums[block] = the sum of that block's `threads` numbers, through shared memory.
void sum_blocks(std::span<const std::uint32_t> numbers, unsigned threads, std::uint32_t* sums);
/// As `sum_blocks`, without the necessary barrier.
void sum_blocks_without_barrier(std::span<const std::uint32_t> numbers, unsigned threads,
                                std::uint32_t* sums);
/// order[n] = the block that ran n-th.
void record_order(unsigned blocks, std::uint32_t* counter, std::uint32_t* order);
/// places[z][y][x] = thread and block at this place, as one number, in a grid of two by three by
/// two blocks of two by two by three threads.
void record_places(std::uint32_t* places);
/// For each of two warps: the ballot of odd lanes, and the value of the opposite lane.
void exchange_lanes(unsigned* ballots, double* across);
/// Reads shared memory that was never written.
void read_unwritten(float* into);

void barrier_for_some();                         ///< Half of the threads have returned before.
void barriers_at_two_places();                   ///< Half of the threads wait at each place.
void ballot_without_all_lanes();                 ///< One lane does not take part.
void ballot_of_half_a_warp();                    ///< The mask names only half a warp.
void write_behind_shared_memory();               ///< One element beyond the end.
void load_vector(const float* from, float* to);  ///< Loads 16 bytes at once.
void launch_threads(unsigned threads, std::uint32_t* counter);  ///< Each thread adds one.

}  // namespace kolo::emulator::sample
