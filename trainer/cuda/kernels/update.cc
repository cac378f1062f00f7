#include "trainer/cuda/kernels/update.h"

#include "trainer/cuda/kernels/reference-inl.h"

namespace kolo::trainer::cuda::reference {
namespace {

// Calls element(chunk, gradient, index in the arrays) for every element and writes its copy.
template <typename Element>
void for_each_element(const UpdateArrays& a, const Element& element) {
  for (std::size_t c = 0; c < a.chunk_count; ++c) {
    const UpdateChunk& chunk = a.chunks[c];
    for (std::size_t i = 0; i < chunk.count; ++i) {
      const std::size_t index = chunk.offset + i;
      element(chunk, chunk.gradient[i], index);
      if (a.copy == nullptr) continue;
      visit_element(a.copy_dtype, [&](auto zero) {
        using T = decltype(zero);
        as<T>(a.copy)[index] = round_to<T>(a.values[index]);
      });
    }
  }
}

}  // namespace

void decide_update(const UpdateArrays& a, const DecisionRule& rule, const std::uint32_t* non_finite,
                   UpdateDecision* decision) {
  double sum = 0.0;
  for (std::size_t c = 0; c < a.chunk_count; ++c) {
    for (std::size_t i = 0; i < a.chunks[c].count; ++i) {
      const auto g = static_cast<double>(a.chunks[c].gradient[i]);
      sum += g * g;
    }
  }
  *decision = decide(*decision, rule, sum, non_finite != nullptr && *non_finite != 0);
}

void update_adamw(const UpdateArrays& a, const AdamWRates& rates, const UpdateDecision* decision) {
  if (decision->is_skipped != 0) return;
  for_each_element(a, [&](const UpdateChunk& chunk, float gradient, std::size_t i) {
    adamw_element(rates, *decision, chunk.decays != 0 ? rates.weight_decay : 0.0f, gradient,
                  a.first[i], a.second[i], a.values[i]);
  });
}

void update_sgd(const UpdateArrays& a, const SgdRates& rates, const UpdateDecision* decision) {
  if (decision->is_skipped != 0) return;
  for_each_element(a, [&](const UpdateChunk& chunk, float gradient, std::size_t i) {
    sgd_element(rates, *decision, chunk.decays != 0 ? rates.weight_decay : 0.0f, gradient,
                a.first[i], a.values[i]);
  });
}

}  // namespace kolo::trainer::cuda::reference
