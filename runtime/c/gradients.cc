#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <vector>

#include <kolo/kolo_c.h>
#include <nlohmann/json.hpp>

#include "runtime/c/arguments.h"
#include "runtime/c/handles.h"

using kolo::check;
using kolo::check_given;
using kolo::GradientOptions;
using kolo::GradientSpec;
using kolo::guarded_on;

static_assert(KOLO_ALL_RANKS == static_cast<int>(kolo::Divisor::kAllRanks));
static_assert(KOLO_CONTRIBUTING_RANKS == static_cast<int>(kolo::Divisor::kContributingRanks));
static_assert(KOLO_SAMPLES == static_cast<int>(kolo::Divisor::kSamples));

namespace {

GradientSpec spec_of(const kolo_gradient& gradient) {
  const kolo_gradient given =
      kolo::complete(&gradient, kolo_gradient KOLO_GRADIENT_INIT, "gradient");
  const std::string name(kolo::text_or_empty(given.name));
  check(
      given.num_dimensions > 0,
      fmt::format("gradient '{}' has no dimensions; set shape and num_dimensions (a scalar has one "
                  "dimension of one element)",
                  name));
  check_given(given.shape, "the shape of a gradient");
  return {.name = name,
          .shape = {given.shape, given.shape + given.num_dimensions},
          .dtype = kolo::dtype_of(given.dtype),
          .data = given.data,
          .memory = kolo::memory_of(given.memory),
          .compression = std::string(kolo::text_or_empty(given.compression)),
          .wire_dtype = kolo::wire_dtype_of(given.wire_dtype)};
}

/// Converts an array of gradients. The program's structs may be smaller than this version's, so
/// their `size` is the stride.
std::vector<GradientSpec> specs_of(const kolo_gradient* gradients, size_t num_gradients) {
  std::vector<GradientSpec> specs;
  if (num_gradients == 0) return specs;
  check_given(gradients, "gradients");
  const auto* const bytes = reinterpret_cast<const std::byte*>(gradients);
  for (size_t i = 0; i < num_gradients; ++i) {
    specs.push_back(spec_of(*reinterpret_cast<const kolo_gradient*>(bytes + i * gradients->size)));
  }
  return specs;
}

GradientOptions options_of(const kolo_gradient_options* options) {
  const kolo_gradient_options given =
      kolo::complete(options, kolo_gradient_options KOLO_GRADIENT_OPTIONS_INIT, "options");
  check(given.divisor >= KOLO_ALL_RANKS && given.divisor <= KOLO_SAMPLES,
        fmt::format("{} is not a divisor", given.divisor));
  return {.op = kolo::op_of(given.op),
          .wire_dtype = kolo::wire_dtype_of(given.wire_dtype),
          .compression = std::string(kolo::text_or_empty(given.compression)),
          .divisor = static_cast<kolo::Divisor>(given.divisor)};
}

/// Registers the gradients that `make_specs` returns.
template <typename MakeSpecs>
kolo_status register_set(kolo_group* group, const char* name, const kolo_gradient_options* options,
                         kolo_gradients** set, const MakeSpecs& make_specs) noexcept {
  return guarded_on(group, "group", [&] {
    check_given(set, "set");
    *set = nullptr;
    *set = new kolo_gradients{.set = group->group.register_gradients(
                                  kolo::text_or_empty(name), make_specs(), options_of(options)),
                              .plan = {},
                              .statistics = {},
                              .state = {}};
  });
}

/// Calls `function` on a set, which must not be null.
template <typename Function>
kolo_status on_set(kolo_gradients* set, const Function& function) noexcept {
  return guarded_on(set, "set", [&] { function(set->set); });
}

/// Waits for gradient `index`, or for all gradients if there is no index.
template <typename... Index>
kolo_status wait_on_set(kolo_gradients* set, int64_t timeout_ms, int* done,
                        Index... index) noexcept {
  return on_set(set, [&](kolo::GradientSet& of) {
    bool is_done = true;
    if (done != nullptr) *done = 0;
    if (timeout_ms < 0) {
      of.wait(index...);
    } else {
      is_done = of.wait_for(index..., std::chrono::milliseconds(timeout_ms));
    }
    if (done != nullptr) *done = is_done ? 1 : 0;
  });
}

nlohmann::json json_of(const kolo::PlanSummary& plan) {
  nlohmann::json decisions = nlohmann::json::array();
  for (const kolo::CompressionDecision& each : plan.compression_decisions) {
    decisions.push_back({{"tensors", each.tensors},
                         {"elements", each.elements},
                         {"path", each.path},
                         {"predicted_ms", each.predicted_ms},
                         {"dense_ms", each.dense_ms},
                         {"reason", each.reason}});
  }
  return {{"gradients", plan.gradients},
          {"buckets", plan.buckets},
          {"bytes", plan.bytes},
          {"wire_bytes", plan.wire_bytes},
          {"fusion_bytes", plan.fusion_bytes},
          {"algorithm", plan.algorithm},
          {"compression", plan.compression},
          {"reason", plan.reason},
          {"compression_decisions", decisions},
          {"hash", plan.hash}};
}

nlohmann::json json_of(const kolo::CompressionStats& stats) {
  return {{"tensors", stats.tensors},
          {"path", stats.path},
          {"elements", stats.elements},
          {"steps", stats.steps},
          {"skipped_steps", stats.skipped_steps},
          {"k", stats.k},
          {"kept_pairs", stats.kept_pairs},
          {"density", stats.density},
          {"payload_bytes", stats.payload_bytes},
          {"predicted_ms", stats.predicted_ms},
          {"measured_ms", stats.measured_ms},
          {"residual_norm", stats.residual_norm},
          {"gradient_norm", stats.gradient_norm}};
}

}  // namespace

kolo_status kolo_register_gradients(kolo_group* group, const char* name,
                                    const kolo_gradient* gradients, size_t num_gradients,
                                    const kolo_gradient_options* options, kolo_gradients** set) {
  return register_set(group, name, options, set,
                      [&] { return specs_of(gradients, num_gradients); });
}

kolo_status kolo_register_flat_gradients(kolo_group* group, const char* name, kolo_buffer buffer,
                                         const size_t* sizes, size_t num_gradients,
                                         const kolo_gradient_options* options,
                                         kolo_gradients** set) {
  return register_set(group, name, options, set, [&] {
    check_given(sizes, "sizes");
    return kolo::flat_gradients(kolo::buffer_of(buffer), {sizes, num_gradients});
  });
}

void kolo_gradients_release(kolo_gradients* set) { delete set; }

size_t kolo_gradients_size(const kolo_gradients* set) {
  return set == nullptr ? 0 : set->set.size();
}

kolo_status kolo_gradients_view(kolo_gradients* set, size_t index, kolo_buffer* view) {
  return on_set(set, [&](const kolo::GradientSet& of) {
    check_given(view, "view");
    *view = kolo::buffer_of(of.view(index));
  });
}

// --- An iteration -------------------------------------------------------------------------------

kolo_status kolo_gradients_ready(kolo_gradients* set, size_t index) {
  return on_set(set, [&](kolo::GradientSet& of) { of.ready(index); });
}

kolo_status kolo_gradients_ready_at(kolo_gradients* set, size_t index, const void* data) {
  return on_set(set, [&](kolo::GradientSet& of) { of.ready_at(index, data); });
}

kolo_status kolo_gradients_ready_on(kolo_gradients* set, size_t index, void* stream) {
  return on_set(set, [&](kolo::GradientSet& of) { of.ready(index, {stream}); });
}

kolo_status kolo_gradients_absent(kolo_gradients* set, size_t index) {
  return on_set(set, [&](kolo::GradientSet& of) { of.absent(index); });
}

kolo_status kolo_gradients_absent_on(kolo_gradients* set, size_t index, void* stream) {
  return on_set(set, [&](kolo::GradientSet& of) { of.absent(index, {stream}); });
}

kolo_status kolo_gradients_give_up(kolo_gradients* set) {
  return on_set(set, [](kolo::GradientSet& of) { of.give_up(); });
}

kolo_status kolo_gradients_give_up_on(kolo_gradients* set, void* stream) {
  return on_set(set, [&](kolo::GradientSet& of) { of.give_up({stream}); });
}

kolo_status kolo_gradients_set_samples(kolo_gradients* set, double samples) {
  return on_set(set, [&](kolo::GradientSet& of) { of.set_samples(samples); });
}

kolo_status kolo_gradients_wait(kolo_gradients* set, int64_t timeout_ms, int* done) {
  return wait_on_set(set, timeout_ms, done);
}

kolo_status kolo_gradients_wait_one(kolo_gradients* set, size_t index, int64_t timeout_ms,
                                    int* done) {
  return wait_on_set(set, timeout_ms, done, index);
}

kolo_status kolo_gradients_event(kolo_gradients* set, int* descriptor) {
  return on_set(set, [&](kolo::GradientSet& of) {
    check_given(descriptor, "descriptor");
    *descriptor = of.event();
  });
}

kolo_status kolo_gradients_take_combined(kolo_gradients* set, size_t* indices,
                                         size_t* num_indices) {
  return on_set(set, [&](kolo::GradientSet& of) {
    check_given(indices, "indices");
    check_given(num_indices, "num_indices");
    *num_indices = 0;
    const std::vector<size_t> taken = of.take_combined();
    std::ranges::copy(taken, indices);
    *num_indices = taken.size();
  });
}

kolo_status kolo_gradients_wait_on(kolo_gradients* set, void* stream) {
  return on_set(set, [&](kolo::GradientSet& of) { of.wait({stream}); });
}

// --- Plan and statistics -------------------------------------------------------------------------

const char* kolo_gradients_plan(kolo_gradients* set) {
  const kolo_status status =
      on_set(set, [&](const kolo::GradientSet& of) { set->plan = json_of(of.plan()).dump(); });
  return status == KOLO_OK ? set->plan.c_str() : nullptr;
}

const char* kolo_gradients_statistics(kolo_gradients* set) {
  const kolo_status status = on_set(set, [&](const kolo::GradientSet& of) {
    nlohmann::json groups = nlohmann::json::array();
    for (const kolo::CompressionStats& each : of.compression_stats()) {
      groups.push_back(json_of(each));
    }
    const nlohmann::json all = {{"too_large", of.too_large()}, {"compression", groups}};
    set->statistics = all.dump();
  });
  return status == KOLO_OK ? set->statistics.c_str() : nullptr;
}

kolo_status kolo_gradients_flags(kolo_gradients* set, size_t index, uint32_t* flags) {
  return on_set(set, [&](const kolo::GradientSet& of) {
    check_given(flags, "flags");
    check(index < of.size(), "no gradient has this index");
    *flags = 0;
    if (of.is_sparse(index)) *flags |= KOLO_SPARSE;
    if (of.corrects_momentum(index)) *flags |= KOLO_CORRECTS_MOMENTUM;
    if (of.is_warming_up(index)) *flags |= KOLO_WARMING_UP;
  });
}

// --- Compression --------------------------------------------------------------------------------

kolo_status kolo_gradients_flush(kolo_gradients* set) {
  return on_set(set, [](kolo::GradientSet& of) { of.flush_residuals(); });
}

kolo_status kolo_gradients_drop(kolo_gradients* set) {
  return on_set(set, [](kolo::GradientSet& of) { of.drop_residuals(); });
}

kolo_status kolo_gradients_save(kolo_gradients* set, const void** state, size_t* bytes) {
  return on_set(set, [&](const kolo::GradientSet& of) {
    check_given(state, "state");
    check_given(bytes, "bytes");
    set->state = of.save_compression();
    *state = set->state.data();
    *bytes = set->state.size();
  });
}

kolo_status kolo_gradients_load(kolo_gradients* set, const void* state, size_t bytes) {
  return on_set(set, [&](kolo::GradientSet& of) {
    check_given(state, "state");
    of.load_compression({static_cast<const std::byte*>(state), bytes});
  });
}

kolo_status kolo_gradients_remap(kolo_gradients* set, const void* const* states,
                                 const size_t* bytes, size_t num_states) {
  return on_set(set, [&](kolo::GradientSet& of) {
    check_given(states, "states");
    check_given(bytes, "bytes");
    std::vector<std::vector<std::byte>> all;
    for (size_t i = 0; i < num_states; ++i) {
      check_given(states[i], "a state");
      const auto* const first = static_cast<const std::byte*>(states[i]);
      all.emplace_back(first, first + bytes[i]);
    }
    of.remap_compression(all);
  });
}

kolo_status kolo_gradients_residual_norm(kolo_gradients* set, const char* gradient, double* norm) {
  return on_set(set, [&](const kolo::GradientSet& of) {
    check_given(norm, "norm");
    *norm = of.residual_norm(kolo::text_or_empty(gradient)).value_or(-1);
  });
}

// --- Weights ------------------------------------------------------------------------------------

kolo_status kolo_check_equal(kolo_group* group, const char* name, const kolo_buffer* tensors,
                             const char* const* names, size_t num_tensors) {
  return guarded_on(group, "group", [&] {
    std::vector<kolo::NamedTensor> named;
    for (size_t i = 0; i < num_tensors; ++i) {
      check_given(tensors, "tensors");
      check_given(names, "names");
      named.push_back({.name = std::string(kolo::text_or_empty(names[i])),
                       .memory = kolo::buffer_of(tensors[i])});
    }
    kolo::check_equal(group->group, kolo::text_or_empty(name), named);
  });
}
