// Replaces the devices of libkolo by host memory and threads, for programs that load the library:
// the tests of Python and of torch. A device in this library has the streams of `HostDevice`, and
// collectives among processes.
//
// A program may pass any host memory as device memory. The null stream is the program's own thread:
// its work is done when it calls Kolo, and the thread blocks where another stream would wait.

#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "comm/native/device_factory.h"
#include "comm/native/group_factory.h"
#include "tests/support/device/host_device.h"
#include "tests/support/device/host_stream.h"
#include "tests/support/device/process_communicator.h"

namespace kolo {
namespace {

class StandInDevice final : public HostDevice {
 public:
  std::string describe() const override { return "a stand-in"; }

 private:
  void wait_in_thread(const Event& event) override {
    while (!event.done()) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
};

/// The memory that devices refuse, and the streams of the program. They live as long as the
/// process, like the communicators.
struct StandIns {
  test::ProcessCommunicators communicators;
  std::vector<std::pair<const void*, std::string>> foreign;
  StandInDevice device_of_streams;
  std::mutex mutex;  // guards `streams`
  std::vector<std::unique_ptr<Stream>> streams;
};

StandIns& stand_ins() {
  static StandIns all;
  return all;
}

}  // namespace

bool is_built_with_cuda() { return true; }
bool is_built_with_nccl() { return true; }
std::string cuda_availability() { return "stand-ins"; }

std::unique_ptr<Device> open_device(const std::string&, int) {
  auto device = std::make_unique<StandInDevice>();
  for (const auto& [data, text] : stand_ins().foreign) device->mark_foreign(data, text);
  return device;
}

/// Returns rooms for the communicators of all ranks and of a node.
std::string introduce_groups(int, const Device&, const std::string&) {
  test::ProcessCommunicators& all = stand_ins().communicators;
  return all.make_room() + " " + all.make_room();
}

DeviceCommunicators connect_groups(std::span<const std::string> introductions, int rank,
                                   const ProcessGrid& grid, Device& device,
                                   std::chrono::milliseconds) {
  test::ProcessCommunicators& all = stand_ins().communicators;
  const auto room = [&](int of, std::size_t number) {
    const std::string& rooms = introductions[static_cast<std::size_t>(of)];
    const std::size_t space = rooms.find(' ');
    return number == 0 ? rooms.substr(0, space) : rooms.substr(space + 1);
  };
  DeviceCommunicators result{.node = nullptr,
                             .world = all.enter(room(0, 0), rank, grid.world_size(), device),
                             .connector = all.connector(device)};
  if (grid.num_nodes() == 1) return result;
  const std::vector<int>& near = grid.ranks_of_node(grid.node(rank));
  result.node = all.enter(room(near.front(), 1), grid.local_rank(rank),
                          static_cast<int>(near.size()), device);
  return result;
}

}  // namespace kolo

// Programs call these functions beside those of kolo_c.h, which take the streams made here.
extern "C" {

__attribute__((visibility("default"))) void* kolo_stand_in_stream() {
  auto& all = kolo::stand_ins();
  const std::lock_guard lock(all.mutex);
  all.streams.push_back(all.device_of_streams.make_stream());
  return &kolo::as_host(*all.streams.back());
}

/// Enqueues a copy.
__attribute__((visibility("default"))) void kolo_stand_in_copy(void* stream, void* target,
                                                               const void* source,
                                                               std::size_t bytes) {
  static_cast<kolo::HostStream*>(stream)->enqueue([=] {
    std::memmove(target, source, bytes);
    return true;
  });
}

/// Enqueues work that ends when the integer at `gate` is not 0.
__attribute__((visibility("default"))) void kolo_stand_in_hold(void* stream, const int* gate) {
  static_cast<kolo::HostStream*>(stream)->enqueue(
      [gate] { return __atomic_load_n(gate, __ATOMIC_ACQUIRE) != 0; });
}

/// Waits until all work of the stream is done.
__attribute__((visibility("default"))) void kolo_stand_in_synchronize(void* stream) {
  auto& device = kolo::stand_ins().device_of_streams;
  const auto event = device.make_event();
  device.record({stream}, *event);
  while (!event->done()) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

/// Returns the number of collectives that the devices of this process have completed.
__attribute__((visibility("default"))) int kolo_stand_in_collectives() {
  return kolo::stand_ins().communicators.completed();
}

/// Makes devices that are opened from now on refuse `data`, as memory that `text` describes.
__attribute__((visibility("default"))) void kolo_stand_in_mark_foreign(const void* data,
                                                                       const char* text) {
  kolo::stand_ins().foreign.emplace_back(data, text);
}

}  // extern "C"
