#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "comm/base/check.h"
#include "trainer/checkpoint/state_visitor.h"
#include "trainer/mesh/mesh.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// Copies the values of a split model to `whole` on rank 0 of the job. `whole` has the parameters
/// of the whole model, `parts` those of this rank. Collective over all ranks.
void gather_model(Mesh& mesh, const ParameterSet& parts, ParameterSet& whole);

/// Passes the state of a split model to another visitor in the form that the whole model has, so
/// that a checkpoint can be resumed on any mesh. A piece with the name of a parameter becomes a
/// piece of its whole tensor: one rank of the tensor group saves it, in turn, and all restore it.
///
/// Collective when saving. Threads: one. All arguments outlive this object.
class WholeVisitor final : public StateVisitor {
 public:
  WholeVisitor(StateVisitor& inner, Mesh& mesh, const ParameterSet& parameters)
      : inner_(inner), mesh_(mesh), parameters_(parameters) {}

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
  void bytes_of_ranks(std::string_view name, std::vector<std::vector<std::byte>>& bytes) override {
    bytes.assign(1, {});
    if (!is_restoring()) inner_.bytes_of_ranks(name, bytes);
  }

 protected:
  void visit(Reach reach, std::string_view name, const Piece& piece) override;
  void visit_shard(std::string_view, const Piece&, std::size_t) override {
    check(false, "a split model has no shards");
  }

 private:
  StateVisitor& inner_;
  Mesh& mesh_;
  const ParameterSet& parameters_;
  std::size_t saved_ = 0;  // number of pieces of parameters saved so far
};

}  // namespace kolo::trainer
