#include "trainer/tokens/tokens.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "comm/base/check.h"
#include "trainer/data/files.h"
#include "trainer/errors.h"

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

template <typename T>
void widen_tokens(const std::byte* from, std::span<std::int32_t> into) {
  for (std::size_t i = 0; i < into.size(); ++i) {
    T token;
    std::memcpy(&token, from + i * sizeof token, sizeof token);
    into[i] = static_cast<std::int32_t>(token);
  }
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
  } catch (const std::logic_error& error) {  // thrown by stoull
    throw_data_error(path, "a sum that is no number");
  }
}

SampleFormat token_windows(std::size_t vocabulary, std::size_t context) {
  const auto field = [=](std::string name) {
    return Field{
        .name = std::move(name), .dtype = DType::kInt32, .shape = {context}, .values = vocabulary};
  };
  return {.inputs = {field("tokens")}, .targets = {field("next")}};
}

TokenDataset::TokenDataset(std::vector<TokenArray> arrays, std::size_t vocabulary,
                           std::size_t context)
    : arrays_(std::move(arrays)),
      first_windows_{0},
      vocabulary_(vocabulary),
      context_(context),
      format_(token_windows(vocabulary, context)) {
  check(context > 0, "a window holds at least one token");
  for (const TokenArray& array : arrays_) {
    const std::size_t windows = array.size() == 0 ? 0 : (array.size() - 1) / context;
    first_windows_.push_back(first_windows_.back() + windows);
  }
}

void TokenDataset::copy(std::size_t index, std::uint64_t, std::span<const TensorSlot> inputs,
                        std::span<const TensorSlot> targets) const {
  check(index < size(), "a sample of a data set of tokens is copied by its index");
  const auto after = std::upper_bound(first_windows_.begin(), first_windows_.end(), index);
  const auto array = static_cast<std::size_t>(after - first_windows_.begin()) - 1;
  const std::size_t begin = (index - first_windows_[array]) * context_;
  copy_tokens(arrays_[array], begin, inputs[0].as<std::int32_t>());
  copy_tokens(arrays_[array], begin + 1, targets[0].as<std::int32_t>());
}

void TokenDataset::copy_tokens(const TokenArray& array, std::size_t begin,
                               std::span<std::int32_t> into) const {
  const std::byte* from = array.bytes.data() + begin * array.width;
  if (array.width == 1) widen_tokens<std::uint8_t>(from, into);
  if (array.width == 2) widen_tokens<std::uint16_t>(from, into);
  if (array.width == 4) widen_tokens<std::uint32_t>(from, into);
  const auto outside = std::ranges::find_if(into, [this](std::int32_t token) {
    return static_cast<std::uint32_t>(token) >= vocabulary_;
  });
  if (outside == into.end()) return;
  const std::size_t at = begin + static_cast<std::size_t>(outside - into.begin());
  throw_data_error(array.file, array.offset + at * array.width,
                   fmt::format("token {} is not below {}, the size of the vocabulary",
                               static_cast<std::uint32_t>(*outside), vocabulary_));
}

}  // namespace kolo::trainer
