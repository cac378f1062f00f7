#include "trainer/checkpoint/manifest.h"

#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainer/data/data_error.h"
#include "trainer/data/mapped_file.h"

namespace kolo::trainer {
namespace {

using ManifestJson = nlohmann::ordered_json;

std::string hexadecimal(std::uint64_t value) { return fmt::format("{:016x}", value); }

Manifest manifest_from(const ManifestJson& json) {
  Manifest manifest;
  json.at("step").get_to(manifest.step);
  json.at("model").get_to(manifest.job.model);
  for (const auto& [option, value] : json.at("settings").items()) {
    manifest.job.settings.push_back({option, value.get<std::string>()});
  }
  if (!json.at("eval_loss").is_null()) manifest.eval_loss = json.at("eval_loss").get<double>();
  for (const ManifestJson& file : json.at("files")) {
    manifest.files.push_back(
        {.name = file.at("name").get<std::string>(),
         .sum = {.bytes = file.at("bytes").get<std::uint64_t>(),
                 .xxh3 = std::stoull(file.at("xxh3").get<std::string>(), nullptr, 16)}});
  }
  return manifest;
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  ManifestJson settings = ManifestJson::object();
  for (const Setting& setting : manifest.job.settings) settings[setting.option] = setting.value;
  ManifestJson files = ManifestJson::array();
  for (const Manifest::File& file : manifest.files) {
    files.push_back(
        {{"name", file.name}, {"bytes", file.sum.bytes}, {"xxh3", hexadecimal(file.sum.xxh3)}});
  }
  const ManifestJson object = {
      {"format", Manifest::kFormat},
      {"step", manifest.step},
      {"ranks", manifest.files.size()},
      {"model", manifest.job.model},
      {"eval_loss", manifest.eval_loss ? ManifestJson(*manifest.eval_loss) : ManifestJson(nullptr)},
      {"settings", std::move(settings)},
      {"files", std::move(files)}};
  return object.dump(2) + "\n";
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / Manifest::kFileName;
  const MappedFile file(path);
  const std::span<const std::uint8_t> bytes = file.bytes();
  try {
    const ManifestJson json = ManifestJson::parse(bytes.begin(), bytes.end());
    const auto format = json.at("format").get<std::uint64_t>();
    if (format != Manifest::kFormat) {
      throw_data_error(path, fmt::format("format {}, and this program reads format {}", format,
                                         Manifest::kFormat));
    }
    Manifest manifest = manifest_from(json);
    if (manifest.files.empty()) throw_data_error(path, "it names no files");
    for (std::size_t rank = 0; rank < manifest.files.size(); ++rank) {
      const std::string expected = rank_file_name(static_cast<int>(rank));
      if (manifest.files[rank].name != expected) {
        throw_data_error(path, fmt::format("file {} is '{}', not '{}'", rank,
                                           manifest.files[rank].name, expected));
      }
    }
    return manifest;
  } catch (const ManifestJson::parse_error& error) {
    throw_data_error(path, error.byte > 0 ? error.byte - 1 : 0, error.what());
  } catch (const ManifestJson::exception& error) {
    throw_data_error(path, error.what());
  } catch (const std::logic_error& error) {  // of stoull
    throw_data_error(path, "a sum that is no number");
  }
}

std::string rank_file_name(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }

}  // namespace kolo::trainer
