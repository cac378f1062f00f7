#pragma once

// The header of UCX's handles; included by sources of kolo_ucx alone.

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include "comm/transport/ucx_library.h"

namespace kolo {

/// Owner of a handle, with the function of the loaded library that ends it.
template <typename Handle, typename Close>
using UcxHandle = std::unique_ptr<std::remove_pointer_t<Handle>, Close>;

using UcpConfig = UcxHandle<ucp_config_t*, decltype(&::ucp_config_release)>;
using UcpContext = UcxHandle<ucp_context_h, decltype(&::ucp_cleanup)>;
using UcpWorker = UcxHandle<ucp_worker_h, decltype(&::ucp_worker_destroy)>;

/// Throws KoloError(kIo) with `what` and UCX's reason unless `status` is UCS_OK.
void require_ucs(const UcxLibrary& ucx, ucs_status_t status, std::string_view what);

/// UCX with tagged messages and wake-ups, over the network transports it finds. What the user's
/// UCX_* variables leave open is set so that ranks of a node do not meet through shared memory,
/// that an idle job sends nothing, that messages over TCP need no handshake, and that these go
/// through `interface` unless it is empty, in the family of `address`, which is one of it. Sets
/// variables of this process's environment for the moment. Errors: KoloError(kIo).
UcpContext make_ucp_context(const UcxLibrary& ucx, int world_size, const std::string& interface,
                            const std::string& address);

/// See `UcxTransport::uses_tcp`.
bool ucx_uses_tcp();

/// Whether UCX has support for the memory of CUDA devices and found one.
bool takes_cuda_memory(const UcxLibrary& ucx, ucp_context_h context);

/// The one worker of a transport, for one thread. Sets variables of this process's environment for
/// the moment. Errors: KoloError(kIo).
UcpWorker make_ucp_worker(const UcxLibrary& ucx, ucp_context_h context);

}  // namespace kolo
