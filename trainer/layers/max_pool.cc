#include "trainer/layers/max_pool.h"

#include "comm/base/check.h"
#include "trainer/compute/device.h"
#include "trainer/compute/dnnl_memory.h"
#include "trainer/tensor.h"

namespace kolo::trainer {
namespace {

using Tag = dnnl::memory::format_tag;

const dnnl::memory::dims kNoDilation{0, 0};

dnnl::memory::dims square(std::size_t side) {
  return dnnl::memory::dims(2, static_cast<dnnl::memory::dim>(side));
}

}  // namespace

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
  dnnl::memory input, output_gradient;  // memory of other layers
  dnnl::memory workspace;               // index of the largest element of each window
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

}  // namespace kolo::trainer
