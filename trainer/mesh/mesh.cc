#include "trainer/mesh/mesh.h"

#include <array>
#include <charconv>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "trainer/catalog.h"
#include "trainer/config.h"
#include "trainer/errors.h"

namespace kolo::trainer {
namespace {

/// Parses "AXIS=NUMBER" into the axis of `shape`. Returns false for another form.
bool read_axis(std::string_view text, MeshShape& shape) {
  const std::size_t name_end = std::min(text.find('='), text.size() - 1) + 1;
  const std::string_view name = text.substr(0, name_end);
  std::size_t* const ranks = name == "data="       ? &shape.data
                             : name == "tensor="   ? &shape.tensor
                             : name == "pipeline=" ? &shape.pipeline
                                                   : nullptr;
  if (ranks == nullptr) return false;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + name_end, end, *ranks);
  return error == std::errc() && stop == end && *ranks > 0;
}

/// Makes the group of all ranks with the same `color`, in the order of `key`. Collective.
Group split(Runtime& runtime, std::size_t color, std::size_t key, const char* name,
            std::size_t arena_bytes) {
  auto group = runtime.split(static_cast<int>(color), static_cast<int>(key),
                             {.name = name, .arena_bytes = arena_bytes});
  return std::move(group).value();
}

void require(bool condition, const std::string& what) {
  if (!condition) throw_config_error(what);
}

}  // namespace

MeshShape parse_mesh(const std::string& text, std::size_t ranks) {
  MeshShape shape{.data = 0};
  std::string_view rest = text == "auto" ? std::string_view() : std::string_view(text);
  while (!rest.empty()) {
    const std::string_view axis = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), axis.size() + 1));
    require(read_axis(axis, shape),
            fmt::format("--mesh {}: '{}' is not data=N, tensor=N or pipeline=N, with a number "
                        "above 0",
                        text, axis));
  }
  // Products of larger axes might overflow.
  const bool may_fit = std::max({shape.data, shape.tensor, shape.pipeline}) <= ranks;
  const std::size_t of_model = shape.tensor * shape.pipeline;
  if (shape.data == 0 && may_fit) shape.data = ranks / of_model;
  require(
      may_fit && shape.data * of_model == ranks,
      fmt::format("--mesh {}: data {} x tensor {} x pipeline {} is not the number of ranks, {}; "
                  "start {} ranks, or leave data out and choose divisors",
                  text, shape.data, shape.tensor, shape.pipeline, ranks,
                  std::max<std::size_t>(shape.data, 1) * of_model));
  return shape;
}

void require_splittable(const Config& config, const Options& options, const MeshShape& shape,
                        const Catalog& catalog) {
  if (!shape.splits_model()) return;
  const ModelEntry& entry = catalog.models.at(config.model);
  const std::string mesh = "--mesh " + config.mesh + ": ";
  require(entry.deal != nullptr,
          mesh + "--model " + config.model + " cannot be split; gpt and mlp can");
  const ModelDeal deal = entry.deal(config);
  require(
      deal.pieces % shape.tensor == 0,
      fmt::format("{}{} {} cannot be dealt out to {} tensor ranks: it must be a multiple of them",
                  mesh, deal.option, deal.pieces, shape.tensor));
  require(shape.pipeline <= deal.blocks,
          fmt::format("{}--model {} has {} blocks here, fewer than the {} stages", mesh,
                      config.model, deal.blocks, shape.pipeline));
  const auto refuse = [&](bool condition, const std::string& option) {
    require(!condition, mesh + option + " is for models that are whole on each rank");
  };
  refuse(config.shard != "none", "--shard " + config.shard);
  refuse(config.uneven == "join", "--uneven join");
  refuse(has_local_steps(config) || is_asynchronous(config), "--exchange " + config.exchange);
  refuse(config.balance == "auto", "--balance auto, which --batch auto sets too,");
  refuse(config.balance != "off", "--balance " + config.balance);
  refuse(!options.compression.empty() && options.compression != "none",
         "--compression " + options.compression);
  refuse(shape.tensor > 1 && (config.optimizer == "lars" || config.optimizer == "lamb"),
         "--optimizer " + config.optimizer + ", which takes norms of whole tensors,");
}

Mesh::Mesh(Runtime& runtime, const MeshShape& shape)
    : world_(runtime),
      shape_(shape),
      data_(split(runtime, stage().index * shape.tensor + shape.tensor_index(runtime.rank()),
                  shape.data_index(runtime.rank()), "data",
                  runtime.options().group_arena_bytes / 2)),
      tensor_(split(runtime, static_cast<std::size_t>(runtime.rank()) / shape.tensor,
                    shape.tensor_index(runtime.rank()), "tensor",
                    runtime.options().group_arena_bytes / 8)) {}

TensorRanks Mesh::tensor_ranks() {
  return {.index = shape_.tensor_index(world_.rank()),
          .ways = shape_.tensor,
          .sum = [this](std::string_view name, std::span<float> values) {
            communicate([&] { tensor_.all_reduce(name, values).wait(); });
          }};
}

}  // namespace kolo::trainer
