// SPDX-License-Identifier: Apache-2.0
#include "collectives/negotiation/wire.h"

#include <algorithm>
#include <random>

#include "collectives/control/door.h"
#include "collectives/control/frame_buffer.h"
#include "rendezvous/base/encoding.h"
#include "rendezvous/base/hmac.h"
#include "tests/support/catch.h"
#include "tests/support/wishes.h"

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

using namespace hora::collectives;
using namespace hora::test;

namespace {

Request full_request() {
  Request request;
  request.action = Action::kAlltoall;
  request.process_set = 300;
  request.dtype = HORA_BFLOAT16;
  request.reduce_op = HORA_MAX;
  request.root = 7;
  request.device = 3;
  request.priority = -5;
  request.prescale = 0.1;
  request.postscale = -1e300;
  request.name = std::string("a\0\xff name", 8);
  request.shape = {0, 1, INT64_C(1) << 40};
  request.splits = {5, 0, 2};
  request.group = "g";
  request.group_size = 12;
  request.members = Members({{0, 1, 5}, {"a", "", std::string("b\0\xff", 3)}});
  request.shape = {6};
  return request;
}

}  // namespace

TEST_CASE("codec: requests survive, plain ones stay small") {
  Request plain;
  plain.action = Action::kAllreduce;
  plain.name = "weight";
  plain.shape = {128};
  const std::vector<Wish> wishes{
      full_request(),  Reference{2, 7}, plain,    Reference{0, UINT64_MAX},
      Reference{0, 1}, Reference{3, 1}, Request{}};
  const auto decoded = decode_wishes(encode_wishes(wishes));
  REQUIRE(decoded.has_value());
  CHECK(*decoded == wishes);
  CHECK(encode_wishes({plain}).size() <= 20);
}

TEST_CASE("codec: a prepared set whose counts are not its shape is malformed") {
  for (const Members::List& list :
       {Members::List{{1, 5}, {"a", "b"}}, Members::List{{-1, 7}, {"a", "b"}},
        Members::List{{INT64_MAX, 7}, {"a", "b"}}}) {
    Request request = full_request();
    request.shape = {6};
    request.members = Members(list);
    WireWriter out;
    encode_request(out, request);
    const std::string bytes = out.take();
    WireReader in(bytes);
    Request decoded;
    CHECK(decode_request(in, decoded) == (list.counts.front() == 1));
  }
}

TEST_CASE("codec: tensors that are asked for again in the same order cost a bit each") {
  std::vector<Wish> again;
  for (std::uint64_t id = 1000; id < 1161; ++id) again.emplace_back(Reference{0, id});
  CHECK(encode_wishes(again).size() <= 161 / 8 + 8);
  std::reverse(again.begin(), again.end());
  CHECK(encode_wishes(again).size() <= 161 + 8);
  const auto decoded = decode_wishes(encode_wishes(again));
  REQUIRE(decoded.has_value());
  CHECK(*decoded == again);
}

TEST_CASE("codec: responses survive; an alltoall's receiver gets its own column") {
  Response response;
  response.agreed = full_request();
  response.numbers = {1, 2, 3};
  response.joined = {0, 4};
  response.status = HORA_MISMATCH;
  response.error = "why";
  WireWriter out;
  encode_response(out, response, 0);
  Response exchange;
  exchange.agreed.action = Action::kAlltoall;
  exchange.all_splits = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  encode_response(out, exchange, 2);
  const std::string bytes = out.take();
  WireReader in(bytes);
  Response decoded;
  REQUIRE(decode_response(in, decoded));
  CHECK(decoded == response);
  Response column;
  REQUIRE(decode_response(in, column));
  CHECK(column.numbers == std::vector<std::int64_t>{3, 6, 9});
  CHECK(in.at_end());
}

TEST_CASE("codec: no prefix and no damage is ever read as something else than an error or a list") {
  const std::string bytes =
      encode_wishes({full_request(), Reference{0, 5}, Reference{0, 900}, full_request()});
  std::size_t whole = 0;  // a cut between two items leaves a shorter list
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    if (decode_wishes(bytes.substr(0, length))) ++whole;
  }
  CHECK(whole == 3);
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = bytes;
    for (int k = 0; k < 3; ++k) damaged[random() % damaged.size()] = static_cast<char>(random());
    static_cast<void>(decode_wishes(damaged));  // must not crash or allocate without bound
  }
}

TEST_CASE("wire: integers at their limits") {
  WireWriter out;
  const std::vector<std::int64_t> values{0, -1, 1, 63, 64, -64, -65, INT64_MAX, INT64_MIN};
  out.integers(values);
  out.varint(UINT64_MAX);
  const std::string bytes = out.take();
  WireReader in(bytes);
  CHECK(in.integers<std::int64_t>() == values);
  CHECK(in.varint() == UINT64_MAX);
  CHECK(in.ok());
  CHECK(in.u8() == 0);
  CHECK_FALSE(in.ok());
}

TEST_CASE("frames: cut anywhere, put together again; too large a one breaks the stream") {
  std::string stream;
  append_frame(stream, "first");
  append_frame(stream, "");
  append_frame(stream, std::string(70000, 'x'));
  FrameBuffer buffer;
  std::vector<std::string> messages;
  for (std::size_t i = 0; i < stream.size(); i += 7) {
    buffer.append(std::string_view(stream).substr(i, 7));
    while (auto message = buffer.next()) messages.push_back(*message);
  }
  REQUIRE(messages.size() == 3);
  CHECK(messages[0] == "first");
  CHECK(messages[1].empty());
  CHECK(messages[2].size() == 70000);
  buffer.append(std::string("\xff\xff\xff\xff", 4));
  CHECK_FALSE(buffer.next());
  CHECK(buffer.broken());
}

TEST_CASE("hmac: the published test vectors") {
  // RFC 4231, cases 1, 2 and 6.
  CHECK(hora::to_hex(hora::hmac_sha256(std::string(20, '\x0b'), "Hi There")) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hora::to_hex(hora::hmac_sha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hora::to_hex(hora::hmac_sha256(std::string(131, '\xaa'),
                                       "Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("handshake: every ingredient counts") {
  const std::string proof = handshake_proof("token", "worker", "n1", "n2", 3);
  CHECK(proof == handshake_proof("token", "worker", "n1", "n2", 3));
  CHECK(proof != handshake_proof("Token", "worker", "n1", "n2", 3));
  CHECK(proof != handshake_proof("token", "coordinator", "n1", "n2", 3));
  CHECK(proof != handshake_proof("token", "worker", "n1n", "2", 3));
  CHECK(proof != handshake_proof("token", "worker", "n1", "n2", 4));
}
