#include "trainer/mesh/whole_model.h"

#include <algorithm>
#include <cstdint>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/base/check.h"

namespace kolo::trainer {
namespace {

enum Tag : std::uint64_t { kPart = 16, kSize, kDescription, kWhole };

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

Tensor gather_parts(Mesh& mesh, const Parameter& parameter, std::span<const float> values,
                    std::size_t root) {
  Part part = parameter.part();
  const bool is_root = mesh.shape().tensor_index(mesh.world().rank()) == root;
  if (!is_root && part.is_whole()) return {};
  Tensor own(parameter.shape());
  own.assign(values);
  if (part.is_whole()) return own;
  Group& group = mesh.tensor();
  if (!is_root) {
    group.send({own.data(), own.size(), DType::kFloat32}, static_cast<int>(root), kPart).wait();
    return {};
  }
  Tensor whole(parameter.whole_shape());
  part.put(whole.shape(), own.span(), whole.span());
  for (part.index = 0; part.index < part.ways; ++part.index) {
    if (part.index == root) continue;
    Tensor other(part.shape_of(whole.shape()));
    group.recv({other.data(), other.size(), DType::kFloat32}, static_cast<int>(part.index), kPart)
        .wait();
    part.put(whole.shape(), other.span(), whole.span());
  }
  return whole;
}

WholeModel::WholeModel(Mesh& mesh, const ParameterSet& parts) : mesh_(mesh), parts_(parts) {
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
  Runtime& world = mesh_.world();
  if (shape.data_index(world.rank()) != 0) return parts_;
  std::size_t first = 0;  // of the stage's tensors, in `whole_`
  for (std::size_t stage = 0; stage < shape.pipeline; ++stage) {
    const bool is_here = stage == mesh_.stage().index;
    if (!is_here && world.rank() != 0) continue;
    std::istringstream lines(describe(stage));
    std::string line;
    for (std::size_t i = 0; std::getline(lines, line); ++i) {
      std::istringstream words(line);
      std::string name;
      Shape dimensions;
      words >> name;
      for (std::size_t extent = 0; words >> extent;) dimensions.push_back(extent);
      Tensor whole =
          is_here ? gather_parts(mesh_, parts_[i], parts_[i].value(), 0) : Tensor(dimensions);
      if (stage > 0 && mesh_.is_first_of_tensor()) move_to_first(stage, whole);
      if (world.rank() != 0) continue;
      if (first == whole_.size()) whole_.add(name, dimensions, {});
      std::ranges::copy(whole.span(), whole_[first++].value().begin());
    }
  }
  return world.rank() == 0 ? whole_ : parts_;
}

std::string WholeModel::describe(std::size_t stage) {
  Runtime& world = mesh_.world();
  std::string text;
  const bool is_here = stage == mesh_.stage().index;
  for (std::size_t i = 0; is_here && i < parts_.size(); ++i) {
    text += fmt::format("{} {}\n", parts_[i].name(), fmt::join(parts_[i].whole_shape(), " "));
  }
  if (stage == 0 || !mesh_.is_first_of_tensor()) return text;
  std::uint64_t size = text.size();
  if (is_here) {
    world.send({&size, 1, DType::kInt64}, 0, kSize).wait();
    world.send({text.data(), size, DType::kUInt8}, 0, kDescription).wait();
    return text;
  }
  const auto rank = static_cast<int>(stage * mesh_.shape().stage_ranks());
  world.recv({&size, 1, DType::kInt64}, rank, kSize).wait();
  text.resize(size);
  world.recv({text.data(), size, DType::kUInt8}, rank, kDescription).wait();
  return text;
}

void WholeModel::move_to_first(std::size_t stage, Tensor& whole) {
  Runtime& world = mesh_.world();
  const BufferView all{whole.data(), whole.size(), DType::kFloat32};
  if (world.rank() != 0) return world.send(all, 0, kWhole).wait();
  world.recv(all, static_cast<int>(stage * mesh_.shape().stage_ranks()), kWhole).wait();
}

}  // namespace kolo::trainer
