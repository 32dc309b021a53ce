// SPDX-License-Identifier: Apache-2.0
// The script runs for real in tests/integration/engines.
#include "launcher/step/step_words.h"

#include "tests/support/catch.h"

namespace hora::launcher {
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
  CHECK(guard_patience(made) == std::chrono::seconds(65));
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
  const auto steering = parse_step_line("abc", "HORA-abc failed n1 \x1b[1m");
  REQUIRE(steering);
  CHECK(std::get<StepFailure>(*steering).why == "?[1m");
  // Behind what a shell has printed without an end of line.
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
