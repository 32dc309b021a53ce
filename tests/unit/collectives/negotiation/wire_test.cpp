// SPDX-License-Identifier: Apache-2.0
#include "collectives/negotiation/wire.h"

#include <random>

#include "tests/support/catch.h"

using namespace hora::collectives;

namespace {

constexpr std::size_t kMost = 1 << 20;

std::string encoded(const std::vector<std::string>& texts) {
  WireWriter out;
  out.texts(texts);
  return out.take();
}

std::string who_am_i(int rank) {
  return "the same on all ranks; worker-" + std::to_string(rank / 8) + " place " +
         std::to_string(rank % 8);
}

}  // namespace

TEST_CASE("wire: a list of texts survives") {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::string> texts(random() % 9);
    for (std::string& each : texts) {
      // Few letters: texts that are equal, that contain one another and that overlap themselves.
      each.resize(random() % 7);
      for (char& letter : each) letter = static_cast<char>(random() % 2);
    }
    WireWriter out;
    out.texts(texts);
    out.u8(0x5A);
    const std::string bytes = out.take();
    WireReader in(bytes);
    CHECK(in.texts(texts.size()) == texts);
    CHECK(in.u8() == 0x5A);
    CHECK((in.ok() && in.at_end()));
  }
}

TEST_CASE("wire: texts that resemble each other are short, equal ones cost nothing") {
  CHECK(encoded(std::vector<std::string>(100'000)).size() <= 8);
  CHECK(encoded(std::vector<std::string>(100'000, "no objection")).size() <= 24);
  std::vector<std::string> ranks;
  for (int rank = 0; rank < 8'000; ++rank) ranks.push_back(who_am_i(rank));
  CHECK(encoded(ranks).size() <= 8'000 * 6);
}

TEST_CASE("wire: a malformed list of texts fails and gives none") {
  std::vector<std::string> ranks;
  for (int rank = 0; rank < 20; ++rank) ranks.push_back(who_am_i(rank / 2));
  const std::string whole = encoded(ranks);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    WireReader in(std::string_view(whole).substr(0, size));
    CHECK(in.texts(kMost).empty());
    CHECK_FALSE(in.ok());
  }
  const auto refused = [](const std::vector<std::uint64_t>& numbers) {
    WireWriter out;
    for (const std::uint64_t number : numbers) out.varint(number);
    const std::string bytes = out.take();
    WireReader in(bytes);
    return in.texts(kMost).empty() && !in.ok();
  };
  CHECK(refused({kMost + 1, 3}));         // more than the reader takes
  CHECK(refused({2, 1, 3, 3}));           // no further copies
  CHECK(refused({2, 2 * 3 + 1}));         // more copies than there are texts
  CHECK(refused({1, 2 * 1, 0, 0}));       // a start of a text that is none
  CHECK(refused({1, 0, 1, 0}));           // and an end
  CHECK(refused({1, 0, UINT64_MAX, 0}));  // a length that no text has
  CHECK(refused({UINT64_MAX, UINT64_MAX}));
}
