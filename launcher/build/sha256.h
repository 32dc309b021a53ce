// SPDX-License-Identifier: Apache-2.0
// SHA-256, in lower-case hex, of bytes that come in pieces.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace hora::launcher {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(std::string_view bytes);
  std::string hex();  // of all of them; nothing is added after it

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Of all of it.
std::string sha256_hex(std::string_view bytes);

}  // namespace hora::launcher
