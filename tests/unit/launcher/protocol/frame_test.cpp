// SPDX-License-Identifier: Apache-2.0
#include <random>

#include "launcher/protocol/messages.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;

TEST_CASE("frames come out as they went in, however the stream is cut") {
  std::vector<Frame> sent = {{FrameType::kHello, "abc"},
                             {FrameType::kHeartbeat, ""},
                             {FrameType::kOutput, std::string(100'000, '\0')},
                             {FrameType::kGoodbye, "x"}};
  std::string stream;
  for (const Frame& frame : sent) append_frame(stream, frame.type, frame.payload);

  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    FrameReader reader;
    std::vector<Frame> got;
    std::size_t at = 0;
    while (at < stream.size()) {
      const std::size_t step = std::min<std::size_t>(stream.size() - at, 1 + random() % 5000);
      reader.feed(std::string_view(stream).substr(at, step));
      at += step;
      while (true) {
        auto frame = reader.next();
        REQUIRE(frame.has_value());
        if (!frame->has_value()) break;
        got.push_back(**frame);
      }
    }
    REQUIRE(got == sent);
    REQUIRE(reader.buffered() == 0);
  }
}

TEST_CASE("a length beyond the limit is an error, not an allocation") {
  FrameReader reader;
  reader.feed(std::string("\xff\xff\xff\xff\x01", 5));
  REQUIRE_FALSE(reader.next().has_value());
}

TEST_CASE("the magic is found behind noise, at every cut") {
  const std::string noise = "Welcome!\n\x01HORA-AGENT-X not yet\n";
  const std::string stream = noise + std::string(kAgentMagic) + "rest";
  for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
    MagicFinder finder;
    std::string rest;
    const bool first = finder.feed(std::string_view(stream).substr(0, cut), rest);
    if (first) {
      rest += stream.substr(cut);
    } else {
      REQUIRE(finder.feed(std::string_view(stream).substr(cut), rest));
    }
    REQUIRE(rest == "rest");
    REQUIRE(finder.noise() == noise);
  }
}

TEST_CASE("numbers in front of raw bytes") {
  std::string out;
  append_u32(out, 0xfedcba98u);
  out += "tail";
  std::string_view view = out;
  REQUIRE(read_u32(view) == 0xfedcba98u);
  REQUIRE(view == "tail");
  view = "abc";
  REQUIRE_FALSE(read_u32(view).has_value());
}
