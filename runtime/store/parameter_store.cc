#include "runtime/store/parameter_store.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include "comm/base/check.h"
#include "comm/base/log.h"
#include "comm/kernels/reduce_kernels.h"
#include "runtime/api/check_equal.h"
#include "runtime/api/runtime_state.h"
#include "runtime/store/store_messages.h"
#include "runtime/store/store_server.h"

namespace kolo {
namespace {

using Kind = StoreRequest::Kind;

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

StoreOptions completed(const Group& group, StoreOptions options) {
  const bool is_sync = options.type == "dist_sync", is_async = options.type == "dist_async";
  check(is_sync || is_async || options.type == "local" || options.type == "device",
        fmt::format("the store type '{}' is not one of local, device, dist_sync and dist_async",
                    options.type));
  check(is_async || !options.staleness,
        fmt::format("a staleness bound is for dist_async, and the store is {}", options.type));
  check(is_sync || is_async || options.servers.empty(),
        fmt::format("servers are for dist_sync and dist_async, and the store is {}", options.type));
  std::vector<int>& servers = options.servers;
  std::ranges::sort(servers);
  check(servers.empty() || (servers.front() >= 0 && servers.back() < group.size() &&
                            std::ranges::adjacent_find(servers) == servers.end()),
        fmt::format("the servers of the store, [{}], are not distinct ranks of {}",
                    fmt::join(servers, ", "), group.size()));
  return options;
}

Group group_of(const Group& parent, const StoreOptions& options) {
  if (options.type == "local") return parent.group({parent.rank()}, options.group);
  if (options.type == "device") return parent.node_group(options.group);
  std::vector<int> all(static_cast<std::size_t>(parent.size()));
  std::iota(all.begin(), all.end(), 0);
  return parent.group(all, options.group);
}

/// Checks that the settings are equal on all ranks. An error quotes this rank's.
void agree(Group& group, const std::string& call, const std::string& settings) {
  const NamedTensor named{settings, {}};
  check_equal(group, call, {&named, 1});
}

std::string describe(const ConstBuffer& buffer) {
  return fmt::format("{} [{}]", to_string(buffer.dtype), buffer.count);
}

}  // namespace

/// A key as every rank knows it: its type, its shards and this rank's pushes.
struct ParameterStore::Key {
  std::string name;
  std::uint64_t id = 0;
  ConstBuffer like;  // its dtype and number of elements
  std::size_t row_width = 1;
  std::vector<std::size_t> counts = {};      // elements by rank
  std::size_t own_begin = 0, own_count = 0;  // this rank's elements
  std::uint64_t pushed = 0;                  // pushes of this rank
  std::uint64_t slowest = 0;                 // of the slowest worker, as far as known

  /// Calls `visit(rank, offset, count)` for each rank that has elements.
  template <typename Visit>
  void for_each_shard(const Visit& visit) const {
    std::size_t offset = 0;
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      if (counts[rank] > 0) visit(static_cast<int>(rank), offset, counts[rank]);
      offset += counts[rank];
    }
  }
  ConstBuffer part(const ConstBuffer& whole, std::size_t offset, std::size_t count) const {
    return {static_cast<const std::byte*>(whole.data) + offset * size_of(like.dtype), count,
            like.dtype};
  }
  BufferView part(const BufferView& whole, std::size_t offset, std::size_t count) const {
    return {static_cast<std::byte*>(whole.data) + offset * size_of(like.dtype), count, like.dtype};
  }
  void check_fits(const ConstBuffer& buffer, std::string_view call) const {
    check(buffer.memory == MemoryKind::kHost, [&] {
      return fmt::format("{} of '{}': values are in host memory; copy it there", call, name);
    });
    check(buffer.dtype == like.dtype && buffer.count == like.count && buffer.data != nullptr, [&] {
      return fmt::format("{} of '{}': {}, and the key is {}", call, name,
                         buffer.data == nullptr ? "a null buffer" : describe(buffer),
                         describe(like));
    });
  }
};

/// What one server is asked for.
struct ParameterStore::Part {
  int server = 0;
  BufferView out = {};                  // empty: only its version
  std::vector<std::int64_t> rows = {};  // within the server's shard; empty: all of it
};

ParameterStore::ParameterStore(Group& group, StoreOptions options)
    : options_(completed(group, std::move(options))),
      group_(group_of(group, options_)),
      is_async_(options_.type == "dist_async"),
      exceptions_(std::uncaught_exceptions()) {
  agree(group_, "store",
        fmt::format("{}, servers [{}], staleness {}, split_bytes {}", options_.type,
                    fmt::join(options_.servers, ", "), options_.staleness.value_or(kMost),
                    options_.split_bytes));
  server_ = std::make_unique<StoreServer>(group_, group_.state_, is_async_ || group_.size() > 1);
  outbox_ = std::make_unique<Outbox>(group_);
}

ParameterStore::~ParameterStore() {
  if (!group_.state_->is_of_this_process()) {
    server_.release();  // Its thread is not in this process, and cannot be joined.
    return;
  }
  if (std::uncaught_exceptions() > exceptions_) return;
  try {
    close();
  } catch (const KoloError& e) {
    // If the job has ended, it has said so.
    const ErrorCode code = e.error().code;
    if (code == ErrorCode::kShutdown || code == ErrorCode::kPeerLost) return;
    log::error(fmt::format("closing a parameter store: {}", e.what()));
  }
}

void ParameterStore::check_open(std::string_view call) const {
  check(!closing_, [&] { return fmt::format("{}: the store has been closed", call); });
}

ParameterStore::Key& ParameterStore::find(std::string_view key, std::string_view call) {
  check_open(call);
  const auto found = keys_.find(key);
  check(found != keys_.end(), [&] {
    return fmt::format("{} of '{}': the store has no such key; init creates it", call, key);
  });
  return *found->second;
}

void ParameterStore::init(std::string_view key, const ConstBuffer& value, std::size_t row_width) {
  check_open("init");
  check(!keys_.contains(key), fmt::format("init of '{}': the key exists already", key));
  check(std::ranges::find(kNumberDTypes, value.dtype) != std::end(kNumberDTypes),
        fmt::format("init of '{}': values are numbers, not {}", key, to_string(value.dtype)));
  check(value.count > 0 && row_width > 0 && value.count % row_width == 0,
        fmt::format("init of '{}': {} elements in rows of {}", key, value.count, row_width));
  auto added = std::make_unique<Key>(Key{.name = std::string(key),
                                         .id = XXH3_64bits(key.data(), key.size()),
                                         .like = {nullptr, value.count, value.dtype},
                                         .row_width = row_width});
  added->check_fits(value, "init");
  for (const auto& [name, other] : keys_) {
    check(other->id != added->id,
          fmt::format("init of '{}': its hash is that of '{}'; rename one of them", key, name));
  }
  std::vector<int> servers = options_.servers;
  if (servers.empty()) {
    servers.resize(static_cast<std::size_t>(group_.size()));
    std::iota(servers.begin(), servers.end(), 0);
  }
  added->counts =
      shard_counts(value.count / row_width, row_width, value.bytes() > options_.split_bytes,
                   added->id, servers, num_workers());
  added->own_count = added->counts[static_cast<std::size_t>(rank())];
  added->own_begin =
      std::accumulate(added->counts.begin(), added->counts.begin() + rank(), added->own_begin);
  const std::size_t own_bytes = added->own_count * size_of(value.dtype);
  StoreShard shard{.key = added->name,
                   .offset = added->own_begin,
                   .row_width = row_width,
                   .memory = {allocate_aligned(own_bytes), allocate_aligned(own_bytes)}};
  shard.value = {shard.memory[0].get(), added->own_count, value.dtype};
  shard.pushed = {shard.memory[1].get(), added->own_count, value.dtype};
  agree(group_, fmt::format("init {}", key),
        fmt::format("{} in rows of {}", describe(value), row_width));
  std::optional<Ticket> received;
  if (added->own_count > 0) received = group_.recv(shard.value, 0, kInitTag);
  if (rank() == 0) {
    added->for_each_shard([&](int server, std::size_t offset, std::size_t count) {
      outbox_->send(added->part(value, offset, count), server, kInitTag);
    });
  }
  if (received) received->wait();
  server_->add(added->id, std::move(shard));
  keys_.emplace(added->name, std::move(added));
  group_.barrier().wait();  // No rank pushes to a server that lacks the key.
}

ConstBuffer ParameterStore::merged(const Key& key, const OneOrMore<ConstBuffer>& values) {
  check(!values.empty(), [&] { return fmt::format("push of '{}': there is no value", key.name); });
  check(optimizer_.empty() || key.like.dtype == DType::kFloat32, [&] {
    return fmt::format(
        "push of '{}': built-in optimizers take float32, and the key is {}; "
        "set_updater takes a function of yours",
        key.name, to_string(key.like.dtype));
  });
  std::vector<const void*> sources;
  for (const ConstBuffer& value : values) {
    key.check_fits(value, "push");
    sources.push_back(value.data);
  }
  if (sources.size() == 1) return values.front();
  merged_.resize(values.front().bytes());
  reduce(key.like.dtype, ReduceOp::kSum, merged_.data(), sources, key.like.count, 1.0);
  return {merged_.data(), key.like.count, key.like.dtype};
}

void ParameterStore::push(std::string_view name, const OneOrMore<ConstBuffer>& values,
                          double rate) {
  Key& key = find(name, "push");
  const ConstBuffer sum = merged(key, values);
  is_async_ ? send_push(key, sum, rate) : push_to_all(key, sum, rate);
}

/// Sums over all ranks; each one applies its part of the sum.
void ParameterStore::push_to_all(Key& key, const ConstBuffer& sum, double rate) {
  const BufferView part = server_->pushed(key.id);
  group_.reduce_scatter("push " + key.name, {sum, part, key.counts}).wait();
  try {
    server_->apply_round(key.id, rate);
  } catch (const std::exception& e) {
    // The other ranks would wait for this update.
    if (num_workers() > 1) {
      group_.state_->abort(fmt::format("the updater failed for '{}': {}", key.name, e.what()));
    }
    throw;
  }
  ++key.pushed;
}

void ParameterStore::send_push(Key& key, const ConstBuffer& sum, double rate) {
  await_slowest(key);
  outbox_->make_room(sum.bytes(), options_.in_flight_bytes);
  StoreRequest request{.kind = Kind::kPush, .key = key.id, .number = ++key.pushed, .rate = rate};
  request.tag = next_tag_++;
  key.for_each_shard([&](int server, std::size_t offset, std::size_t count) {
    outbox_->send(bytes_of(request), server, kRequestTag);
    outbox_->send(key.part(sum, offset, count), server, payload_tag(request.tag));
  });
}

/// Waits until each worker has made `pushes`, and none too many less than this one.
void ParameterStore::await_slowest(Key& key, std::uint64_t pushes) {
  const std::uint64_t lead = std::min(options_.staleness.value_or(kMost), key.pushed);
  const std::uint64_t wanted = std::max(pushes, key.pushed - lead);
  if (key.slowest >= wanted) return;
  std::vector<Part> parts;
  key.for_each_shard([&](int server, std::size_t, std::size_t) { parts.push_back({server}); });
  key.slowest = ask(fmt::format("'{}', which waits for the slowest worker", key.name),
                    {.kind = Kind::kAwait, .key = key.id, .number = wanted}, parts)
                    .slowest;
}

StoreVersion ParameterStore::pull(std::string_view name, const BufferView& out,
                                  std::uint64_t pushes) {
  Key& key = find(name, "pull");
  key.check_fits(out, "pull");
  return pull(key, out, pushes);
}

StoreVersion ParameterStore::pull(Key& key, const BufferView& out, std::uint64_t pushes) {
  if (is_async_) await_slowest(key, pushes);
  std::vector<Part> parts;
  key.for_each_shard([&](int server, std::size_t offset, std::size_t count) {
    parts.push_back({server, key.part(out, offset, count)});
  });
  return ask_for(key, parts);
}

StoreVersion ParameterStore::ask_for(Key& key, const std::vector<Part>& parts) {
  const std::uint64_t wanted = is_async_ ? 0 : key.pushed;
  return ask(fmt::format("pull of '{}'", key.name),
             {.kind = Kind::kPull, .key = key.id, .number = wanted}, parts);
}

StoreVersion ParameterStore::push_pull(std::string_view name, const OneOrMore<ConstBuffer>& values,
                                       const BufferView& out) {
  Key& key = find(name, "push_pull");
  key.check_fits(out, "push_pull");
  push(name, values);
  if (is_async_) return pull(key, out);
  const BufferView own = key.part(out, key.own_begin, key.own_count);
  if (own.count > 0) server_->copy(key.id, {}, own.data);
  group_.all_gather("pull " + key.name, {out, key.counts}).wait();
  return {key.pushed, key.pushed};
}

StoreVersion ParameterStore::row_sparse_pull(std::string_view name, const BufferView& out,
                                             Span<const std::int64_t> rows) {
  Key& key = find(name, "row_sparse_pull");
  const std::size_t width = key.row_width, height = key.like.count / width;
  for (const std::int64_t row : rows) {
    check(row >= 0 && static_cast<std::size_t>(row) < height,
          [&] { return fmt::format("row_sparse_pull of '{}': row {} of {}", name, row, height); });
  }
  if (rows.empty()) return {};
  const std::size_t row_bytes = width * size_of(key.like.dtype);
  const Key wanted{.name = key.name, .like = {nullptr, rows.size() * width, key.like.dtype}};
  wanted.check_fits(out, "row_sparse_pull");
  if (is_async_) await_slowest(key);
  std::vector<Part> parts;
  std::vector<std::size_t> order;  // indices in `rows`, by server
  const AlignedMemory found = allocate_aligned(out.bytes());
  key.for_each_shard([&](int server, std::size_t offset, std::size_t count) {
    Part part{server};
    const std::size_t first = order.size();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::size_t begin = static_cast<std::size_t>(rows[i]) * width;
      if (begin < offset || begin >= offset + count) continue;
      part.rows.push_back(rows[i] - static_cast<std::int64_t>(offset / width));
      order.push_back(i);
    }
    if (order.size() == first) return;
    part.out = {found.get() + first * row_bytes, part.rows.size() * width, key.like.dtype};
    parts.push_back(std::move(part));
  });
  const StoreVersion version = ask_for(key, parts);
  for (std::size_t i = 0; i < order.size(); ++i) {
    std::memcpy(static_cast<std::byte*>(out.data) + order[i] * row_bytes,
                found.get() + i * row_bytes, row_bytes);
  }
  return version;
}

/// Asks the servers at once, and waits for all answers.
StoreVersion ParameterStore::ask(std::string_view subject, StoreRequest request,
                                 const std::vector<Part>& parts) {
  request.tag = next_tag_++;
  std::vector<StoreVersion> answers(parts.size(), StoreVersion{kMost, kMost});
  std::vector<Ticket> tickets;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto& [server, out, rows] = parts[i];
    if (!is_async_ && server == rank() && out.count > 0) {
      answers[i] = server_->copy(request.key, rows, out.data);
      continue;
    }
    request.rows = rows.size();
    tickets.push_back(group_.recv(bytes_of(answers[i]), server, answer_tag(request.tag)));
    if (out.count > 0) tickets.push_back(group_.recv(out, server, answer_tag(request.tag)));
    outbox_->send(bytes_of(request), server, kRequestTag);
    if (!rows.empty()) outbox_->send(rows, server, payload_tag(request.tag));
  }
  try {
    for (Ticket& ticket : tickets) ticket.wait();
  } catch (const KoloError& e) {
    Error error = e.error();
    if (error.code == ErrorCode::kTimeout) error.bucket = subject;
    throw KoloError(std::move(error));
  }
  StoreVersion oldest{kMost, kMost};
  for (const StoreVersion& each : answers) {
    oldest.updates = std::min(oldest.updates, each.updates);
    oldest.slowest = std::min(oldest.slowest, each.slowest);
  }
  return oldest;
}

void ParameterStore::set_optimizer(const StoreOptimizer& optimizer) {
  check_open("set_optimizer");
  auto states = optimizer.name == optimizer_ ? states_ : std::make_shared<OptimizerStates>();
  StoreUpdater updater = make_updater(optimizer, states);
  const auto& [name, lr, momentum, decay, beta1, beta2, epsilon, rescale] = optimizer;
  agree(group_, "set_optimizer",
        fmt::format("{} {} {} {} {} {} {} {}", name, lr, momentum, decay, beta1, beta2, epsilon,
                    rescale));
  set_updater(std::move(updater));
  optimizer_ = optimizer.name;
  states_ = std::move(states);
}

void ParameterStore::set_updater(StoreUpdater updater) {
  check_open("set_updater");
  check(static_cast<bool>(updater), "set_updater: the updater is empty");
  if (is_async_) barrier();  // The new updater must not meet earlier pushes.
  server_->set_updater(std::move(updater));
  optimizer_.clear();
  group_.barrier().wait();  // No rank pushes to a server that lacks it.
}

void ParameterStore::barrier() {
  check_open("barrier");
  if (is_async_) {
    std::vector<Part> parts;
    for (int server = 0; server < num_workers(); ++server) parts.push_back({server});
    ask("barrier", {.kind = Kind::kFence}, parts);
  }
  group_.barrier().wait();
}

void ParameterStore::close() {
  if (!server_) return;
  if (!closing_) {
    const StoreRequest bye{.kind = Kind::kBye};
    const int servers = is_async_ || num_workers() > 1 ? num_workers() : 0;
    for (int server = 0; server < servers; ++server) {
      outbox_->send(bytes_of(bye), server, kRequestTag);
    }
    closing_ = group_.barrier();
  }
  closing_->wait();
  outbox_->make_room(0, 0);
  server_->join();
  server_.reset();
}

}  // namespace kolo
