#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "trainer/catalog.h"
#include "trainer/config.h"
#include "trainer/loss/loss.h"
#include "trainer/mesh/mesh.h"
#include "trainer/models/model.h"

namespace kolo::trainer {

/// The networks of one rank, and its loss.
struct RankModels {
  /// Equal models that share their parameters, one for each of the stage's `open_passes`.
  std::vector<std::unique_ptr<Model>> models = {};
  std::unique_ptr<Loss> loss = nullptr;
  std::size_t activation_bytes = 0;  ///< Bytes of all tensors of layers and loss but parameters.
};

/// Makes the models of a rank that has the part `setting` of the model `entry`. Errors: those of
/// `entry.make`.
RankModels make_rank_models(const ModelEntry& entry, const ModelSetting& setting, const Task& task,
                            Device& device);

/// The memory and the work of one rank. A job of `kolo-train` reports equal numbers.
struct RankLoad {
  std::size_t parameters;        ///< Number of elements that the rank trains.
  std::size_t optimizer_bytes;   ///< Bytes of the optimizer's state.
  std::size_t activation_bytes;  ///< See `RankModels`.
  std::size_t inputs;            ///< Elements of the input of a later stage.
  double products = 0;           ///< Multiplications by weights per row of a forward pass.
  std::size_t sums = 0;          ///< Sums over tensor ranks in a forward, and in a backward pass.
  std::size_t width = 0;         ///< Elements per row in such a sum.
};

/// Makes the models that rank `rank` of a mesh would train, without values and hence without
/// memory, and returns their load. Before: the model can be split into `shape`.
RankLoad load_of_rank(const Config& config, const Task& task, const Catalog& catalog,
                      const MeshShape& shape, int rank);

}  // namespace kolo::trainer
