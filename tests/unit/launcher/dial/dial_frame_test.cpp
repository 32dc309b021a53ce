// SPDX-License-Identifier: Apache-2.0
#include "launcher/dial/dial_frame.h"

#include <utility>
#include <vector>

#include "rendezvous/base/little_endian.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

TEST_CASE("Frames come out as they went in, however the stream is cut") {
  std::string stream;
  append_dial_frame(stream, DialFrameType::kRun, "head", "and body");
  append_dial_frame(stream, DialFrameType::kStop, "");
  append_dial_frame(stream, DialFrameType::kOutput, std::string(1000, 'x'));
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, stream.size()}) {
    DialFrameReader reader(1000);
    std::vector<std::pair<DialFrameType, std::string>> found;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      reader.feed(std::string_view(stream).substr(at, piece));
      for (auto frame = reader.next(); frame->has_value(); frame = reader.next()) {
        found.emplace_back((*frame)->type, (*frame)->payload);
      }
    }
    REQUIRE(found.size() == 3);
    CHECK(found[0] == std::pair(DialFrameType::kRun, std::string("headand body")));
    CHECK(found[1] == std::pair(DialFrameType::kStop, std::string()));
    CHECK(found[2] == std::pair(DialFrameType::kOutput, std::string(1000, 'x')));
  }
}

TEST_CASE("A frame that is too long is refused by its header") {
  std::string stream;
  append_u32(stream, 1001);
  DialFrameReader reader(1000);
  reader.feed(stream);
  CHECK_FALSE(reader.next());
}

TEST_CASE("Words come back as they were, and what is behind them stays") {
  using Words = std::vector<std::string>;
  for (const Words& words : {Words{}, Words{""}, Words{"x86_64", "", "it's \n"}}) {
    const std::string payload = encode_words(words) + "the line";
    std::string_view rest = payload;
    CHECK(decode_words(rest) == words);
    CHECK(rest == "the line");
  }
  const std::string whole = encode_words({"a", "bc"});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    std::string_view cut = std::string_view(whole).substr(0, size);
    CHECK_FALSE(decode_words(cut));
  }
  std::string unended;
  append_u32(unended, 3);
  unended += "abc";
  std::string_view rest = unended;
  CHECK_FALSE(decode_words(rest));
}

TEST_CASE("A request to join has a version, a token, a name and slots") {
  const JoinRequest request{std::string(32, 't'), "node-1.example", 8};
  const std::string payload = encode(request);
  CHECK(*decode_join_request(payload) == request);
  CHECK(payload.size() < kLargestJoin);
  for (std::size_t size = 0; size < 40; ++size) {
    CHECK_FALSE(decode_join_request(payload.substr(0, size)));
  }
  std::string later = payload;
  later[0] = 2;
  CHECK(decode_join_request(later).error().message.find("version 2") != std::string::npos);
}

TEST_CASE("The name of a machine is one that lists, variables and messages can have") {
  for (const char* name : {"a", "node-1.example", "10.0.0.1", "fe80::1", "my_host"}) {
    CHECK(is_machine_name(name));
  }
  CHECK_FALSE(is_machine_name(""));
  for (const char* name : {"-np", "a b", "a,b", "a\n", "a@b", "\x1b[1m", "a[1-3]"}) {
    CHECK_FALSE(is_machine_name(name));
  }
  CHECK_FALSE(is_machine_name(std::string(256, 'a')));
}

}  // namespace
}  // namespace hora::launcher
