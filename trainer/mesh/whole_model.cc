#include "trainer/mesh/whole_model.h"

#include <algorithm>
#include <span>
#include <string>

namespace kolo::trainer {
namespace {

/// Puts together a tensor of shape `whole`, of which ranks of `group` have different parts, and
/// returns it on rank `root`. `values` is the part of this rank; it is empty if the rank has none,
/// or if another rank has the same part. Collective over `group`.
Tensor gather_parts(Group& group, std::string_view name, const Shape& whole, const Part& part,
                    std::span<const float> values, std::size_t root) {
  Tensor sum(whole);
  if (!values.empty()) part.put(whole, values, sum.span());
  // All contributions to an element but one are 0. A sum of integers keeps the bits of that one.
  group.reduce(name, {sum.data(), sum.size(), DType::kInt32}, static_cast<int>(root)).wait();
  return sum;
}

}  // namespace

void gather_model(Mesh& mesh, const ParameterSet& parts, ParameterSet& whole) {
  const int rank = mesh.world().rank();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const Parameter* own = parts.find(whole[i].name());
    const bool others_have_it =
        mesh.shape().data_index(rank) > 0 ||
        (own != nullptr && own->part().is_whole() && !mesh.is_first_of_tensor());
    if (others_have_it) own = nullptr;
    const Tensor all = gather_parts(mesh.world(), "whole " + whole[i].name(), whole[i].shape(),
                                    own == nullptr ? Part() : own->part(),
                                    own == nullptr ? std::span<const float>() : own->value(), 0);
    if (rank == 0) std::ranges::copy(all.span(), whole[i].value().begin());
  }
}

void WholeVisitor::visit(Reach reach, std::string_view name, const Piece& piece) {
  const Parameter* const parameter = parameters_.find(name.substr(name.rfind('/') + 1));
  if (reach != Reach::kShared || parameter == nullptr) {
    return pass_on(inner_, reach, name, piece);
  }
  const std::span<float> values(reinterpret_cast<float*>(piece.bytes.data()), parameter->size());
  const Part& part = parameter->part();
  if (is_restoring()) {
    Tensor whole(parameter->whole_shape());
    inner_.shared(name, whole.shape(), whole.span());
    return part.take(whole.shape(), whole.span(), values);
  }
  const MeshShape& shape = mesh_.shape();
  const int rank = mesh_.world().rank();
  const std::size_t turn = saved_++;
  if (shape.data_index(rank) != turn % shape.data) return;
  const std::size_t saver = turn / shape.data % shape.tensor;
  const bool saves = shape.tensor_index(rank) == saver;
  if (part.is_whole()) {
    if (saves) pass_on(inner_, Reach::kSavedHere, name, piece);
    return;
  }
  Tensor whole = gather_parts(mesh_.tensor(), name, parameter->whole_shape(), part, values, saver);
  if (!saves) return;
  pass_on(inner_, Reach::kSavedHere, name,
          {"F32", whole.shape(), std::as_writable_bytes(whole.span())});
}

}  // namespace kolo::trainer
