#include "trainer/compute/factor.h"

#include "comm/base/half.h"

namespace kolo::trainer {

Factor::Factor(Device& device, std::size_t elements) : device_(device) {
  if (device.precision() == DType::kFloat32) return;
  copy_ = allocate_aligned(elements * size_of(device.operand_dtype()));
  data_ = copy_.get();
}

void Factor::assign(std::span<const float> values) {
  switch (device_.precision()) {
    case DType::kBFloat16:
      device_.products().round(values, reinterpret_cast<std::uint16_t*>(copy_.get()));
      break;
    case DType::kFloat16: {
      auto* const rounded = reinterpret_cast<float*>(copy_.get());
      for (std::size_t i = 0; i < values.size(); ++i) rounded[i] = to_float(to_float16(values[i]));
      break;
    }
    default:
      data_ = reinterpret_cast<const std::byte*>(values.data());
  }
}

Operand Factor::operand(std::size_t offset, std::size_t rows, std::size_t columns,
                        std::size_t stride) const {
  const DType dtype = device_.operand_dtype();
  return {.data = data_ + offset * size_of(dtype),
          .rows = rows,
          .columns = columns,
          .stride = stride,
          .dtype = dtype};
}

}  // namespace kolo::trainer
