#include "trainer/mesh/mesh_visitor.h"

#include <span>

#include "trainer/mesh/whole_model.h"

namespace kolo::trainer {
MeshVisitor::MeshVisitor(StateVisitor& inner, Mesh& mesh, const ParameterSet& parameters)
    : inner_(inner), mesh_(mesh) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters_.emplace(parameters[i].name(), &parameters[i]);
  }
}

void MeshVisitor::bytes_of_ranks(std::string_view name,
                                 std::vector<std::vector<std::byte>>& bytes) {
  bytes.assign(1, {});
  if (!is_restoring()) inner_.bytes_of_ranks(name, bytes);
}

void MeshVisitor::visit(Reach reach, std::string_view name, const Piece& piece) {
  const auto found = parameters_.find(name.substr(name.rfind('/') + 1));
  if (reach != Reach::kShared || found == parameters_.end()) {
    return pass_on(inner_, reach, name, piece);
  }
  const Parameter& parameter = *found->second;
  const std::span<float> values(reinterpret_cast<float*>(piece.bytes.data()), parameter.size());
  if (!is_restoring()) return save(name, parameter, values);
  Tensor whole(parameter.whole_shape());
  inner_.shared(name, whole.shape(), whole.span());
  parameter.part().take(whole.shape(), whole.span(), values);
}

void MeshVisitor::save(std::string_view name, const Parameter& parameter,
                       std::span<const float> values) {
  const MeshShape& shape = mesh_.shape();
  const int rank = mesh_.world().rank();
  const std::size_t turn = saved_++;
  if (shape.data_index(rank) != turn % shape.data) return;
  const std::size_t saver = turn / shape.data % shape.tensor;
  Tensor whole = gather_parts(mesh_, parameter, values, saver);
  if (shape.tensor_index(rank) != saver) return;
  pass_on(inner_, Reach::kSavedHere, name,
          {"F32", whole.shape(), std::as_writable_bytes(whole.span())});
}

}  // namespace kolo::trainer
