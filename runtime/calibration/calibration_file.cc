#include "runtime/calibration/calibration_file.h"

#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "comm/base/log.h"
#include "runtime/api/version.h"
#include "topology/link_costs.h"

namespace kolo {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

json empty_document() { return {{"kolo", kVersion}, {"shapes", json::object()}}; }

/// What lies at `path`; empty if nothing does. Nothing is returned of what is no file or cannot be
/// read.
std::optional<std::string> text_of(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::string();
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  std::ifstream file(path);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file) return std::nullopt;
  return text;
}

/// Whether Kolo may have written it: a document that may be cut short, or nothing.
bool is_own(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isspace(c) != 0; });
  return text.empty() || text.starts_with(R"({"kolo":)");
}

/// What a file says, and what is wrong with it.
struct Loaded {
  json document = empty_document();
  bool is_own = true;        ///< May be replaced.
  std::string trouble = {};  ///< Empty: none.
  bool is_expected = false;  ///< Of another version.
};

Loaded load(const std::string& path) {
  const std::optional<std::string> text = text_of(path);
  if (!text || !is_own(*text)) {
    return {.is_own = false,
            .trouble = "is no calibration file; it is left alone, and nothing is remembered"};
  }
  if (text->empty()) return {};
  json document = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || !document.contains("shapes") || !document["shapes"].is_object()) {
    return {.trouble = "is damaged; measuring afresh"};
  }
  if (document["kolo"] != kVersion) {
    return {.trouble = "is of another version of Kolo; measuring afresh", .is_expected = true};
  }
  return {.document = std::move(document)};
}

void store(const std::string& path, const json& document) {
  const fs::path target(path);
  std::error_code error;
  if (target.has_parent_path()) fs::create_directories(target.parent_path(), error);
  const std::string written = fmt::format("{}.{}", path, ::getpid());
  std::ofstream file(written);
  file << document.dump(2) << '\n';
  file.close();
  if (file) fs::rename(written, target, error);
  if (!file || error) {
    fs::remove(written, error);
    log::warn(fmt::format("cannot write {}", path));
  }
}

/// The value of a shape if it reads as `parse` wants it.
template <typename T>
std::optional<T> value_of(const std::string& path, const std::string& shape,
                          const std::function<std::optional<T>(const json&)>& parse) {
  if (path.empty()) return std::nullopt;
  const Loaded loaded = load(path);
  if (!loaded.trouble.empty()) {
    (loaded.is_expected ? log::info : log::warn)(fmt::format("{} {}", path, loaded.trouble));
  }
  const json& document = loaded.document;
  const auto entry = document["shapes"].find(shape);
  if (entry == document["shapes"].end()) return std::nullopt;
  try {
    return parse(*entry);
  } catch (const json::exception&) {
  } catch (const std::invalid_argument&) {
  }
  log::warn(fmt::format("{} is damaged at '{}'; measuring afresh", path, shape));
  return std::nullopt;
}

void change(const std::string& path, const std::string& shape,
            const std::function<void(json&)>& edit) {
  if (path.empty()) return;
  Loaded loaded = load(path);
  if (!loaded.is_own) return;
  json& entry = loaded.document["shapes"][shape];
  if (!entry.is_object()) entry = json::object();
  edit(entry);
  store(path, loaded.document);
}

}  // namespace

CalibrationFile::CalibrationFile(std::string path, std::string shape)
    : path_(std::move(path)), shape_(std::move(shape)) {}

std::optional<std::string> CalibrationFile::link_costs() const {
  return value_of<std::string>(path_, shape_, [](const json& entry) -> std::optional<std::string> {
    if (!entry.contains("link_costs")) return std::nullopt;
    if (!entry.at("link_costs").is_string()) throw std::invalid_argument("not a text");
    std::string text = entry.at("link_costs");
    parse_link_costs(text);
    return text;
  });
}

void CalibrationFile::remember_link_costs(const std::string& link_costs) {
  change(path_, shape_, [&](json& entry) { entry["link_costs"] = link_costs; });
}

std::string calibration_path(const std::string& option) {
  if (option != "auto") return option;
  const auto below = [](const char* variable, const fs::path& rest) -> std::string {
    const char* directory = std::getenv(variable);
    return directory != nullptr && *directory != '\0' ? (directory / rest).string() : std::string();
  };
  const std::string cache = below("XDG_CACHE_HOME", fs::path("kolo") / "calibration.json");
  if (!cache.empty()) return cache;
  return below("HOME", fs::path(".cache") / "kolo" / "calibration.json");
}

}  // namespace kolo
