#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/base/byte_codec.h"
#include "comm/rendezvous/rendezvous.h"

namespace kolo {

/// Exchanges several named texts of all ranks in one round. A text that depends on the result of a
/// round is exchanged in the next round.
///
///     exchange.post("node", node);       // any number of names
///     exchange.post("place", place);
///     exchange.run();                    // one round, collective
///     exchange.texts("node");            // by rank; empty for ranks that posted none
///
/// Threads: as the rendezvous, which must outlive this object.
class BatchedExchange {
 public:
  explicit BatchedExchange(Rendezvous& rendezvous) : rendezvous_(rendezvous) {}

  int rank() const { return rendezvous_.rank(); }
  int size() const { return rendezvous_.size(); }
  Rendezvous& rendezvous() { return rendezvous_; }

  void post(std::string name, std::string text) {
    posted_.emplace_back(std::move(name), std::move(text));
  }

  /// Exchanges the posted texts. Collective: all ranks call it. Errors: as
  /// `Rendezvous::all_gather`.
  void run() {
    std::vector<std::byte> bytes;
    ByteWriter writer(bytes);
    for (const auto& [name, text] : std::exchange(posted_, {})) {
      writer.text(name);
      writer.text(text);
    }
    const std::string mine(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::vector<std::string> all = rendezvous_.all_gather(mine);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      ByteReader reader(std::as_bytes(std::span(all[rank])));
      while (reader.ok() && !reader.at_end()) {
        const std::string name = reader.text();
        texts_[name].resize(all.size());
        texts_[name][rank] = reader.text();
      }
    }
  }

  /// Returns the texts with this name, by rank, of the last round in which any rank posted it.
  const std::vector<std::string>& texts(std::string_view name) {
    std::vector<std::string>& texts = texts_[std::string(name)];
    texts.resize(static_cast<std::size_t>(size()));
    return texts;
  }
  const std::string& text_of_rank_0(std::string_view name) { return texts(name).front(); }

 private:
  Rendezvous& rendezvous_;
  std::vector<std::pair<std::string, std::string>> posted_;
  std::map<std::string, std::vector<std::string>> texts_;
};

/// Counts the rounds of another rendezvous.
class CountedRendezvous final : public Rendezvous {
 public:
  explicit CountedRendezvous(Rendezvous& counted) : counted_(counted) {}

  int rank() const override { return counted_.rank(); }
  int size() const override { return counted_.size(); }
  std::vector<std::string> all_gather(const std::string& mine) override {
    ++rounds_;
    return counted_.all_gather(mine);
  }
  int rounds() const { return rounds_; }

 private:
  Rendezvous& counted_;
  int rounds_ = 0;
};

}  // namespace kolo
