#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/mutex.h"
#include "runtime/api/kolo.h"
#include "runtime/store/parameter_store.h"

// The opaque types of kolo_c.h.

struct kolo_group {
  /// The group of all ranks, which belongs to the runtime.
  explicit kolo_group(kolo::Group& world) : group(world) {}
  explicit kolo_group(kolo::Group&& created) : owned(std::move(created)), group(*owned) {}

  std::optional<kolo::Group> owned;
  kolo::Group& group;
};

struct kolo_runtime {
  explicit kolo_runtime(kolo::Runtime&& opened) : runtime(std::move(opened)) {}

  kolo::Runtime runtime;
  kolo_group world{runtime};
  std::string setting;          // the last text returned
  std::string link_costs;       // the last text returned
  std::string network_address;  // the last text returned
  kolo::Mutex mutex;
  std::map<void*, std::shared_ptr<std::byte[]>> memory KOLO_GUARDED_BY(mutex);
};

struct kolo_ticket {
  kolo::Ticket ticket;
  std::size_t num_tables = 0;  // tables of a row-sparse all-reduce
};

struct kolo_gradients {
  kolo::GradientSet set;
  std::string plan;              // the last text returned
  std::string statistics;        // the last text returned
  std::vector<std::byte> state;  // the last state returned
};

struct kolo_parameters {
  kolo::ParameterStore store;
};

struct kolo_row_sums {
  kolo::RowSums sums;
};
