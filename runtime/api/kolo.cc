#include "runtime/api/kolo.h"

#include <utility>

#include "comm/base/open_files.h"
#include "comm/rendezvous/launch.h"
#include "runtime/api/runtime_state.h"
#include "runtime/options/option_table.h"

namespace kolo {
namespace {

std::unique_ptr<Rendezvous> meet(std::chrono::milliseconds timeout) {
  try {
    return rendezvous_from_environment(timeout);
  } catch (const KoloError& e) {
    Error error = e.error();
    if (error.code == ErrorCode::kConfig || !RuntimeState::has_any()) throw;
    error.what += "; this process has a runtime already: does every rank open a second one?";
    throw KoloError(std::move(error));
  }
}

}  // namespace

Runtime Runtime::from_environment(Options options) {
  options = options_from_environment(std::move(options));
  raise_open_file_limit();  // Rank 0 has a connection to every other rank at start.
  auto rendezvous = meet(options.connect_timeout);
  Runtime runtime(std::move(rendezvous), std::move(options));
  if (runtime.rank() == 0) warn_about_unknown_variables();
  return runtime;
}

Runtime::Runtime(std::unique_ptr<Rendezvous> rendezvous, Options options)
    : Runtime(std::unique_ptr<RuntimeState, End>(
          new RuntimeState(*rendezvous, validated(std::move(options))))) {}

void Runtime::End::operator()(RuntimeState* runtime) const {
  if (runtime->is_of_this_process()) delete runtime;
}

Runtime::Runtime(std::unique_ptr<RuntimeState, End> runtime)
    : Group(runtime->world()), runtime_(std::move(runtime)) {}

Runtime::Runtime(Runtime&&) noexcept = default;
Runtime& Runtime::operator=(Runtime&&) noexcept = default;
Runtime::~Runtime() = default;

int Runtime::world_size() const { return runtime_->grid().world_size(); }
int Runtime::local_rank() const { return runtime_->grid().local_rank(rank()); }
int Runtime::local_size() const { return runtime_->grid().local_size(rank()); }
int Runtime::node() const { return runtime_->grid().node(rank()); }
int Runtime::num_nodes() const { return runtime_->grid().num_nodes(); }
const Options& Runtime::options() const { return runtime_->options(); }
std::shared_ptr<std::byte[]> Runtime::allocate(std::size_t bytes) {
  return runtime_->allocate(bytes);
}
std::string Runtime::link_costs() const { return to_string(runtime_->costs()); }
const Tuning& Runtime::tuning() const { return runtime_->tuning(); }
std::string Runtime::network_address() const { return runtime_->network_address(); }
void Runtime::abort(std::string_view why) { runtime_->abort(why); }
void Runtime::leave_thread() const { runtime_->leave_thread(); }
Device* Runtime::device() const { return runtime_->device(); }

}  // namespace kolo
