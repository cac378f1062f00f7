#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/api/kolo.h"
#include "trainer/layers/layer.h"

namespace kolo::trainer {

struct Catalog;
struct Config;

/// The axes along which the ranks of a job share its work. The ranks of a tensor group exchange
/// most and have adjacent numbers; the stages of a pipeline exchange least and are farthest apart.
///
///     data=2,tensor=2,pipeline=2        stage 0         stage 1
///                            data 0     rank 0, 1       rank 4, 5
///                            data 1     rank 2, 3       rank 6, 7
struct MeshShape {
  std::size_t data = 1;      ///< Number of ranks with different samples and equal weights.
  std::size_t tensor = 1;    ///< Number of ranks that divide each block.
  std::size_t pipeline = 1;  ///< Number of stages, each a range of blocks.

  bool splits_model() const { return tensor * pipeline > 1; }
  std::size_t stage_ranks() const { return data * tensor; }
  std::size_t tensor_index(int rank) const { return static_cast<std::size_t>(rank) % tensor; }
  std::size_t data_index(int rank) const { return static_cast<std::size_t>(rank) / tensor % data; }
  Stage stage(int rank) const {
    return {.index = static_cast<std::size_t>(rank) / stage_ranks(), .count = pipeline};
  }
};

/// Parses "data=2,tensor=2,pipeline=2" or "auto" for `ranks` ranks. By default, tensor and pipeline
/// have 1 rank, and data has as many ranks as the other two axes leave.
/// Errors: KoloError(kConfig) for another form, or if the product of the axes is not `ranks`.
MeshShape parse_mesh(const std::string& text, std::size_t ranks);

/// Returns the mesh of a job from the text of --mesh. Errors: as `parse_mesh`.
inline MeshShape mesh_of(const std::string& mesh, const Runtime& runtime) {
  return parse_mesh(mesh, static_cast<std::size_t>(runtime.world_size()));
}

/// Returns the number of ranks of a job that have different samples. Errors: as `parse_mesh`.
inline int data_ranks(const std::string& mesh, const Runtime& runtime) {
  return static_cast<int>(mesh_of(mesh, runtime).data);
}

/// Checks that the model can be split into `shape`, unless `shape` leaves it whole on each rank.
/// Errors: KoloError(kConfig) naming the axis if it does not fit the model, or --mesh and an option
///         that excludes split models.
void require_splittable(const Config& config, const Options& options, const MeshShape& shape,
                        const Catalog& catalog);

/// The groups to which this rank belongs if the model is split among ranks.
///
/// Threads: one. The runtime outlives this object.
class Mesh {
 public:
  /// Makes the groups. Collective over all ranks of the job.
  Mesh(Runtime& runtime, const MeshShape& shape);
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  const MeshShape& shape() const { return shape_; }
  Stage stage() const { return shape_.stage(world_.rank()); }
  /// The group of all ranks of the job.
  Runtime& world() const { return world_; }
  /// The group of the ranks that have the same part of the model and different samples.
  Group& data() { return data_; }
  /// The group of the ranks that divide this stage's blocks; they have the same samples.
  Group& tensor() { return tensor_; }
  /// Returns the exchanges of the tensor group for layers, which this object outlives.
  TensorRanks tensor_ranks();
  /// Whether this rank is the one that counts the loss of its samples.
  bool counts_loss() const { return stage().is_last() && is_first_of_tensor(); }
  /// Whether this rank counts what all ranks of its tensor group have.
  bool is_first_of_tensor() const { return shape_.tensor_index(world_.rank()) == 0; }

  /// Returns the payload bytes that this rank has sent to other nodes in the data and tensor
  /// groups.
  std::uint64_t network_bytes_sent() const {
    return data_.network_bytes_sent() + tensor_.network_bytes_sent();
  }

  /// Calls `exchange`, which waits for messages, and counts its time as exposed communication.
  template <typename Exchange>
  void communicate(const Exchange& exchange) {
    const auto begin = std::chrono::steady_clock::now();
    exchange();
    exposed_ += std::chrono::steady_clock::now() - begin;
  }
  /// Returns the exposed communication since the last call.
  std::chrono::nanoseconds take_exposed() { return std::exchange(exposed_, {}); }

 private:
  Runtime& world_;
  const MeshShape shape_;
  Group data_;
  Group tensor_;
  std::chrono::nanoseconds exposed_{0};
};

}  // namespace kolo::trainer
