#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "trainer/mesh/mesh.h"
#include "trainer/parameter_set.h"
#include "trainer/tensor.h"

namespace kolo::trainer {

/// Fills the parameters of this rank's part of a model from the parameters of the whole model with
/// the same names. Before: the whole model has all these names.
void take_parts(const ParameterSet& whole, ParameterSet& parts);

/// Puts the parts of one tensor together: the `values` of all ranks of the tensor group, each
/// shaped like `parameter`. Only rank `root` of this group gets the whole tensor. Collective over
/// the tensor group.
Tensor gather_parts(Mesh& mesh, const Parameter& parameter, std::span<const float> values,
                    std::size_t root);

/// Gathers the parameters of a split model on rank 0, in the order in which the whole model
/// registers them.
///
/// Collective: all ranks make the same calls. Threads: one. `mesh` and `parts` outlive this object.
class WholeModel {
 public:
  WholeModel(Mesh& mesh, const ParameterSet& parts);

  /// The number of elements of the whole model.
  std::size_t element_count() const { return elements_; }
  /// Returns the parameters of the whole model on rank 0, and the parts of this rank on other
  /// ranks. The result is valid until the next call.
  const ParameterSet& gather();

 private:
  /// Returns the names and shapes of a stage's tensors, one line each, on rank 0 and on the ranks
  /// of the stage.
  std::string describe(std::size_t stage);
  /// Moves a whole tensor from the first rank of a stage to rank 0.
  void move_to_first(std::size_t stage, Tensor& whole);

  Mesh& mesh_;
  const ParameterSet& parts_;
  std::size_t elements_ = 0;
  ParameterSet whole_{0};
};

}  // namespace kolo::trainer
