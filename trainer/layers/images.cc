#include "trainer/layers/images.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>

#include "comm/base/check.h"
#include "trainer/compute/device.h"
#include "trainer/kernels/kernels.h"

namespace kolo::trainer {
namespace {

using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

dnnl::memory::desc image_layout(const Conv2d::Options& o, Type type) {
  return layout_of({o.images, o.input_channels, o.height, o.width}, Tag::nhwc, type);
}

dnnl::memory::desc kernel_layout(const Conv2d::Options& o, Tag tag, Type type) {
  return layout_of({o.output_channels, o.input_channels, o.kernel, o.kernel}, tag, type);
}

dnnl::memory::desc result_layout(const Conv2d::Options& o, Type type) {
  return layout_of({o.images, o.output_channels, o.output_height(), o.output_width()}, Tag::nhwc,
                   type);
}

// The layouts of a convolution. Activations are channels-last; oneDNN chooses the layout of the
// weights. Input, weight and output gradient have the operand dtype; other tensors are float32.
struct Layouts {
  Layouts(const Conv2d::Options& o, Type operand)
      : input(image_layout(o, operand)),
        weight(kernel_layout(o, Tag::any, operand)),
        plain_weight(kernel_layout(o, Tag::oihw, operand)),
        output_gradient(result_layout(o, operand)),
        output(result_layout(o, Type::f32)),
        bias(o.has_bias ? layout_of({o.output_channels}, Tag::x) : dnnl::memory::desc()),
        input_gradient(image_layout(o, Type::f32)),
        weight_gradient(kernel_layout(o, Tag::any, Type::f32)),
        plain_weight_gradient(kernel_layout(o, Tag::oihw, Type::f32)),
        rounded_weight_gradient(kernel_layout(o, Tag::oihw, Type::bf16)),
        stride(2, static_cast<dnnl::memory::dim>(o.stride)),
        padding(2, static_cast<dnnl::memory::dim>(o.padding)) {}

  dnnl::memory::desc input, weight, plain_weight, output_gradient;
  dnnl::memory::desc output, bias, input_gradient, weight_gradient, plain_weight_gradient;
  dnnl::memory::desc rounded_weight_gradient;
  dnnl::memory::dims stride;
  dnnl::memory::dims padding;  // padding on each side
};

dnnl::convolution_forward::primitive_desc forward_description(const Layouts& l,
                                                              const dnnl::engine& engine) {
  return {{dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, l.input,
           l.weight, l.bias, l.output, l.stride, l.padding, l.padding},
          engine};
}

dnnl::convolution_backward_weights::primitive_desc weights_description(
    const Layouts& l, const dnnl::engine& engine,
    const dnnl::convolution_forward::primitive_desc& hint) {
  return {{dnnl::algorithm::convolution_direct, l.input, l.weight_gradient, l.bias,
           l.output_gradient, l.stride, l.padding, l.padding},
          engine,
          hint};
}

dnnl::convolution_backward_data::primitive_desc data_description(
    const Layouts& l, const dnnl::engine& engine,
    const dnnl::convolution_forward::primitive_desc& hint) {
  return {{dnnl::algorithm::convolution_direct, l.input_gradient, l.weight, l.output_gradient,
           l.stride, l.padding, l.padding},
          engine,
          hint};
}

using Tag = dnnl::memory::format_tag;

const dnnl::memory::dims kNoDilation{0, 0};

dnnl::memory::dims square(std::size_t side) {
  return dnnl::memory::dims(2, static_cast<dnnl::memory::dim>(side));
}

}  // namespace

struct Conv2d::Primitives {
  Primitives(Device& device_of, const Options& options)
      : device(device_of),
        layouts(options, type_of(device.operand_dtype())),
        forward_pd(forward_description(layouts, device.engine())),
        weights_pd(weights_description(layouts, device.engine(), forward_pd)),
        data_pd(data_description(layouts, device.engine(), forward_pd)),
        forward(forward_pd),
        backward_weights(weights_pd),
        backward_data(data_pd),
        input(unbound(layouts.input, device.engine())),
        plain_weight(unbound(layouts.plain_weight, device.engine())),
        bias(unbound(layouts.bias, device.engine())),
        output_gradient(unbound(layouts.output_gradient, device.engine())),
        plain_weight_gradient(unbound(layouts.plain_weight_gradient, device.engine())),
        forward_weight(forward_pd.weights_desc(), device.engine()),
        weight_gradient(weights_pd.diff_weights_desc(), device.engine()),
        data_weight(data_pd.weights_desc(), device.engine()),
        output({options.images, options.output_height(), options.output_width(),
                options.output_channels}),
        input_gradient({options.input_gradient ? options.images : 0, options.height, options.width,
                        options.input_channels}),
        output_memory(layouts.output, device.engine(), output.data()),
        input_gradient_memory(layouts.input_gradient, device.engine(), input_gradient.data()),
        to_forward(plain_weight, forward_weight),
        to_data(plain_weight, data_weight),
        from_gradient(weight_gradient, plain_weight_gradient),
        rounded_weight_gradient(unbound(layouts.rounded_weight_gradient, device.engine())),
        weight_contribution(
            {options.output_channels, options.input_channels, options.kernel, options.kernel}),
        bias_contribution({options.output_channels}),
        input_factor(device,
                     options.images * options.height * options.width * options.input_channels),
        weight_factor(device, weight_contribution.size()),
        gradient_factor(device, output.size()) {
    if (device.operand_dtype() == DType::kBFloat16) {
      from_gradient_rounding.emplace(weight_gradient, rounded_weight_gradient);
    }
  }

  /// Stores the weight's gradient, converted from oneDNN's layout to the parameter's, at `to`.
  void store_weight_gradient(void* to, DType dtype) {
    if (dtype == DType::kBFloat16) {
      from_gradient_rounding->execute(device.stream(), weight_gradient,
                                      at(rounded_weight_gradient, to));
    } else {
      from_gradient.execute(device.stream(), weight_gradient, at(plain_weight_gradient, to));
    }
  }

  Device& device;
  Layouts layouts;
  dnnl::convolution_forward::primitive_desc forward_pd;
  dnnl::convolution_backward_weights::primitive_desc weights_pd;
  dnnl::convolution_backward_data::primitive_desc data_pd;
  dnnl::convolution_forward forward;
  dnnl::convolution_backward_weights backward_weights;
  dnnl::convolution_backward_data backward_data;
  // The next five objects point to memory that other objects own.
  dnnl::memory input, plain_weight, bias, output_gradient, plain_weight_gradient;
  dnnl::memory forward_weight, weight_gradient, data_weight;
  Tensor output, input_gradient;
  dnnl::memory output_memory, input_gradient_memory;
  dnnl::reorder to_forward, to_data, from_gradient;
  dnnl::memory rounded_weight_gradient;                 // points to memory that another object owns
  std::optional<dnnl::reorder> from_gradient_rounding;  // set if operands are bfloat16
  Tensor weight_contribution, bias_contribution;        // contributions that are added to gradients
  Factor input_factor, weight_factor, gradient_factor;
  std::uint64_t weight_version = 0;  // version of the weight in forward_weight and data_weight
};

Conv2d::Conv2d(Device& device, ParameterSet& parameters, const std::string& name,
               const Options& options)
    : weight_(parameters.add(
          name + ".weight",
          {options.output_channels, options.input_channels, options.kernel, options.kernel},
          {.deviation = options.deviation})),
      bias_(options.has_bias ? &parameters.add(name + ".bias", {options.output_channels}, {})
                             : nullptr) {
  check(options.height + 2 * options.padding >= options.kernel &&
            options.width + 2 * options.padding >= options.kernel,
        "a convolution needs images at least as large as its kernel");
  primitives_ = std::make_unique<Primitives>(device, options);
}

Conv2d::~Conv2d() = default;

std::span<const float> Conv2d::forward(std::span<const float> input, const Pass&) {
  Primitives& p = *primitives_;
  dnnl::stream& stream = p.device.stream();
  if (p.weight_version != weight_.version()) {
    p.weight_factor.assign(std::as_const(weight_).value());
    at(p.plain_weight, p.weight_factor.data());
    p.to_forward.execute(stream, p.plain_weight, p.forward_weight);
    if (p.input_gradient.size() > 0) p.to_data.execute(stream, p.plain_weight, p.data_weight);
    p.weight_version = weight_.version();
  }
  p.input_factor.assign(input);
  std::unordered_map<int, dnnl::memory> arguments{
      {DNNL_ARG_SRC, at(p.input, p.input_factor.data())},
      {DNNL_ARG_WEIGHTS, p.forward_weight},
      {DNNL_ARG_DST, p.output_memory}};
  if (bias_ != nullptr) {
    arguments.emplace(DNNL_ARG_BIAS, at(p.bias, std::as_const(*bias_).value().data()));
  }
  p.forward.execute(stream, arguments);
  return p.output.span();
}

std::span<const float> Conv2d::backward(std::span<const float> output_gradient) {
  Primitives& p = *primitives_;
  dnnl::stream& stream = p.device.stream();
  const Contribution dw = weight_.contribution(p.device.operand_dtype());
  const bool adds = dw.into == Into::kAdd;
  p.gradient_factor.assign(output_gradient);
  at(p.output_gradient, p.gradient_factor.data());
  std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SRC, p.input},
                                                  {DNNL_ARG_DIFF_DST, p.output_gradient},
                                                  {DNNL_ARG_DIFF_WEIGHTS, p.weight_gradient}};
  if (bias_ != nullptr) {
    float* const bias_gradient = adds ? p.bias_contribution.data() : bias_->gradient().data();
    arguments.emplace(DNNL_ARG_DIFF_BIAS, at(p.bias, bias_gradient));
  }
  p.backward_weights.execute(stream, arguments);
  p.store_weight_gradient(adds ? p.weight_contribution.data() : dw.data, dw.dtype);
  if (adds) {
    add(weight_.gradient(), p.weight_contribution.span(), weight_.gradient());
    if (bias_ != nullptr) add(bias_->gradient(), p.bias_contribution.span(), bias_->gradient());
  }
  weight_.contributed();
  if (bias_ != nullptr) bias_->contributed();
  if (p.input_gradient.size() > 0) {
    p.backward_data.execute(stream, {{DNNL_ARG_DIFF_DST, p.output_gradient},
                                     {DNNL_ARG_WEIGHTS, p.data_weight},
                                     {DNNL_ARG_DIFF_SRC, p.input_gradient_memory}});
  }
  return p.input_gradient.span();
}

struct MaxPool::Primitives {
  Primitives(Device& device_of, const Options& o)
      : device(device_of),
        window(square(o.window)),
        stride(square(o.stride)),
        padding(square(o.padding)),
        input_layout(layout_of({o.images, o.channels, o.height, o.width}, Tag::nhwc)),
        output_layout(
            layout_of({o.images, o.channels, o.output_height(), o.output_width()}, Tag::nhwc)),
        forward_pd({dnnl::prop_kind::forward_training, dnnl::algorithm::pooling_max, input_layout,
                    output_layout, stride, window, kNoDilation, padding, padding},
                   device.engine()),
        backward_pd({dnnl::algorithm::pooling_max, input_layout, output_layout, stride, window,
                     kNoDilation, padding, padding},
                    device.engine(), forward_pd),
        forward(forward_pd),
        backward(backward_pd),
        input(unbound(input_layout, device.engine())),
        output_gradient(unbound(output_layout, device.engine())),
        workspace(forward_pd.workspace_desc(), device.engine()),
        output({o.images, o.output_height(), o.output_width(), o.channels}),
        input_gradient({o.images, o.height, o.width, o.channels}),
        output_memory(output_layout, device.engine(), output.data()),
        input_gradient_memory(input_layout, device.engine(), input_gradient.data()) {}

  Device& device;
  dnnl::memory::dims window, stride, padding;
  dnnl::memory::desc input_layout, output_layout;
  dnnl::pooling_v2_forward::primitive_desc forward_pd;
  dnnl::pooling_v2_backward::primitive_desc backward_pd;
  dnnl::pooling_v2_forward forward;
  dnnl::pooling_v2_backward backward;
  dnnl::memory input, output_gradient;  // point to memory that other layers own
  dnnl::memory workspace;               // index of each window's maximum
  Tensor output, input_gradient;
  dnnl::memory output_memory, input_gradient_memory;
};

MaxPool::MaxPool(Device& device, const Options& options) {
  check(options.height + 2 * options.padding >= options.window &&
            options.width + 2 * options.padding >= options.window,
        "pooling needs images at least as large as its window");
  primitives_ = std::make_unique<Primitives>(device, options);
}

MaxPool::~MaxPool() = default;

std::span<const float> MaxPool::forward(std::span<const float> input, const Pass&) {
  Primitives& p = *primitives_;
  p.forward.execute(p.device.stream(), {{DNNL_ARG_SRC, at(p.input, input.data())},
                                        {DNNL_ARG_DST, p.output_memory},
                                        {DNNL_ARG_WORKSPACE, p.workspace}});
  return p.output.span();
}

std::span<const float> MaxPool::backward(std::span<const float> output_gradient) {
  Primitives& p = *primitives_;
  at(p.output_gradient, output_gradient.data());
  p.backward.execute(p.device.stream(), {{DNNL_ARG_DIFF_DST, p.output_gradient},
                                         {DNNL_ARG_WORKSPACE, p.workspace},
                                         {DNNL_ARG_DIFF_SRC, p.input_gradient_memory}});
  return p.input_gradient.span();
}

std::span<const float> AveragePool::forward(std::span<const float> input, const Pass&) {
  const Shape& shape = input_gradient_.shape();
  const std::size_t channels = shape[2];
  const std::size_t image = shape[1] * channels;
  for (std::size_t i = 0; i < shape[0]; ++i) {
    sum_rows(input.subspan(i * image, image), output_.span().subspan(i * channels, channels));
  }
  scale(output_.span(), 1.0f / static_cast<float>(shape[1]));
  return output_.span();
}

std::span<const float> AveragePool::backward(std::span<const float> output_gradient) {
  const Shape& shape = input_gradient_.shape();
  const std::size_t channels = shape[2];
  const std::size_t image = shape[1] * channels;
  for (std::size_t i = 0; i < shape[0]; ++i) {
    repeat_row(output_gradient.subspan(i * channels, channels),
               input_gradient_.span().subspan(i * image, image));
  }
  scale(input_gradient_.span(), 1.0f / static_cast<float>(shape[1]));
  return input_gradient_.span();
}

PaddedShortcut::PaddedShortcut(const Options& o)
    : options_(o),
      output_({o.images, o.output_height(), o.output_width(), o.output_channels}),
      input_gradient_({o.images, o.height, o.width, o.input_channels}) {
  check(o.output_channels >= o.input_channels, "a padded shortcut does not lose channels");
}

template <typename Visit>
void PaddedShortcut::for_pixels(const Visit& visit) const {
  const Options& o = options_;
  std::size_t to = 0;
  for (std::size_t image = 0; image < o.images; ++image) {
    for (std::size_t y = 0; y < o.height; y += o.stride) {
      for (std::size_t x = 0; x < o.width; x += o.stride) {
        visit(((image * o.height + y) * o.width + x) * o.input_channels, to);
        to += o.output_channels;
      }
    }
  }
}

std::span<const float> PaddedShortcut::forward(std::span<const float> input, const Pass&) {
  // The added channels of `output_` are zero from its construction on.
  for_pixels([&](std::size_t from, std::size_t to) {
    std::copy_n(input.data() + from, options_.input_channels, output_.data() + to);
  });
  return output_.span();
}

std::span<const float> PaddedShortcut::backward(std::span<const float> output_gradient) {
  // The gradient of skipped pixels is zero from the construction of `input_gradient_` on.
  for_pixels([&](std::size_t from, std::size_t to) {
    std::copy_n(output_gradient.data() + to, options_.input_channels,
                input_gradient_.data() + from);
  });
  return input_gradient_.span();
}

}  // namespace kolo::trainer
