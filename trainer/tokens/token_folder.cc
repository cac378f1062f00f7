#include "trainer/tokens/token_folder.h"

#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainer/data/data_error.h"
#include "trainer/data/packed_file.h"

namespace kolo::trainer {
namespace {

using FolderJson = nlohmann::ordered_json;

FolderJson shards_json(const std::vector<TokenFolder::Shard>& shards) {
  FolderJson json = FolderJson::array();
  for (const TokenFolder::Shard& shard : shards) {
    json.push_back({{"file", shard.file},
                    {"tokens", shard.tokens},
                    {"xxh3", fmt::format("{:016x}", shard.xxh3)}});
  }
  return json;
}

std::vector<TokenFolder::Shard> shards_from(const FolderJson& json,
                                            const std::filesystem::path& path) {
  std::vector<TokenFolder::Shard> shards;
  for (const FolderJson& shard : json) {
    const auto name = shard.at("file").get<std::string>();
    if (name.empty() || std::filesystem::path(name).filename() != name) {
      throw_data_error(path, fmt::format("'{}' is no file of this folder", name));
    }
    shards.push_back({.file = name,
                      .tokens = shard.at("tokens").get<std::uint64_t>(),
                      .xxh3 = std::stoull(shard.at("xxh3").get<std::string>(), nullptr, 16)});
  }
  return shards;
}

TokenFolder folder_from(const FolderJson& json, const std::filesystem::path& path) {
  const auto format = json.at("format").get<std::uint64_t>();
  if (format != TokenFolder::kFormat) {
    throw_data_error(path, fmt::format("format {}, and this program reads format {}", format,
                                       TokenFolder::kFormat));
  }
  TokenFolder folder;
  const auto dtype = json.at("dtype").get<std::string>();
  if (dtype != "uint16" && dtype != "uint32") {
    throw_data_error(path, fmt::format("dtype '{}' is not uint16 or uint32", dtype));
  }
  folder.width = dtype == "uint16" ? 2 : 4;
  json.at("vocabulary").get_to(folder.vocabulary);
  json.at("tokenizer").get_to(folder.tokenizer);
  folder.train = shards_from(json.at("train"), path);
  folder.held_out = shards_from(json.at("held_out"), path);
  return folder;
}

}  // namespace

std::string to_json(const TokenFolder& folder) {
  const FolderJson json = {
      {"format", TokenFolder::kFormat},     {"dtype", folder.width == 2 ? "uint16" : "uint32"},
      {"vocabulary", folder.vocabulary},    {"tokenizer", folder.tokenizer},
      {"train", shards_json(folder.train)}, {"held_out", shards_json(folder.held_out)}};
  return json.dump(2) + "\n";
}

TokenFolder read_token_folder(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / TokenFolder::kFileName;
  try {
    return folder_from(FolderJson::parse(read_text(path)), path);
  } catch (const FolderJson::parse_error& error) {
    throw_data_error(path, error.byte > 0 ? error.byte - 1 : 0, error.what());
  } catch (const FolderJson::exception& error) {
    throw_data_error(path, error.what());
  } catch (const std::logic_error& error) {  // of stoull
    throw_data_error(path, "a sum that is no number");
  }
}

}  // namespace kolo::trainer
