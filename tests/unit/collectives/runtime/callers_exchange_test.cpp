// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/callers_exchange.h"

#include <cstring>

#include "tests/support/catch.h"

using namespace hora;
using namespace hora::collectives;

namespace {

// Of three ranks, the first.
class Received : public TextAllgather {
 public:
  explicit Received(std::vector<std::string> texts) : texts_(std::move(texts)) {}
  int rank() const override { return 0; }
  Result<std::vector<std::string>> allgather(std::string_view mine, Deadline) override {
    sent = mine;
    return texts_;
  }
  std::string sent;

 private:
  std::vector<std::string> texts_;
};

}  // namespace

TEST_CASE("notes: text is sent without its unused buffer, and is terminated where it is received") {
  const char note[8] = "mine";
  char received[3][8];
  std::memset(received, 'x', sizeof received);
  ErrorText error;
  Received texts({"mine", "", "longer than the room"});
  REQUIRE(texts.gather_notes(note, sizeof note, received, 1000, error));
  CHECK(texts.sent == "mine");
  for (const auto& each : received) REQUIRE(each[7] == '\0');
  CHECK(std::string(received[0]) == "mine");
  CHECK(std::string(received[1]).empty());
  CHECK(std::string(received[2]) == "longer ");
}
