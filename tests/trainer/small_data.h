#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/base/error.h"
#include "tests/support/temporary_directory.h"
#include "trainer/catalog.h"
#include "trainer/data/dataset.h"
#include "trainer/random.h"

namespace kolo::trainer {

using test::Bytes;
using test::TemporaryDirectory;

/// Returns the text of the error that `f` throws. Expects that it has this code.
inline std::string error_of(const std::function<void()>& f, ErrorCode code) {
  try {
    f();
  } catch (const KoloError& error) {
    EXPECT_EQ(error.error().code, code) << error.what();
    return error.what();
  }
  return "no error";
}

inline std::string data_error(const std::function<void()>& f) {
  return error_of(f, ErrorCode::kData);
}

/// Makes an optimizer by its name. `parameters` must outlive it.
inline std::unique_ptr<Optimizer> make_optimizer(std::string_view name, ParameterSet& parameters,
                                                 const OptimizerOptions& options) {
  return built_in_catalog().optimizers.at(name).make(parameters, options);
}

/// Returns the bytes of an IDX file.
inline Bytes make_idx(const std::vector<std::size_t>& shape, const Bytes& elements) {
  Bytes bytes = {0, 0, 8, static_cast<std::uint8_t>(shape.size())};
  for (const std::size_t dimension : shape) {
    for (const int shift : {24, 16, 8, 0}) {
      bytes.push_back(static_cast<std::uint8_t>(dimension >> shift));
    }
  }
  bytes.insert(bytes.end(), elements.begin(), elements.end());
  return bytes;
}

/// Writes a gzip file of `bytes`; returns its path.
inline std::filesystem::path write_gzip(const TemporaryDirectory& directory,
                                        const std::string& name, const Bytes& bytes) {
  const std::filesystem::path file = directory.path() / name;
  const gzFile out = ::gzopen(file.c_str(), "wb");
  ::gzwrite(out, bytes.data(), static_cast<unsigned>(bytes.size()));
  ::gzclose(out);
  return file;
}

/// Returns the elements of one tensor of a sample. `name` is the tensor's field.
template <typename T>
std::vector<T> elements_of(const Dataset& data, std::size_t index, const std::string& name) {
  std::vector<std::vector<std::byte>> memory;
  std::vector<T> wanted;
  const auto slots = [&](const std::vector<Field>& fields) {
    std::vector<TensorSlot> made;
    for (const Field& field : fields) {
      memory.emplace_back(field.bytes(), std::byte{0xAA});
      made.emplace_back(field.dtype, std::span(memory.back()));
    }
    return made;
  };
  memory.reserve(data.format().inputs.size() + data.format().targets.size());
  const std::vector<TensorSlot> inputs = slots(data.format().inputs);
  const std::vector<TensorSlot> targets = slots(data.format().targets);
  data.copy(index, 0, inputs, targets);
  const auto look_in = [&](const std::vector<Field>& fields, const std::vector<TensorSlot>& in) {
    for (std::size_t i = 0; i < fields.size(); ++i) {
      if (fields[i].name != name) continue;
      const auto elements = in[i].template as<T>();
      wanted.assign(elements.begin(), elements.end());
    }
  };
  look_in(data.format().inputs, inputs);
  look_in(data.format().targets, targets);
  return wanted;
}

/// Writes noisy 16 × 16 images of ten classes in the four files of MNIST. Classes differ in the
/// position of a bright square, so a model learns them in a few dozen steps.
inline void write_small_images(const TemporaryDirectory& directory, std::size_t train,
                               std::size_t held_out) {
  Random random(11);
  const auto write_part = [&](const std::string& part, std::size_t count) {
    Bytes pixels(count * 256);
    Bytes labels(count);
    for (std::size_t i = 0; i < count; ++i) {
      labels[i] = static_cast<std::uint8_t>(random.below(10));
      for (std::size_t p = 0; p < 256; ++p) {
        const std::size_t kind = p / 16 / 4 * 4 + p % 16 / 4;  // one of 16 squares
        const std::uint64_t light = kind == labels[i] ? 150 : 0;
        pixels[i * 256 + p] = static_cast<std::uint8_t>(light + random.below(100));
      }
    }
    directory.write(part + "-images-idx3-ubyte", make_idx({count, 16, 16}, pixels));
    directory.write(part + "-labels-idx1-ubyte", make_idx({count}, labels));
  };
  write_part("train", train);
  write_part("t10k", held_out);
}

/// Returns a text whose next byte is predictable: one sentence, repeated.
inline std::string small_text(std::size_t bytes) {
  const std::string sentence = "the ring dances round and round, hand in hand. ";
  std::string text;
  while (text.size() < bytes) text += sentence;
  return text.substr(0, bytes);
}

/// Returns ratings of 30 items by 20 users. Mean ratings differ between users and between items.
inline std::string small_ratings(std::size_t count) {
  Random random(7);
  std::string csv = "userId,movieId,rating\n";
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t user = random.below(20);
    const std::uint64_t item = random.below(30);
    csv += std::to_string(user) + "," + std::to_string(item) + "," +
           std::to_string(1 + user % 3 + item % 2) + "\n";
  }
  return csv;
}

/// Returns texts of one to nine words. The first letters of the words determine the label.
inline std::string small_labelled_texts(std::size_t count) {
  Random random(7);
  std::string csv = "text,label\n";
  for (std::size_t i = 0; i < count; ++i) {
    const char label = static_cast<char>('a' + random.below(3));
    for (std::uint64_t words = 1 + random.below(9); words > 0; --words) {
      csv += label + std::to_string(random.below(12)) + " ";
    }
    csv += std::string(",") + label + "\n";
  }
  return csv;
}

}  // namespace kolo::trainer
