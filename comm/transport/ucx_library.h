#pragma once

// Handles of UCX. Only sources of kolo_ucx include this header.

#include <ucp/api/ucp.h>

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "comm/base/shared_library.h"

namespace kolo {

/// The UCX functions that Kolo calls, from a library loaded at run time. UCX's headers are used
/// only for types, constants and macros: their inline functions would need symbols at link time.
///
/// Threads: any. Errors: as SharedLibrary; also if the library is older than UCX's headers.
class UcxLibrary {
 public:
  /// `file` is a path or name of libucp; empty for the system's library.
  explicit UcxLibrary(const std::string& file);

 private:
  const SharedLibrary library_;

 public:
#define KOLO_UCX_FUNCTION(name) decltype(&::name) const name = library_.find(#name)
  KOLO_UCX_FUNCTION(ucp_cleanup);
  KOLO_UCX_FUNCTION(ucp_config_modify);
  KOLO_UCX_FUNCTION(ucp_config_read);
  KOLO_UCX_FUNCTION(ucp_config_release);
  KOLO_UCX_FUNCTION(ucp_context_query);
  KOLO_UCX_FUNCTION(ucp_ep_close_nbx);
  KOLO_UCX_FUNCTION(ucp_ep_create);
  KOLO_UCX_FUNCTION(ucp_ep_flush_nbx);
  KOLO_UCX_FUNCTION(ucp_get_version);
  KOLO_UCX_FUNCTION(ucp_init_version);
  KOLO_UCX_FUNCTION(ucp_mem_map);
  KOLO_UCX_FUNCTION(ucp_mem_unmap);
  KOLO_UCX_FUNCTION(ucp_request_cancel);
  KOLO_UCX_FUNCTION(ucp_request_check_status);
  KOLO_UCX_FUNCTION(ucp_request_free);
  KOLO_UCX_FUNCTION(ucp_tag_msg_recv_nbx);
  KOLO_UCX_FUNCTION(ucp_tag_probe_nb);
  KOLO_UCX_FUNCTION(ucp_tag_recv_nbx);
  KOLO_UCX_FUNCTION(ucp_tag_send_nbx);
  KOLO_UCX_FUNCTION(ucp_worker_arm);
  KOLO_UCX_FUNCTION(ucp_worker_create);
  KOLO_UCX_FUNCTION(ucp_worker_destroy);
  KOLO_UCX_FUNCTION(ucp_worker_get_address);
  KOLO_UCX_FUNCTION(ucp_worker_get_efd);
  KOLO_UCX_FUNCTION(ucp_worker_progress);
  KOLO_UCX_FUNCTION(ucp_worker_release_address);
  KOLO_UCX_FUNCTION(ucs_status_string);
#undef KOLO_UCX_FUNCTION
};

/// Returns the UCX library of this process, which the first successful call loads. Errors: as
/// `UcxLibrary`; KoloError(kConfig) if it was loaded from another file.
const UcxLibrary& load_ucx(const std::string& file);

/// Owns a handle and closes it with a function of the loaded library.
template <typename Handle, typename Close>
using UcxHandle = std::unique_ptr<std::remove_pointer_t<Handle>, Close>;

using UcpConfig = UcxHandle<ucp_config_t*, decltype(&::ucp_config_release)>;
using UcpContext = UcxHandle<ucp_context_h, decltype(&::ucp_cleanup)>;
using UcpWorker = UcxHandle<ucp_worker_h, decltype(&::ucp_worker_destroy)>;

/// Throws KoloError(kIo) with `what` and UCX's reason if `status` is not UCS_OK.
void require_ucs(const UcxLibrary& ucx, ucs_status_t status, std::string_view what);

/// Creates a UCX context with tagged messages and wake-ups, for the network transports that UCX
/// finds. Sets UCX_* variables that the user has not set, so that ranks of a node do not use UCX's
/// shared memory, an idle job sends nothing, messages over TCP need no handshake, and TCP uses
/// `interface` (if not empty) with the address family of `address`, an address of that interface.
/// Changes this process's environment temporarily. Errors: KoloError(kIo).
UcpContext make_ucp_context(const UcxLibrary& ucx, int world_size, const std::string& interface,
                            const std::string& address);

/// See `UcxTransport::uses_tcp`.
bool ucx_uses_tcp();

/// Whether UCX supports CUDA device memory and has found a CUDA device.
bool takes_cuda_memory(const UcxLibrary& ucx, ucp_context_h context);

/// Creates the worker of a transport, for one thread at a time. Changes this process's environment
/// temporarily. Errors: KoloError(kIo).
UcpWorker make_ucp_worker(const UcxLibrary& ucx, ucp_context_h context);

/// Memory that messages use repeatedly, registered with the network in advance: RDMA network cards
/// pin it at registration instead of at the first message. TCP pins nothing.
///
/// Before: when `clear` or the destructor deregisters memory, no message uses it. Threads: one.
class UcxMemory {
 public:
  UcxMemory(const UcxLibrary& ucx, ucp_context_h context) : ucx_(ucx), context_(context) {}
  ~UcxMemory() { clear(); }
  UcxMemory(const UcxMemory&) = delete;
  UcxMemory& operator=(const UcxMemory&) = delete;

  /// Registers `memory` of the host. If UCX refuses, messages still work: UCX then pins memory when
  /// needed.
  void add(std::span<std::byte> memory) noexcept;

  /// Returns the handle of the registered memory that begins last before `range`, if it contains
  /// `range`; otherwise null. Cost: logarithmic.
  ucp_mem_h find(std::span<const std::byte> range) const;

  void clear() noexcept;

 private:
  struct Region {
    const std::byte* end = nullptr;
    ucp_mem_h handle = nullptr;
  };

  const UcxLibrary& ucx_;
  ucp_context_h context_;
  std::multimap<const std::byte*, Region> regions_;  ///< By start address; regions may overlap.
};

}  // namespace kolo
