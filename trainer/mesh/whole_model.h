#pragma once

#include <cstddef>
#include <string>

#include "trainer/mesh/mesh.h"
#include "trainer/parameter_set.h"

namespace kolo::trainer {

/// Fills the parameters of this rank's part of a model from the parameters of the whole model with
/// the same names. Before: the whole model has all these names.
void take_parts(const ParameterSet& whole, ParameterSet& parts);

/// Gathers the parameters of a split model on rank 0, in the order in which the whole model
/// registers them.
///
/// Collective: all ranks make the same calls. Threads: one. `mesh` and `parts` outlive this object.
class WholeModel {
 public:
  WholeModel(Mesh& mesh, ParameterSet& parts);

  /// The number of elements of the whole model.
  std::size_t element_count() const { return elements_; }
  /// Returns the parameters of the whole model on rank 0, and the parts of this rank on other
  /// ranks. The result is valid until the next call.
  const ParameterSet& gather();

 private:
  /// Returns one line for each parameter of this rank, with its name, its part and its whole shape.
  std::string describe() const;
  /// Sends the description and the values of this rank's parameters to rank 0.
  void send_parts();
  /// Returns the result of `describe` on another rank, or on this one.
  std::string description_of(int rank);
  /// Copies the parts of rank `rank` into the whole model, and returns their number. `first` is the
  /// index of the first parameter of that rank's stage.
  std::size_t enter(int rank, std::size_t first);

  Mesh& mesh_;
  ParameterSet& parts_;
  std::size_t elements_ = 0;
  ParameterSet whole_{0};
};

}  // namespace kolo::trainer
