#pragma once

#include <cstddef>
#include <string>

#include "comm/collective/compile_options.h"
#include "comm/collective/cost_model.h"
#include "comm/schedule/bucket_layout.h"
#include "topology/process_grid.h"

namespace kolo {

/// A bucket in host memory as the cost model sees it.
HostBucket host_bucket(const BucketLayout& layout);

/// The algorithm that is asked for, or the cheapest one where the options leave a choice.
/// Errors: KoloError(kConfig) if it is not one for this kind of memory, or if it would round a
/// 16-bit bucket more than once per level, naming those that do not. Inside the library of a device
/// roundings are not ours to count.
Algorithm resolve_algorithm(const BucketLayout& layout, const ProcessGrid& grid,
                            const CompileOptions& options);

/// The `chunk_bytes` with which that algorithm is predicted to take least time for a host bucket;
/// of a device bucket those of `options`. Errors: as `resolve_algorithm`.
std::size_t cheapest_chunk_bytes(const BucketLayout& layout, const ProcessGrid& grid,
                                 const CompileOptions& options);

/// The size of the buckets that gradients of `bytes` in device memory should travel in, with what
/// is predicted to be best. Errors: as `resolve_algorithm`.
std::size_t cheapest_device_buckets(std::size_t bytes, const ProcessGrid& grid,
                                    const CompileOptions& options);

/// The predicted time of that algorithm for a device bucket, in microseconds. Errors: the same.
double predict_device_us(const BucketLayout& layout, const ProcessGrid& grid,
                         const CompileOptions& options);

/// Why `resolve_algorithm` says what it says for a device bucket, as a person reads it:
/// "native: 5.2 ms predicted; hierarchical:native,ring 8.1 ms".
std::string explain_device_algorithm(const BucketLayout& layout, const ProcessGrid& grid,
                                     const CompileOptions& options);

}  // namespace kolo
