#pragma once

#include <chrono>
#include <string>

#include <kolo/kolo_c.h>

#include "comm/rendezvous/key_value_store.h"

namespace kolo {

/// A key-value store of a program in C.
class CallbackStore final : public KeyValueStore {
 public:
  /// What `store` points to outlives it.
  explicit CallbackStore(const kolo_store& store);

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;

 private:
  const kolo_store store_;
};

}  // namespace kolo
