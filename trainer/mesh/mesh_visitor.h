#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/checkpoint/state_visitor.h"
#include "trainer/mesh/mesh.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// Passes the state of a split model to another visitor in the form that the whole model has, so
/// that a checkpoint can be resumed on any mesh. A piece with the name of a parameter becomes a
/// piece of its whole tensor. When saving, one rank gathers each tensor from its tensor group and
/// saves it; the ranks take turns. When restoring, each rank reads the whole tensor and takes its
/// part.
///
/// Collective when saving. Threads: one. All arguments outlive this object.
class MeshVisitor final : public StateVisitor {
 public:
  MeshVisitor(StateVisitor& inner, Mesh& mesh, const ParameterSet& parameters);

  bool is_restoring() const override { return inner_.is_restoring(); }
  bool has_other_ranks() const override { return inner_.has_other_ranks(); }
  using StateVisitor::shared;
  void shared(std::string_view name, std::vector<double>& list) override {
    inner_.shared(name, list);
  }
  void part_of_sum(std::string_view name, double& value) override {
    inner_.part_of_sum(name, value);
  }
  /// Leaves the bytes empty: gradients of split models are not compressed, and a float16 wire
  /// measures its scales again after a restart.
  void bytes_of_ranks(std::string_view name, std::vector<std::vector<std::byte>>& bytes) override;

 protected:
  void visit(Reach reach, std::string_view name, const Piece& piece) override;
  void visit_shard(std::string_view name, const Piece& piece, std::size_t begin) override {
    pass_on(inner_, name, piece, begin);
  }

 private:
  /// Gathers the whole tensor on the rank whose turn it is, and saves it there.
  void save(std::string_view name, const Parameter& parameter, std::span<const float> values);

  StateVisitor& inner_;
  Mesh& mesh_;
  std::map<std::string_view, const Parameter*> parameters_;
  std::size_t saved_ = 0;  // number of pieces of parameters saved so far
};

}  // namespace kolo::trainer
