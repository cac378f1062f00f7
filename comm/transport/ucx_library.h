#pragma once

#include <ucp/api/ucp.h>

#include <string>

#include "comm/base/shared_library.h"

namespace kolo {

/// The functions of UCX that Kolo calls, in a library that is loaded at run time. UCX's headers are
/// used for types, constants and macros only: inline functions there call others by name.
///
/// Threads: any. Errors: those of `SharedLibrary`, also if the library is older than the headers of
///          this build.
class UcxLibrary {
 public:
  /// `file`: a path or name of libucp; empty: that of the system.
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

}  // namespace kolo
