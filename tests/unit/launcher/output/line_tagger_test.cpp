// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/line_tagger.h"

#include <chrono>
#include <random>

#include "rendezvous/base/time.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

constexpr std::string_view kPrefix = "[3]<stdout>:";

struct Tagged {
  std::string text;
  bool unterminated = false;
};

Tagged tag(const std::vector<std::string>& writes) {
  LineTagger tagger;
  Tagged out;
  for (const std::string& bytes : writes) tagger.feed(bytes, kPrefix, out.text);
  out.unterminated = tagger.finish(kPrefix, out.text);
  return out;
}

TEST_CASE("Every line begins with the prefix") {
  CHECK(tag({"a\nb\n"}).text == "[3]<stdout>:a\n[3]<stdout>:b\n");
}

TEST_CASE("What is not a whole line is held") {
  LineTagger tagger;
  std::string out;
  tagger.feed("par", kPrefix, out);
  CHECK(out.empty());
  CHECK(tagger.held_bytes() == 3);
  tagger.feed("t\nre", kPrefix, out);
  CHECK(out == "[3]<stdout>:part\n");
  CHECK(tagger.finish(kPrefix, out));
  CHECK(out == "[3]<stdout>:part\n[3]<stdout>:re");
  CHECK_FALSE(tagger.finish(kPrefix, out));
}

TEST_CASE("Progress bars come out at once, CR LF counts once") {
  CHECK(tag({"1%\r2%\r", "done\n"}).text == "[3]<stdout>:1%\r[3]<stdout>:2%\r[3]<stdout>:done\n");
  CHECK(tag({"a\r\nb\r\n"}).text == "[3]<stdout>:a\r\n[3]<stdout>:b\r\n");
  CHECK(tag({"a\r", "\nb\n"}).text == "[3]<stdout>:a\r\n[3]<stdout>:b\n");
  CHECK(tag({"\r\r\n"}).text == "[3]<stdout>:\r[3]<stdout>:\r\n");
  LineTagger tagger;
  std::string out;
  tagger.feed("1%\r", kPrefix, out);
  CHECK(out == "[3]<stdout>:1%\r");
}

TEST_CASE("What has no end yet can be shown, without half a character or half a sequence") {
  const auto unfinished = [](std::string_view bytes) {
    LineTagger tagger;
    std::string out;
    tagger.feed(bytes, kPrefix, out);
    return tagger.unfinished(kPrefix);
  };
  CHECK(unfinished("name? ") == "[3]<stdout>:name? ");
  CHECK(unfinished("whole\nhalf") == "[3]<stdout>:half");
  CHECK(unfinished("whole\n").empty());
  CHECK(unfinished("\xc3\xa9").ends_with("\xc3\xa9"));
  CHECK(unfinished("a\xc3") == "[3]<stdout>:a");
  CHECK(unfinished("a\xf0\x9f\x98") == "[3]<stdout>:a");
  CHECK(unfinished("\xe2\x82").empty());
  CHECK(unfinished("a\033[3") == "[3]<stdout>:a");
  CHECK(unfinished("a\033") == "[3]<stdout>:a");
  CHECK(unfinished("a\033[31mred") == "[3]<stdout>:a\033[31mred");
}

TEST_CASE("In a file a line has the state that a terminal would show last") {
  const auto stored = [](const std::vector<std::string>& writes) {
    LineTagger tagger(Returns::kReplaceLine);
    std::string out;
    for (const std::string& bytes : writes) tagger.feed(bytes, kPrefix, out);
    (void)tagger.finish(kPrefix, out);
    return out;
  };
  CHECK(stored({"\r 1%\r 2%", "\r100%\n", "next\n"}) == "[3]<stdout>:100%\n[3]<stdout>:next\n");
  CHECK(stored({"a\r\nb\r", "\nc"}) == "[3]<stdout>:a\r\n[3]<stdout>:b\r\n[3]<stdout>:c");
  CHECK(stored({"1%\r2%\r"}) == "[3]<stdout>:2%\r");
  CHECK(stored({std::string("PK\0\1\r2\n", 7), "3\r4\n"}) ==
        std::string("[3]<stdout>:PK\0\1\r2\n[3]<stdout>:3\r4\n", 35));
  std::string bar;
  for (int i = 0; i < 100'000; ++i) bar += "\rstep " + std::to_string(i);
  CHECK(stored({bar, "\n"}) == "[3]<stdout>:step 99999\n");
}

TEST_CASE("A CR where a large read was cut waits for what follows") {
  const std::string line(LineTagger::kSmallWriteBytes, 'x');
  LineTagger tagger;
  std::string out;
  tagger.feed(line + "\r", kPrefix, out);
  CHECK(out.empty());
  tagger.feed("\nb", kPrefix, out);
  CHECK(out == "[3]<stdout>:" + line + "\r\n");
  LineTagger other;
  out.clear();
  other.feed(line + "\r", kPrefix, out);
  other.feed("b\n", kPrefix, out);
  CHECK(out == "[3]<stdout>:" + line + "\r[3]<stdout>:b\n");
}

TEST_CASE("An LF does not join a CR that another stream's bytes followed") {
  LineTagger tagger;
  std::string out;
  tagger.feed("1%\r", kPrefix, out);
  tagger.interrupt();
  tagger.feed("\n2%\r", kPrefix, out);
  CHECK(out == "[3]<stdout>:1%\r[3]<stdout>:\n[3]<stdout>:2%\r");
  tagger.feed("\n", kPrefix, out);
  CHECK(out == "[3]<stdout>:1%\r[3]<stdout>:\n[3]<stdout>:2%\r\n");
}

TEST_CASE("The end of a stream says whether a newline is missing") {
  CHECK(tag({"a"}).unterminated);
  CHECK(tag({"a\r"}).unterminated);
  CHECK(tag({std::string(LineTagger::kSmallWriteBytes, 'x') + "\r"}).unterminated);
  CHECK_FALSE(tag({"a\n"}).unterminated);
  CHECK_FALSE(tag({"a\r", "\n"}).unterminated);
  LineTagger tagger;
  std::string out;
  tagger.feed("a\r", kPrefix, out);
  tagger.interrupt();  // the text in between ended that line already
  CHECK_FALSE(tagger.finish(kPrefix, out));
  CHECK_FALSE(tag({}).unterminated);
  CHECK(tag({""}).text.empty());
}

TEST_CASE("Any bytes pass") {
  const std::string bytes("\0\xff\xfe\x80 \x1b[31m", 9);
  CHECK(tag({bytes + "\n"}).text == "[3]<stdout>:" + bytes + "\n");
}

TEST_CASE("A line without an end comes out in pieces with one prefix") {
  LineTagger tagger;
  std::string out;
  const std::string chunk(300'000, 'y');
  for (int i = 0; i < 20; ++i) tagger.feed(chunk, kPrefix, out);
  CHECK(tagger.held_bytes() <= LineTagger::kMaxHeldBytes);
  CHECK(tagger.in_segment());
  tagger.feed("\nz\n", kPrefix, out);
  CHECK_FALSE(tagger.in_segment());
  CHECK(out.size() == 20 * chunk.size() + 3 + 2 * kPrefix.size());
  CHECK(out.substr(out.size() - 15) == "\n[3]<stdout>:z\n");
  CHECK(out.find("[3]", 1) == out.size() - 14);
}

TEST_CASE("Without a prefix the bytes are as they were, still by whole lines") {
  LineTagger tagger;
  std::string out;
  tagger.feed("a\nb", "", out);
  CHECK(out == "a\n");
  CHECK(tagger.finish("", out));
  CHECK(out == "a\nb");
}

TEST_CASE("Lines that the filter leaves out do not come out") {
  const auto filtered = [](const std::vector<std::string>& writes, const LineFilter& filter) {
    LineTagger tagger(Returns::kEndSegment, &filter);
    std::string out;
    for (const std::string& bytes : writes) tagger.feed(bytes, "0:", out);
    const bool unterminated = tagger.finish("0:", out);
    return out + (unterminated ? "..." : "");
  };
  const LineFilter shown = *LineFilter::parse({"loss=[0-9]+$"}, {});
  CHECK(filtered({"a\nloss=1\nloss=x\n"}, shown) == "0:loss=1\n");
  CHECK(filtered({"lo", "ss=", "1\r\nb\n"}, shown) == "0:loss=1\r\n");
  CHECK(filtered({"a", "b"}, shown).empty());
  CHECK(filtered({"loss=2"}, shown) == "0:loss=2...");
  const LineFilter hidden = *LineFilter::parse({}, {"WARN", "%"});
  CHECK(filtered({"a\nWARN b\nc\n"}, hidden) == "0:a\n0:c\n");
  CHECK(filtered({"1%\r", "2%\r", "\ndone\n"}, hidden) == "0:done\n");
  CHECK(filtered({std::string("x\0WARN\n", 7), "y\n"}, hidden) == "0:y\n");
  // The first piece of a long line decides.
  const std::string piece(LineTagger::kMaxHeldBytes + 1, 'x');
  CHECK(filtered({"WARN" + piece, piece, "end\nnext\n"}, hidden) == "0:next\n");
  CHECK(filtered({piece, "WARN\n"}, hidden) == "0:" + piece + "WARN\n");
}

TEST_CASE("A line that was shown before its end is shown to its end") {
  const LineFilter filter = *LineFilter::parse({}, {"secret"});
  LineTagger tagger(Returns::kEndSegment, &filter);
  std::string out;
  tagger.feed("name? ", "", out);
  CHECK(tagger.unfinished("") == "name? ");
  tagger.keep_unfinished();
  tagger.feed("secret\nsecret\n", "", out);
  CHECK(out == "name? secret\n");
  tagger.feed("a secret", "", out);
  CHECK(tagger.unfinished("").empty());
}

// The output, taken apart at the prefixes, is the input, however it was cut.
TEST_CASE("No byte is lost, added or moved, however the stream is cut") {
  std::mt19937 random(17);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (std::size_t k = random() % 200; k > 0; --k) text += "ab\r\n\0\r\n"[random() % 7];
    std::vector<std::string> writes;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = 1 + random() % 20;
      writes.push_back(text.substr(at, size));
      at += size;
    }
    const std::string out = tag(writes).text;
    std::string bytes;
    const std::string prefix(kPrefix);
    for (std::size_t at = 0; at < out.size();) {
      const bool at_prefix = out.compare(at, prefix.size(), prefix) == 0;
      // A prefix stands at the start and after each line end, nowhere else.
      const bool at_start =
          bytes.empty() || bytes.back() == '\n' || (bytes.back() == '\r' && out[at] != '\n');
      REQUIRE(at_prefix == at_start);
      if (at_prefix) at += prefix.size();
      bytes += out[at++];
    }
    CHECK(bytes == text);
    CHECK(tag({text}).text == out);
  }
}

TEST_CASE("Tagging speed", "[.benchmark]") {
  std::string text;
  while (text.size() < (64U << 10U)) text += std::string(99, 'x') + "\n";
  LineTagger tagger;
  std::string out;
  const auto start = Clock::now();
  std::size_t bytes = 0;
  for (int i = 0; i < 20'000; ++i) {
    out.clear();
    tagger.feed(text, kPrefix, out);
    bytes += text.size();
  }
  const std::chrono::duration<double> took = Clock::now() - start;
  WARN("lines of 100 bytes: " << static_cast<double>(bytes) / took.count() / 1e9 << " GB/s");
}

}  // namespace
}  // namespace hora::launcher
