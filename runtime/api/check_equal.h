#pragma once

#include <string>
#include <string_view>

#include "comm/base/buffer_view.h"
#include "comm/base/span.h"
#include "runtime/api/group.h"

namespace kolo {

/// A tensor and its name in errors.
struct NamedTensor {
  std::string name;
  ConstBuffer memory;  ///< In host memory.
};

/// Checks that `tensors`, such as the weights of a model, have the same names, dtypes and bytes on
/// all ranks, by comparing 64-bit hashes. `name` identifies the check on all ranks, as for a
/// collective. Collective.
///
/// Errors: KoloError(kMismatch), the same on every rank, naming the first tensors that differ and
///         the ranks that differ from rank 0; UsageError for device memory: copy it first.
/// Cost:   reads all tensors once; reduces two numbers per tensor over all ranks.
void check_equal(Group& group, std::string_view name, Span<const NamedTensor> tensors);

}  // namespace kolo
