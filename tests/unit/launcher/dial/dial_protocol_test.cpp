// SPDX-License-Identifier: Apache-2.0
#include "launcher/dial/dial_protocol.h"

#include <utility>
#include <vector>

#include "rendezvous/base/little_endian.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

const std::string kSecret = std::string(64, 'a') + std::string(32, 'b');

TEST_CASE("A URL to join says where the launcher is and how to know it") {
  const JoinUrl url{std::string(64, 'a'),
                    std::string(32, 'b'),
                    {{"10.0.0.1", 4711}, {"fe80::1", 1}, {"head.example", 65535}}};
  const std::string text = "hora://" + kSecret + "@10.0.0.1:4711,[fe80::1]:1,head.example:65535";
  CHECK(format_join_url(url) == text);
  CHECK(*parse_join_url(text) == url);
  CHECK(*parse_join_url("  " + text + "\r\n") == url);
}

TEST_CASE("What is no URL to join is refused, and the secret is not repeated") {
  for (const std::string& text :
       {std::string(), std::string("hora://"), std::string("http://a"), "hora://" + kSecret,
        "hora://" + kSecret.substr(1) + "@a:1", "hora://" + kSecret.substr(2) + "@a:1",
        "hora://" + kSecret + "0@a:1", "hora://" + std::string(96, 'g') + "@a:1",
        "hora://" + kSecret + "@", "hora://" + kSecret + "@a", "hora://" + kSecret + "@:1",
        "hora://" + kSecret + "@a:0", "hora://" + kSecret + "@a:65536",
        "hora://" + kSecret + "@a:1,", "hora://" + kSecret + "@[]:1",
        "hora://" + kSecret + "@[[a]]:1", "hora://" + kSecret + "@[a:1"}) {
    const auto parsed = parse_join_url(text);
    INFO(text);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().code == ErrorCode::kUsage);
    CHECK(parsed.error().message.find("aaaa") == std::string::npos);
    CHECK(parsed.error().message.find("bbbb") == std::string::npos);
  }
}

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

// The script runs for real in tests/integration/engines.

namespace {

EngineStep engine() {
  EngineStep step;
  step.start = {"start", "--n={count}", "--list={hosts}"};
  step.copy = {"copy", "--to={step}", "{from}", "{to}"};
  step.step_text = "$STEP";
  step.host_text = "$HOST";
  step.launcher_text = "$LAUNCHER";
  return step;
}

StepRequest request() {
  StepRequest request;
  request.nonce = "abc";
  request.machine = "x86_64";
  request.files = {{"/helper", "11", 5}, {"/the agent", "22", 7}};
  request.hosts = {Host{"a", "", 1}, Host{"b", "", 2}};
  return request;
}

TEST_CASE("step words: the command") {
  const auto command = step_command(engine(), request());
  REQUIRE(command);
  const std::vector<std::string> front(command->begin(), command->begin() + 5);
  CHECK(front == std::vector<std::string>{"start", "--n=2", "--list=a,b", "/bin/sh", "-c"});
  CHECK((*command)[5].starts_with("_n=$HOST _i=$STEP _l=$LAUNCHER _v=; "));
  const std::vector<std::string> rest(command->begin() + 6, command->end());
  CHECK(rest ==
        std::vector<std::string>{"hora", "abc", "x86_64", "/tmp/.hora-abc-", "11", "5", "22", "7"});
}

TEST_CASE("step words: a host that would be an option, or several") {
  for (const char* name : {"-x", "a,b", "a b", "a[1-2]", ""}) {
    StepRequest wrong = request();
    wrong.hosts[1].name = name;
    const auto command = step_command(engine(), wrong);
    REQUIRE_FALSE(command);
    CHECK(command.error().code == ErrorCode::kUsage);
  }
}

TEST_CASE("step words: the guard of the command") {
  StepRequest made = request();
  made.grace = std::chrono::seconds(60);
  CHECK(guard_timeout(made) == std::chrono::seconds(65));
}

TEST_CASE("step words: a copy") {
  CHECK(copy_command(engine(), request(), 1, "12.0") ==
        std::vector<std::string>{"copy", "--to=12.0", "/the agent", "/tmp/.hora-abc-1"});
  // A value is not searched for another one's place.
  StepRequest odd = request();
  odd.files[0].path = "/x/{to}";
  CHECK(copy_command(engine(), odd, 0, "1.0")[2] == "/x/{to}");
}

TEST_CASE("step words: what tasks say") {
  const auto need = parse_step_line("abc", "HORA-abc need 12.0\r");
  REQUIRE(need);
  CHECK(std::get<StepNeed>(*need).step == "12.0");
  const auto failure = parse_step_line("abc", step_failure("abc", "n1", "no\nway"));
  REQUIRE(failure);
  CHECK(std::get<StepFailure>(*failure).host == "n1");
  CHECK(std::get<StepFailure>(*failure).why == "no way");
  CHECK(step_failure("abc", "n1", "no\nway") == "HORA-abc failed n1 no way\n");
  const auto steering = parse_step_line("abc", "HORA-abc failed n1 \x1b[1A");
  REQUIRE(steering);
  CHECK(std::get<StepFailure>(*steering).why == "?[1A");
  // After the output of a shell without an end of line.
  CHECK(parse_step_line("abc", "motd HORA-abc need 1.2"));
  for (const char* line : {"", "hello", "HORA-abd need 12.0", "HORA-abc need",
                           "HORA-abc need --all", "HORA-abc need 1 2", "HORA-abc other 1"}) {
    CHECK_FALSE(parse_step_line("abc", line));
  }
}

TEST_CASE("step words: in a folder that all hosts see") {
  EngineStep shared = engine();
  shared.folder = "/home/me/.cache/hora";
  shared.setup = "exec >/dev/null";
  const auto command = step_command(shared, request());
  REQUIRE(command);
  CHECK((*command)[5].starts_with("_n=$HOST _i=$STEP _l=$LAUNCHER _v=words; exec >/dev/null; "));
  CHECK((*command)[9] == "/home/me/.cache/hora/.ship-abc-");
  CHECK(step_words_file((*command)[9]) == "/home/me/.cache/hora/.ship-abc-words");
  // A task that needs a file reads past the first line; one that does not, finds the address first.
  CHECK(step_words_text("hora://x") == "hora://x\nsent\nhora://x\n");
}

}  // namespace
}  // namespace hora::launcher
