#pragma once

// The header of UCX's handles; included only by sources of kolo_ucx.

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

/// The functions of UCX that Kolo calls, in a library that is loaded at run time. UCX's headers are
/// used only for types, constants and macros: inline functions in them would need symbols at link
/// time.
///
/// Threads: any. Errors: those of `SharedLibrary`, also if the library is older than the headers of
///          this build.
class UcxLibrary {
 public:
  /// `file`: a path or name of libucp; empty: the system's library.
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

/// The UCX of this process, loaded by the first call that succeeds. Errors: those of `UcxLibrary`;
/// KoloError(kConfig) if it was loaded from another file.
const UcxLibrary& load_ucx(const std::string& file);

/// Owns a handle, and closes it with a function of the loaded library.
template <typename Handle, typename Close>
using UcxHandle = std::unique_ptr<std::remove_pointer_t<Handle>, Close>;

using UcpConfig = UcxHandle<ucp_config_t*, decltype(&::ucp_config_release)>;
using UcpContext = UcxHandle<ucp_context_h, decltype(&::ucp_cleanup)>;
using UcpWorker = UcxHandle<ucp_worker_h, decltype(&::ucp_worker_destroy)>;

/// Throws KoloError(kIo) with `what` and UCX's reason unless `status` is UCS_OK.
void require_ucs(const UcxLibrary& ucx, ucs_status_t status, std::string_view what);

/// Creates a UCX context with tagged messages and wake-ups, over the network transports that UCX
/// finds. Unless the user sets them, UCX_* variables are set so that ranks of a node do not use
/// UCX's shared memory, an idle job sends nothing, messages over TCP need no handshake, and TCP
/// uses `interface` (unless it is empty) with the address family of `address`, which belongs to it.
/// Changes this process's environment temporarily. Errors: KoloError(kIo).
UcpContext make_ucp_context(const UcxLibrary& ucx, int world_size, const std::string& interface,
                            const std::string& address);

/// See `UcxTransport::uses_tcp`.
bool ucx_uses_tcp();

/// Whether UCX supports CUDA device memory and has found a CUDA device.
bool takes_cuda_memory(const UcxLibrary& ucx, ucp_context_h context);

/// The only worker of a transport, for one thread. Changes this process's environment temporarily.
/// Errors: KoloError(kIo).
UcpWorker make_ucp_worker(const UcxLibrary& ucx, ucp_context_h context);

/// Memory that messages use repeatedly, registered with the network once: network cards that access
/// memory directly pin it here and not at the first message. TCP pins nothing.
///
/// Before: no message uses memory that `clear` or the destructor deregisters. Threads: one.
class UcxMemory {
 public:
  UcxMemory(const UcxLibrary& ucx, ucp_context_h context) : ucx_(ucx), context_(context) {}
  ~UcxMemory() { clear(); }
  UcxMemory(const UcxMemory&) = delete;
  UcxMemory& operator=(const UcxMemory&) = delete;

  /// If UCX refuses, messages work without a handle: UCX then pins memory by itself as needed.
  void add(std::span<std::byte> memory) noexcept;

  /// The handle of the added memory with the last beginning before `range`, if it contains the
  /// range; otherwise null. Cost: logarithmic.
  ucp_mem_h find(std::span<const std::byte> range) const;

  void clear() noexcept;

 private:
  struct Region {
    const std::byte* end = nullptr;
    ucp_mem_h handle = nullptr;
  };

  const UcxLibrary& ucx_;
  ucp_context_h context_;
  std::multimap<const std::byte*, Region> regions_;  ///< By beginning; may overlap.
};

}  // namespace kolo
