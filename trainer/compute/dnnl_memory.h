#pragma once

#include <cstddef>
#include <initializer_list>

#include <oneapi/dnnl/dnnl.hpp>

#include "comm/base/dtype.h"

namespace kolo::trainer {

/// The type of an operand, which is float32 or bfloat16.
inline dnnl::memory::data_type type_of(DType operand) {
  return operand == DType::kBFloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

/// A layout for oneDNN. Dimensions are in oneDNN's order (N, C, H, W) whatever the tag says
/// about their order in memory.
inline dnnl::memory::desc layout_of(std::initializer_list<std::size_t> dims,
                                    dnnl::memory::format_tag tag,
                                    dnnl::memory::data_type type = dnnl::memory::data_type::f32) {
  dnnl::memory::dims signed_dims;
  for (const std::size_t dim : dims) signed_dims.push_back(static_cast<dnnl::memory::dim>(dim));
  return {signed_dims, type, tag};
}

/// A layout's memory whose address is given later, by `at`.
inline dnnl::memory unbound(const dnnl::memory::desc& layout, const dnnl::engine& engine) {
  return {layout, engine, nullptr};
}

/// Points `memory` at data that oneDNN only reads or may write, as its primitive decides.
inline dnnl::memory& at(dnnl::memory& memory, const void* data) {
  memory.set_data_handle(const_cast<void*>(data));
  return memory;
}

}  // namespace kolo::trainer
