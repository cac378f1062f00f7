#include "comm/coordinator/proposal_key.h"

#include <xxhash.h>

namespace kolo {

std::uint64_t name_hash(std::string_view name) {
  return XXH3_64bits(name.data(), name.size()) >> 1;
}

void write(ByteWriter& writer, const ProposalKey& key) {
  writer.number(key.hash);
  writer.number(key.round);
}

ProposalKey read_proposal_key(ByteReader& reader) {
  ProposalKey key;
  key.hash = reader.number<std::uint64_t>();
  key.round = reader.number<std::uint64_t>();
  return key;
}

}  // namespace kolo
