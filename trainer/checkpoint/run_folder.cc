#include "trainer/checkpoint/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>
#include <span>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "comm/base/error.h"
#include "comm/base/log.h"
#include "trainer/data/files.h"
#include "trainer/errors.h"

namespace kolo::trainer {
namespace {

constexpr const char* kNotSet = "not set";

std::string value_in(const JobIdentity& job, std::string_view option) {
  const auto found = std::ranges::find(job.settings, option, &Setting::option);
  return found == job.settings.end() ? kNotSet : found->value;
}

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

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kPartial = ".partial";
constexpr std::string_view kReplaced = ".old.partial";

template <typename Call>
void with_io_errors(const std::string& verb, const std::filesystem::path& path, Call&& call) {
  std::error_code error;
  call(error);
  if (error) throw_io_error(verb, path, error.message());
}

void remove_folder(const std::filesystem::path& folder) {
  with_io_errors("remove", folder,
                 [&](std::error_code& error) { std::filesystem::remove_all(folder, error); });
}

/// The paths of all entries of `folder`; empty if it does not exist.
std::vector<std::filesystem::path> list(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  if (error == std::errc::no_such_file_or_directory) return paths;
  while (!error && entries != std::filesystem::directory_iterator()) {
    paths.push_back(entries->path());
    entries.increment(error);
  }
  if (error) throw_io_error("read", folder, error.message());
  return paths;
}

}  // namespace

std::string describe_other_job(const JobIdentity& saved, const JobIdentity& current) {
  if (saved.model != current.model) {
    return fmt::format("--model is {}, and was {}", current.model, saved.model);
  }
  for (const JobIdentity* job : {&current, &saved}) {
    for (const Setting& setting : job->settings) {
      const std::string now = value_in(current, setting.option);
      const std::string then = value_in(saved, setting.option);
      if (setting.option == kTextSetting && then == kNotSet) continue;
      if (now != then) return fmt::format("{} is {}, and was {}", setting.option, now, then);
    }
  }
  return {};
}

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
  } catch (const std::logic_error& error) {  // thrown by stoull
    throw_data_error(path, "a sum that is no number");
  }
}

std::string rank_file_name(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }

RunFolder::RunFolder(std::filesystem::path path) : path_(std::move(path)) {}

std::filesystem::path RunFolder::checkpoint(std::uint64_t step) const {
  return path_ / fmt::format("{}{:08}", kPrefix, step);
}

std::filesystem::path RunFolder::partial(std::uint64_t step) const {
  return checkpoint(step) += kPartial;
}

std::vector<std::uint64_t> RunFolder::steps() const {
  std::vector<std::uint64_t> steps;
  for (const std::filesystem::path& path : list(path_)) {
    const auto step = step_of(path);
    if (step && checkpoint(*step).filename() == path.filename()) steps.push_back(*step);
  }
  std::ranges::sort(steps, std::ranges::greater());
  return steps;
}

void RunFolder::clear() const {
  for (const std::filesystem::path& path : list(path_)) {
    const std::string name = path.filename().string();
    if (!name.starts_with(kPrefix) || !name.ends_with(kPartial)) continue;
    const std::filesystem::path complete = path_ / name.substr(0, name.find('.'));
    if (name.ends_with(kReplaced) && !is_there(complete) && is_there(path / Manifest::kFileName)) {
      rename_durably(path, complete);
    } else {
      remove_folder(path);
    }
  }
}

void RunFolder::create_partial(std::uint64_t step) const {
  with_io_errors("create", partial(step), [&](std::error_code& error) {
    std::filesystem::create_directories(partial(step), error);
  });
}

void RunFolder::remove_partial(std::uint64_t step) const { remove_folder(partial(step)); }

void RunFolder::publish(const Manifest& manifest) const {
  const std::filesystem::path folder = partial(manifest.step);
  for (const Manifest::File& file : manifest.files) {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(folder / file.name, error);
    if (error) {
      throw_io_error("find", folder / file.name,
                     error.message() + " (all nodes must share the folder)");
    }
    if (bytes != file.sum.bytes) {
      throw_io_error("complete", folder / file.name,
                     fmt::format("{} of {} bytes are there", bytes, file.sum.bytes));
    }
  }
  const std::string text = to_json(manifest);
  DurableFile out(folder / Manifest::kFileName);
  out.write(std::as_bytes(std::span(text)));
  out.finish();
  sync_folder(folder);

  const std::filesystem::path complete = checkpoint(manifest.step);
  const std::filesystem::path replaced = checkpoint(manifest.step) += kReplaced;
  const bool replaces = std::filesystem::exists(complete);
  if (replaces) rename_durably(complete, replaced);
  rename_durably(folder, complete);
  if (replaces) remove_folder(replaced);
}

void RunFolder::prune(std::uint64_t newest, std::size_t keep) const {
  std::vector<std::uint64_t> newest_first = steps();
  std::erase_if(newest_first, [&](std::uint64_t step) { return step > newest; });
  std::optional<std::uint64_t> best;
  double best_loss = std::numeric_limits<double>::infinity();
  for (const std::uint64_t step : newest_first) {
    try {
      const Manifest manifest = read_manifest(checkpoint(step));
      if (manifest.eval_loss && *manifest.eval_loss < best_loss) {
        best_loss = *manifest.eval_loss;
        best = step;
      }
    } catch (const KoloError&) {
      // A damaged checkpoint cannot be the best; `resume` reports the damage.
    }
  }
  for (std::size_t i = keep; i < newest_first.size(); ++i) {
    if (newest_first[i] != best) remove(newest_first[i]);
  }
}

void RunFolder::remove(std::uint64_t step) const {
  rename_durably(checkpoint(step), partial(step));  // so that it no longer looks complete
  remove_partial(step);
}

RunLock::RunLock(const RunFolder& folder) {
  const std::filesystem::path path = folder.path() / ".lock";
  // NFS locks only what is open for writing. Elsewhere that would keep the file system from being
  // mounted read-only.
  for (const int access : {O_RDONLY, O_RDWR}) {
    file_ = FileDescriptor(::open(path.c_str(), access | O_CREAT | O_CLOEXEC, 0666));
    if (!file_) throw_io_error("write", path, std::strerror(errno));
    if (::flock(file_.get(), LOCK_EX | LOCK_NB) == 0) {
      char host[256] = "";
      ::gethostname(host, sizeof host - 1);
      std::ofstream(path) << fmt::format("process {} of {}\n", ::getpid(), host);  // for messages
      return;
    }
    if (errno != EBADF) break;
  }
  if (errno == EWOULDBLOCK) {
    std::string owner;
    std::getline(std::ifstream(path), owner);
    throw KoloError({.code = ErrorCode::kIo,
                     .what = fmt::format("{}: another job has this folder: {}; let it end, or name "
                                         "another --run",
                                         path.string(), owner)});
  }
  log::warn(fmt::format("{}: nothing keeps a second job out of this folder: {}", path.string(),
                        std::strerror(errno)));
}

std::optional<std::uint64_t> step_of(const std::filesystem::path& checkpoint) {
  std::string name = checkpoint.filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.erase(0, kPrefix.size());
  std::uint64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return step;
}

}  // namespace kolo::trainer
