#include "comm/transport/ucx_library.h"

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>

#include <fmt/format.h>

#include "comm/base/error.h"
#include "comm/base/log.h"
#include "comm/base/mutex.h"
#include "comm/base/open_files.h"

namespace kolo {
namespace {

constexpr const char* kSystemUcx = "libucp.so.0";

std::string or_system(const std::string& file) { return file.empty() ? kSystemUcx : file; }

SharedLibrary::Config ucx_config(const std::string& file) {
  return {.file = or_system(file),
          .purpose = "communication between nodes needs UCX",
          .remedy = fmt::format("install UCX {}.{} or later (package libucx0), or set "
                                "KOLO_UCX_LIBRARY to the path of its libucp.so",
                                UCP_API_MAJOR, UCP_API_MINOR)};
}

/// One process must load only one UCX, because two copies would patch the same memory functions. It
/// is never unloaded, because a runtime in a static variable may outlive other statics.
struct LoadedUcx {
  Mutex mutex;
  std::string file KOLO_GUARDED_BY(mutex);
  std::optional<UcxLibrary> library KOLO_GUARDED_BY(mutex);
};

}  // namespace

UcxLibrary::UcxLibrary(const std::string& file) : library_(ucx_config(file)) {
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  if (std::tuple(major, minor) >= std::tuple<unsigned, unsigned>(UCP_API_MAJOR, UCP_API_MINOR)) {
    return;
  }
  library_.refuse(
      fmt::format("that of this system is version {}.{}.{}, and Kolo was built with {}.{}", major,
                  minor, release, UCP_API_MAJOR, UCP_API_MINOR));
}

const UcxLibrary& load_ucx(const std::string& file) {
  static LoadedUcx& loaded = *new LoadedUcx;
  const MutexLock lock(loaded.mutex);
  if (!loaded.library) {
    loaded.library.emplace(file);
    loaded.file = or_system(file);
  }
  if (loaded.file != or_system(file)) {
    throw KoloError({.code = ErrorCode::kConfig,
                     .what = fmt::format("ucx_library='{}', but this process has loaded UCX from "
                                         "'{}' already",
                                         file, loaded.file)});
  }
  return *loaded.library;
}

namespace {

/// UCX opens about 20 descriptors and some for each peer, and aborts the process if none is left.
constexpr std::size_t kUcxDescriptors = 32;

void set_default(const UcxLibrary& ucx, ucp_config_t* config, const std::string& key,
                 const char* value) {
  if (std::getenv(("UCX_" + key).c_str()) != nullptr) return;
  require_ucs(ucx, ucx.ucp_config_modify(config, key.c_str(), value), "UCX: setting " + key);
}

/// Whether this machine has an RDMA device (InfiniBand, RoCE, EFA ...). If not, UCX uses TCP.
bool has_rdma_device() {
  std::error_code none;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", none);
  return !none && devices != std::filesystem::directory_iterator();
}

/// Sets an environment variable during this object's lifetime, unless the user has set it. It
/// serves for settings of single UCX transports, because their keys differ between versions and UCX
/// warns of unknown keys in its configuration.
class VariableDefault {
 public:
  VariableDefault(const char* name, const char* value)
      : name_(name), absent_(std::getenv(name) == nullptr) {
    if (absent_) ::setenv(name, value, 0);
  }
  ~VariableDefault() {
    if (absent_) ::unsetenv(name_);
  }
  VariableDefault(const VariableDefault&) = delete;
  VariableDefault& operator=(const VariableDefault&) = delete;

 private:
  const char* name_;
  bool absent_;
};

/// Guards the process's environment, so that contexts and workers are created one at a time.
Mutex& environment() {
  static Mutex mutex;
  return mutex;
}

}  // namespace

void require_ucs(const UcxLibrary& ucx, ucs_status_t status, std::string_view what) {
  if (status == UCS_OK) return;
  throw KoloError(
      {.code = ErrorCode::kIo, .what = std::string(what) + ": " + ucx.ucs_status_string(status)});
}

bool ucx_uses_tcp() {
  const char* chosen = std::getenv("UCX_TLS");
  const std::string_view transports = chosen == nullptr ? "all" : chosen;
  const bool names_tcp = transports.find("tcp") != std::string_view::npos;
  const bool excludes = transports.starts_with('^');
  return !has_rdma_device() && (transports == "all" || names_tcp != excludes);
}

UcpContext make_ucp_context(const UcxLibrary& ucx, int world_size, const std::string& interface,
                            const std::string& address) {
  require_open_files(kUcxDescriptors, "the network between nodes");
  ucp_config_t* read = nullptr;
  require_ucs(ucx, ucx.ucp_config_read(nullptr, nullptr, &read), "UCX: reading its settings");
  const UcpConfig config(read, ucx.ucp_config_release);
  set_default(ucx, config.get(), "TLS", "^sm");
  // An idle job must send nothing; the coordinator pings the peers that it waits for.
  set_default(ucx, config.get(), "KEEPALIVE_INTERVAL", "inf");
  // Over TCP a rendezvous protocol saves nothing, and its reply waits behind data in the same
  // direction: two ranks would then send alternately instead of simultaneously.
  if (!has_rdma_device()) set_default(ucx, config.get(), "RNDV_THRESH", "inf");
  if (!interface.empty()) set_default(ucx, config.get(), "NET_DEVICES", interface.c_str());
  ucp_params_t params{};
  params.field_mask =
      UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  params.estimated_num_eps = static_cast<std::size_t>(world_size);
  params.name = "kolo";
  const MutexLock lock(environment());
  // If an interface has addresses of both families, UCX prefers IPv4, which peers may not reach.
  std::optional<VariableDefault> family;
  if (address.find(':') != std::string::npos) family.emplace("UCX_TCP_AF_PRIO", "inet6,inet");
  ucp_context_h context = nullptr;
  require_ucs(ucx,
              ucx.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config.get(), &context),
              "UCX: finding network transports");
  return {context, ucx.ucp_cleanup};
}

bool takes_cuda_memory(const UcxLibrary& ucx, ucp_context_h context) {
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  require_ucs(ucx, ucx.ucp_context_query(context, &attributes), "UCX: memory types");
  return (attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
}

UcpWorker make_ucp_worker(const UcxLibrary& ucx, ucp_context_h context) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h worker = nullptr;
  const MutexLock lock(environment());
  // Connecting to a host that does not answer must not block this rank: other ranks wait for it.
  const VariableDefault no_blocking("UCX_TCP_CONN_NB", "y");
  const VariableDefault no_keepalive("UCX_TCP_KEEPIDLE", "inf");
  // One system call then fills the receiver's buffer. UCX's default of 64 KiB halves the rate.
  const VariableDefault long_segments("UCX_TCP_RX_SEG_SIZE", "256k");
  require_ucs(ucx, ucx.ucp_worker_create(context, &params, &worker),
              "UCX: opening network transports");
  return {worker, ucx.ucp_worker_destroy};
}

void UcxMemory::add(std::span<std::byte> memory) noexcept {
  if (memory.empty() || find(memory) != nullptr) return;
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  params.address = memory.data();
  params.length = memory.size();
  ucp_mem_h handle = nullptr;
  const ucs_status_t status = ucx_.ucp_mem_map(context_, &params, &handle);
  if (status != UCS_OK) {
    log::info(std::string("UCX does not map memory: ") + ucx_.ucs_status_string(status));
    return;
  }
  regions_.emplace(memory.data(), Region{.end = memory.data() + memory.size(), .handle = handle});
}

ucp_mem_h UcxMemory::find(std::span<const std::byte> range) const {
  const auto after = regions_.upper_bound(range.data());
  if (after == regions_.begin()) return nullptr;
  const Region& region = std::prev(after)->second;
  return range.data() + range.size() <= region.end ? region.handle : nullptr;
}

void UcxMemory::clear() noexcept {
  for (const auto& [begin, region] : regions_) ucx_.ucp_mem_unmap(context_, region.handle);
  regions_.clear();
}

}  // namespace kolo
