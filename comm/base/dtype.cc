#include "comm/base/dtype.h"

namespace kolo {

static_assert(is_in_order<kDTypes>());

std::string_view to_string(DType dtype) { return name_of<kDTypes>(dtype); }
std::optional<DType> parse_dtype(std::string_view text) { return value_named<kDTypes>(text); }

}  // namespace kolo
