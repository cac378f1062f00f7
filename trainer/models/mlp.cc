#include "trainer/models/mlp.h"

#include "trainer/layers/linear.h"
#include "trainer/layers/relu.h"

namespace kolo::trainer {

Mlp::Mlp(const ImageModelOptions& o) : ImageClassifier(o) {
  const std::size_t pixels = o.height * o.width * o.channels;
  layers_.append<Linear>(parameters(), "fc1",
                         Linear::Options{.rows = o.images,
                                         .inputs = pixels,
                                         .outputs = o.hidden,
                                         .deviation = he_deviation(pixels),
                                         .input_gradient = false});
  layers_.append<Relu>(o.images * o.hidden);
  layers_.append<Linear>(parameters(), "fc2",
                         Linear::Options{.rows = o.images,
                                         .inputs = o.hidden,
                                         .outputs = o.hidden,
                                         .deviation = he_deviation(o.hidden)});
  layers_.append<Relu>(o.images * o.hidden);
  layers_.append<Linear>(parameters(), "fc3",
                         Linear::Options{.rows = o.images,
                                         .inputs = o.hidden,
                                         .outputs = o.classes,
                                         .deviation = he_deviation(o.hidden)});
}

}  // namespace kolo::trainer
