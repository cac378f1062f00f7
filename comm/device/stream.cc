#include "comm/device/stream.h"

#include "comm/base/check.h"

namespace kolo {

void check_copy(const BufferView& target, const BufferView& source) {
  check(target.memory != MemoryKind::kHost && source.memory != MemoryKind::kHost,
        "a stream copies between device and pinned memory, not from or to ordinary host memory");
  check(target.bytes() == source.bytes(), "a copy needs a target as large as its source");
}

}  // namespace kolo
