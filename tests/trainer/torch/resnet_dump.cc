// Runs a training pass and an evaluation of a residual network on random images, and writes all
// that goes in and comes out, for a comparison with PyTorch.
//
//     resnet_dump resnet20|resnet18 SIDE FOLDER
//
// FOLDER gets one file of raw elements for each of pixels (uint8 [images, SIDE, SIDE, 3]), classes
// (int32), logits, evaluated, value/NAME and gradient/NAME of each parameter and buffer/NAME.

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "tests/trainer/torch/dump.h"
#include "trainer/compute/device.h"
#include "trainer/loss/loss.h"
#include "trainer/models/image_models.h"
#include "trainer/random.h"

namespace {

using namespace kolo::trainer;

constexpr std::size_t kImages = 4;
constexpr std::size_t kClasses = 10;

void run(const Resnet::Stages& stages, std::size_t side, const std::filesystem::path& folder) {
  Device device;
  Resnet model(device,
               {.images = kImages,
                .height = side,
                .width = side,
                .channels = 3,
                .classes = kClasses,
                .hidden = 1,
                .scaling = PixelScaling(127.5, 73.9),
                .seed = 3},
               stages);
  ParameterSet& parameters = model.parameters();
  parameters.own_gradients();
  Random random(7);
  std::vector<std::uint8_t> pixels(kImages * side * side * 3);
  for (auto& pixel : pixels) pixel = static_cast<std::uint8_t>(random.below(256));
  std::vector<std::int32_t> classes(kImages);
  for (auto& one : classes) one = static_cast<std::int32_t>(random.below(kClasses));
  const TensorView inputs[] = {pixels};
  const TensorView targets[] = {classes};
  dump_values(folder, parameters);
  dump<std::uint8_t>(folder / "pixels", pixels);
  dump<std::int32_t>(folder / "classes", classes);

  SoftmaxCrossEntropy loss({.rows = kImages, .classes = kClasses});
  const std::span<const float> logits = model.forward(inputs, {});
  dump<float>(folder / "logits", logits);
  loss.evaluate(logits, targets, 1.0f);
  model.backward(loss.gradient());
  dump_gradients(folder, parameters);
  for (const Buffer& buffer : parameters.buffers()) {
    dump<float>(folder / "buffer" / buffer.name, buffer.value.span());
  }
  dump<float>(folder / "evaluated", model.forward(inputs, {.is_training = false}));
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() != 3) {
    std::cerr << "usage: resnet_dump resnet20|resnet18 SIDE FOLDER\n";
    return 64;
  }
  run(arguments[0] == "resnet20" ? Resnet::stages20() : Resnet::stages18(),
      std::stoul(arguments[1]), arguments[2]);
  return 0;
}
