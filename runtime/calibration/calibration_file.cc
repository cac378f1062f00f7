#include "runtime/calibration/calibration_file.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "comm/algorithms/registry.h"
#include "comm/base/error.h"
#include "comm/base/log.h"
#include "comm/base/unique_handle.h"
#include "comm/schedule/collective_spec.h"
#include "runtime/options/option_table.h"
#include "runtime/options/version.h"
#include "topology/link_costs.h"
#include "topology/link_fit.h"

namespace kolo {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TunedChoice, collective, in_place, bytes, algorithm, chunk_bytes,
                                   fusion_bytes)

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kTunedShapes = "tuned";

json empty_document() { return {{"kolo", kVersion}, {"shapes", json::object()}}; }

/// Returns the text of the file at `path`; an empty text if there is no file; nullopt if `path` is
/// not a regular file or cannot be read.
std::optional<std::string> text_of(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::string();
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  std::ifstream file(path);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file) return std::nullopt;
  return text;
}

/// Returns whether Kolo may have written this text: it is empty or begins like a calibration file.
bool is_own(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isspace(c) != 0; });
  return text.empty() || text.starts_with(R"({"kolo":)");
}

/// The contents of a file, and its defect, if any.
struct Loaded {
  json document = empty_document();
  bool is_own = true;        ///< Whether the file may be replaced.
  std::string trouble = {};  ///< Text for the log; empty without a defect.
  bool is_expected = false;  ///< Log `trouble` as information, not as a warning.
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

/// Returns a name in the same directory that no other host, process or thread uses.
std::string temporary_name(const std::string& path) {
  std::array<char, HOST_NAME_MAX + 1> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("{}.{}.{}.{}", path, host.data(), ::getpid(), ::syscall(SYS_gettid));
}

/// Writes `text` and syncs it to disk, so that a later rename cannot reach the disk first.
bool write_through(const std::string& path, std::string_view text) {
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) return false;
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return ::fsync(file.get()) == 0;
}

/// Writes `text` to the file `temporary` beside `path`, whose folder it makes.
bool write_beside(const std::string& path, const std::string& temporary, std::string_view text) {
  std::error_code error;
  if (const fs::path target(path); target.has_parent_path()) {
    fs::create_directories(target.parent_path(), error);
  }
  return write_through(temporary, text);
}

bool store(const std::string& path, const json& document) {
  std::error_code error;
  const std::string temporary = temporary_name(path);
  const bool is_written = write_beside(path, temporary, document.dump(2) + "\n");
  if (is_written) fs::rename(temporary, path, error);
  if (!is_written || error) {
    fs::remove(temporary, error);
    log::warn(fmt::format("cannot write {}", path));
  }
  return is_written && !error;
}

KoloError unwritable(const std::string& path) {
  return KoloError({.code = ErrorCode::kIo, .what = fmt::format("cannot write '{}'", path)});
}

std::int64_t seconds(CalibrationFile::Time time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

bool is_fresh(const json& entry, CalibrationFile::Time now,
              std::chrono::seconds expire = kCostsExpire) {
  if (!entry.is_object() || !entry.contains("measured_at")) return false;
  if (!entry["measured_at"].is_number_integer()) return false;
  const std::int64_t age = seconds(now) - entry["measured_at"].get<std::int64_t>();
  return age >= 0 && age < expire.count();
}

/// Whether the choice names an algorithm of another build of this version.
bool names_no_algorithm(const TunedChoice& choice) {
  const auto is_it = [&](const auto* each) { return each->name() == choice.algorithm; };
  return !choice.algorithm.empty() && std::ranges::none_of(all_algorithms(), is_it);
}

bool is_confirmed(const json& entry) { return entry.value("confirmed", false); }

/// Makes the entry for costs measured at `now`. The earlier entry `former` may be damaged.
json entry_after(const json& former, const std::string& link_costs, CalibrationFile::Time now) {
  json entry = {{"link_costs", link_costs}, {"measured_at", seconds(now)}, {"confirmed", false}};
  try {
    if (!is_fresh(former, now)) return entry;
    const LinkCosts before = parse_link_costs(former.at("link_costs").get<std::string>());
    const LinkCosts costs = parse_link_costs(link_costs);
    entry["link_costs"] = to_string(less_disturbed(costs, before));
    entry["confirmed"] = confirms(costs, before);
  } catch (const json::exception&) {
  } catch (const std::invalid_argument&) {
  }
  return entry;
}

/// Throws for numbers that would become other sizes, and for the mark of an open size.
void check_sizes(const json& tuned) {
  for (const char* size : {"bytes", "chunk_bytes", "fusion_bytes"}) {
    const json& value = tuned.at(size);
    if (value.is_number_unsigned() && value != kAutoBytes) continue;
    throw std::invalid_argument(fmt::format("{} is {}, which is no size", size, value.dump()));
  }
}

}  // namespace

std::string to_text(const Tuning& tuning) { return json(tuning).dump(); }

Tuning parse_tuning(const std::string& text) {
  if (text.empty()) return {};
  const json document = json::parse(text);
  auto tuning = document.get<Tuning>();
  for (const json& each : document) check_sizes(each);
  std::erase_if(tuning, names_no_algorithm);
  for (const TunedChoice& each : tuning) {
    if (!each.collective.empty()) parse_collective_kind(each.collective);
    validated({.fusion_bytes = each.fusion_bytes,
               .chunk_bytes = each.chunk_bytes > 0 ? each.chunk_bytes : kAutoBytes});
  }
  return tuning;
}

CalibrationFile::CalibrationFile(std::string path, std::string shape)
    : path_(std::move(path)), shape_(std::move(shape)) {}

std::optional<std::string> CalibrationFile::link_costs(Time now) const {
  if (path_.empty()) return std::nullopt;
  const Loaded loaded = load(path_);
  if (!loaded.trouble.empty()) {
    (loaded.is_expected ? log::info : log::warn)(fmt::format("{} {}", path_, loaded.trouble));
  }
  const json& shapes = loaded.document["shapes"];
  const auto entry = shapes.find(shape_);
  if (entry == shapes.end()) return std::nullopt;
  try {
    std::string text = entry->at("link_costs").get<std::string>();
    parse_link_costs(text);
    if (is_fresh(*entry, now)) {
      if (is_confirmed(*entry)) return text;
      log::info(fmt::format("{}: one job has measured these costs; measuring again", path_));
      return std::nullopt;
    }
    log::info(fmt::format("{}: costs are older than {} hours; measuring afresh", path_,
                          kCostsExpire.count()));
    return std::nullopt;
  } catch (const json::exception&) {
  } catch (const std::invalid_argument&) {
  }
  log::warn(fmt::format("{} is damaged at '{}'; measuring afresh", path_, shape_));
  return std::nullopt;
}

void CalibrationFile::remember_link_costs(const std::string& link_costs, Time now) {
  if (path_.empty()) return;
  Loaded loaded = load(path_);
  if (!loaded.is_own) return;
  json& shapes = loaded.document["shapes"];
  for (auto entry = shapes.begin(); entry != shapes.end();) {
    entry = is_fresh(*entry, now) ? std::next(entry) : shapes.erase(entry);
  }
  shapes[shape_] = entry_after(shapes[shape_], link_costs, now);
  store(path_, loaded.document);
}

std::string CalibrationFile::tuning(Time now) const {
  if (path_.empty()) return {};
  const json tuned = load(path_).document.value(kTunedShapes, json::object());
  const auto entry = tuned.find(shape_);
  if (entry == tuned.end()) {
    if (!tuned.empty()) log::info(fmt::format("{} is tuned for other jobs, not {}", path_, shape_));
    return {};
  }
  std::string why = fmt::format("not of the last {} days", kTuningExpires.count());
  try {
    std::string text = to_text(parse_tuning(entry->at("choices").dump()));
    if (is_fresh(*entry, now, kTuningExpires)) return text;
  } catch (const std::exception& e) {
    why = e.what();
  }
  log::warn(fmt::format("{}: ignoring what kolo-bench tune found for {}: {}", path_, shape_, why));
  return {};
}

void CalibrationFile::check_writable() const {
  if (path_.empty() || !load(path_).is_own) throw unwritable(path_);
  const std::string temporary = temporary_name(path_);
  const bool is_writable = write_beside(path_, temporary, "");
  std::error_code ignored;
  fs::remove(temporary, ignored);
  if (!is_writable) throw unwritable(path_);
}

void CalibrationFile::remember_tuning(const Tuning& tuning, Time now) {
  const Loaded loaded = load(path_);
  json document = loaded.document;
  json& tuned = document[kTunedShapes];
  if (!tuned.is_object()) tuned = json::object();
  tuned[shape_] = {{"choices", tuning}, {"measured_at", seconds(now)}};
  if (path_.empty() || !loaded.is_own || !store(path_, document)) throw unwritable(path_);
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
