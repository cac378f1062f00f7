#include "trainer/checkpoint/run_folder.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "comm/base/error.h"
#include "trainer/checkpoint/durable_file.h"

namespace kolo::trainer {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kPartial = ".partial";

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

/// The names in `folder`; none if there is no such folder.
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
    if (const auto step = step_of(path)) steps.push_back(*step);
  }
  std::ranges::sort(steps, std::ranges::greater());
  return steps;
}

void RunFolder::clear() const {
  for (const std::filesystem::path& path : list(path_)) {
    const std::string name = path.filename().string();
    if (name.starts_with(kPrefix) && name.ends_with(kPartial)) remove_folder(path);
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
  const std::filesystem::path replaced = path_ / (complete.filename().string() + ".old.partial");
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
      // A damaged one cannot be the best; whoever resumes says what is wrong with it.
    }
  }
  for (std::size_t i = keep; i < newest_first.size(); ++i) {
    if (newest_first[i] != best) remove(newest_first[i]);
  }
}

void RunFolder::remove(std::uint64_t step) const {
  rename_durably(checkpoint(step), partial(step));  // Half of one is never taken for one.
  remove_partial(step);
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
