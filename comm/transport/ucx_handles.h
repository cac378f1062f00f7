#pragma once

// The only header that names UCX types; included by sources of kolo_ucx alone.

#include <ucp/api/ucp.h>

#include <string_view>

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

/// Throws KoloError(kIo) with `what` and UCX's reason unless `status` is UCS_OK.
void require_ucs(ucs_status_t status, std::string_view what);

/// UCX with tagged messages and wake-ups, over the network transports it finds. What the user's
/// UCX_* variables leave open is set so that ranks of a node do not meet through shared memory,
/// that an idle job sends nothing, and that messages over TCP need no handshake. Errors:
/// KoloError(kIo).
UcpContext make_ucp_context(int world_size);

/// Whether UCX has support for the memory of CUDA devices and found one.
bool takes_cuda_memory(ucp_context_h context);

/// The one worker of a transport, for one thread. Sets variables of this process's environment for
/// the moment. Errors: KoloError(kIo).
UcpWorker make_ucp_worker(ucp_context_h context);

}  // namespace kolo
