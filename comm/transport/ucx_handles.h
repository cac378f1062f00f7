#pragma once

// The only header that names UCX types; included by sources of kolo_ucx alone.

#include <ucp/api/ucp.h>

#include "comm/base/unique_handle.h"

namespace kolo {

struct UcpConfigTraits {
  using Value = ucp_config_t*;
  static Value invalid() noexcept { return nullptr; }
  static void close(Value config) noexcept { ucp_config_release(config); }
};
using UcpConfig = UniqueHandle<UcpConfigTraits>;

struct UcpContextTraits {
  using Value = ucp_context_h;
  static Value invalid() noexcept { return nullptr; }
  static void close(Value context) noexcept { ucp_cleanup(context); }
};
using UcpContext = UniqueHandle<UcpContextTraits>;

struct UcpWorkerTraits {
  using Value = ucp_worker_h;
  static Value invalid() noexcept { return nullptr; }
  static void close(Value worker) noexcept { ucp_worker_destroy(worker); }
};
using UcpWorker = UniqueHandle<UcpWorkerTraits>;

}  // namespace kolo
