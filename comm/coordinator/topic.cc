#include "comm/coordinator/topic.h"

#include <xxhash.h>

namespace kolo {

std::uint64_t name_key(std::string_view name) { return XXH3_64bits(name.data(), name.size()) >> 1; }

void write(ByteWriter& writer, const Topic& topic) {
  writer.number(topic.key);
  writer.number(topic.round);
}

Topic read_topic(ByteReader& reader) {
  Topic topic;
  topic.key = reader.number<std::uint64_t>();
  topic.round = reader.number<std::uint64_t>();
  return topic;
}

}  // namespace kolo
