#include "trainer/layers/lookup.h"

#include <algorithm>

#include "comm/base/check.h"

namespace kolo::trainer {

Lookup::Lookup(ParameterSet& parameters, const std::string& name, const Options& options)
    : options_(options),
      table_(parameters.add_table(name, options.entries, options.width,
                                  {.deviation = options.deviation})),
      output_({options.count, options.width}) {
  if (options.padding) std::ranges::fill(table_.row(*options.padding), 0.0f);
}

std::span<const float> Lookup::forward(std::span<const std::int32_t> ids) {
  check(ids.size() <= options_.count,
        "a table is asked for at most as many rows as it was made for");
  ids_ = ids;
  auto into = output_.span().begin();
  for (const std::int32_t id : ids) into = std::ranges::copy(table_.row(id), into).out;
  return output_.span().first(ids.size() * options_.width);
}

void Lookup::backward(std::span<const float> output_gradient) {
  table_.begin_rows();
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    if (ids_[i] == options_.padding) continue;
    table_.add_to_row(ids_[i], output_gradient.subspan(i * options_.width, options_.width), 1.0f);
  }
  table_.contributed();
}

}  // namespace kolo::trainer
