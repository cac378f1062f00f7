#include "trainer/mesh/whole_model.h"

#include <algorithm>
#include <cstdint>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/check.h"

namespace kolo::trainer {
namespace {

enum Tag : std::uint64_t { kSize = 16, kDescription, kValues };

}  // namespace

void take_parts(const ParameterSet& whole, ParameterSet& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Parameter& own = parts[i];
    std::size_t at = 0;
    while (at < whole.size() && whole[at].name() != own.name()) ++at;
    check(at < whole.size(), "a part belongs to the whole model: " + own.name());
    own.part().take(own.whole_shape(), whole[at].value(), own.value());
  }
}

WholeModel::WholeModel(Mesh& mesh, ParameterSet& parts) : mesh_(mesh), parts_(parts) {
  std::int64_t count = 0;
  const bool is_first_replica = mesh.shape().data_index(mesh.world().rank()) == 0;
  for (std::size_t i = 0; is_first_replica && i < parts.size(); ++i) {
    const bool counts = mesh.is_first_of_tensor() || !parts[i].part().is_whole();
    if (counts) count += static_cast<std::int64_t>(parts[i].size());
  }
  mesh.world().all_reduce("elements of the model", {&count, 1, DType::kInt64}).wait();
  elements_ = static_cast<std::size_t>(count);
}

const ParameterSet& WholeModel::gather() {
  const MeshShape& shape = mesh_.shape();
  const int rank = mesh_.world().rank();
  if (shape.data_index(rank) != 0) return parts_;
  if (rank != 0) {
    send_parts();
    return parts_;
  }
  std::size_t first = 0;
  for (std::size_t stage = 0; stage < shape.pipeline; ++stage) {
    std::size_t count = 0;  // number of parameters of the stage, equal on all its ranks
    for (std::size_t i = 0; i < shape.tensor; ++i) {
      count = enter(static_cast<int>(stage * shape.stage_ranks() + i), first);
    }
    first += count;
  }
  return whole_;
}

std::string WholeModel::describe() const {
  std::string text;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i].part();
    text += fmt::format("{} {} {} {} {} {}\n", parts_[i].name(), part.index, part.ways, part.axis,
                        part.sections, fmt::join(parts_[i].whole_shape(), " "));
  }
  return text;
}

void WholeModel::send_parts() {
  Runtime& world = mesh_.world();
  std::string text = describe();
  std::uint64_t size = text.size();
  world.send({&size, 1, DType::kInt64}, 0, kSize).wait();
  world.send({text.data(), size, DType::kUInt8}, 0, kDescription).wait();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const std::span<float> values = parts_[i].value();
    world.send({values.data(), values.size(), DType::kFloat32}, 0, kValues).wait();
  }
}

std::string WholeModel::description_of(int rank) {
  Runtime& world = mesh_.world();
  if (rank == world.rank()) return describe();
  std::uint64_t size = 0;
  world.recv({&size, 1, DType::kInt64}, rank, kSize).wait();
  std::string text(size, '\0');
  world.recv({text.data(), size, DType::kUInt8}, rank, kDescription).wait();
  return text;
}

std::size_t WholeModel::enter(int rank, std::size_t first) {
  std::istringstream lines(description_of(rank));
  std::string line;
  std::size_t i = 0;
  for (; std::getline(lines, line); ++i) {
    std::istringstream words(line);
    std::string name;
    Part part;
    Shape shape;
    words >> name >> part.index >> part.ways >> part.axis >> part.sections;
    for (std::size_t extent = 0; words >> extent;) shape.push_back(extent);
    if (first + i == whole_.size()) whole_.add(name, shape, {});
    Tensor received(rank == 0 ? Shape{0} : part.shape_of(shape));
    if (rank != 0) {
      mesh_.world().recv({received.data(), received.size(), DType::kFloat32}, rank, kValues).wait();
    }
    const std::span<const float> values = rank == 0 ? parts_[i].value() : received.span();
    part.put(shape, values, whole_[first + i].value());
  }
  return i;
}

}  // namespace kolo::trainer
