#pragma once

#include <oneapi/dnnl/dnnl.hpp>

namespace kolo::trainer {

/// oneDNN's view of the processor: the one header that names its types. The layer that owns a
/// primitive makes it once per shape and keeps it.
///
/// Threads: one. Two devices in one process are independent.
class Device {
 public:
  Device() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  const dnnl::engine& engine() const { return engine_; }
  dnnl::stream& stream() { return stream_; }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
};

}  // namespace kolo::trainer
