#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace kolo::trainer {

/// A file of events for TensorBoard: numbers by name and step. It is open only while it is written.
///
/// Threads: one.
/// Errors:  KoloError(kIo) naming path and cause.
/// Source:  tensorflow/core/util/event.proto, framework/summary.proto; TFRecord's frames.
class EventFile {
 public:
  /// A new file in `folder`. TensorBoard then forgets what earlier files of the folder say of step
  /// `first_step` and later ones. Nothing is written yet.
  EventFile(const std::filesystem::path& folder, std::size_t first_step);

  void add(std::size_t step, std::string_view name, double value);
  /// Writes what was added, and makes the folder. After an error it is still to be written.
  void write();

 private:
  void append(std::string_view event);

  std::filesystem::path path_;
  std::string pending_;
};

}  // namespace kolo::trainer
