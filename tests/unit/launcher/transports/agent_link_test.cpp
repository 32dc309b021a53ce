// SPDX-License-Identifier: Apache-2.0
// The link between a supervisor's socketpair and a remote command, the command played by the test.
#include "launcher/transports/agent_link.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <sstream>

#include "launcher/failures/failure_code.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/launcher/transports/shell_run.h"

namespace hora::launcher {
namespace {

using std::chrono::milliseconds;

Hello hello(const std::string& sha = "") {
  Hello message;
  message.agent_sha256 = sha;
  message.hostname = "b";
  return message;
}

std::string hello_frame(const std::string& sha = "") {
  return encode_frame(FrameType::kHello, encode(hello(sha)));
}

// One link on a loop that the test turns by hand.
struct Bench : AgentLink::Carrier {
  std::unique_ptr<os::EventLoop> loop;
  test::TemporaryDirectory folder;
  os::Fd supervisor;
  AgentPayloads payloads;
  std::unique_ptr<AgentLink> link;
  int changed = 0;
  int restarts = 0;
  int finished = 0;

  explicit Bench(const std::string& agent_bytes = "AGENT") {
    loop = std::move(os::EventLoop::create()).value();
    std::ofstream(folder.path() + "/agent") << agent_bytes;
    std::ofstream(folder.path() + "/agent.pdp10") << "an agent of 36 bits";
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    supervisor = os::Fd(ends[0]);
    AgentLinkOptions options;
    options.host = "host b";
    options.image.builds = {{"pdp11", folder.path() + "/agent", "abc", "", agent_bytes.size()},
                            {"pdp10", folder.path() + "/agent.pdp10", "def", "b10", 19}};
    options.payloads = &payloads;
    options.image.machines = "pdp11, pdp10";
    options.host_index = 7;
    options.lost_class = failure::kHostLost;
    options.shell_class = failure::kRemoteShell;
    link = std::make_unique<AgentLink>(*loop, os::Fd(ends[1]), options, *this);
    REQUIRE(link->open());
  }

  void link_changed() override { ++changed; }
  void link_restarts() override { ++restarts; }
  void link_finished() override { ++finished; }

  // Runs the loop until `done`, or for `limit` when it never comes.
  bool turn_until(const std::function<bool()>& done, milliseconds limit = milliseconds(5000)) {
    const auto deadline = Clock::now() + limit;
    std::function<void()> look = [&] {
      if (done() || Clock::now() >= deadline) return loop->stop();
      loop->call_after(milliseconds(1), look);
    };
    loop->post(look);
    REQUIRE(loop->run());
    return done();
  }
  void turn() {
    turn_until([n = 0]() mutable { return ++n > 3; });
  }

  std::string nonce() {
    auto line = link->command_line();
    REQUIRE(line);
    const auto at = line->find("' hora ");
    REQUIRE(at != std::string::npos);
    std::istringstream words(line->substr(at + 7));
    std::string nonce, force;
    words >> nonce >> force;
    forced = force == "1";
    return nonce;
  }
  bool forced = false;

  // All that the supervisor can read now.
  std::string received() {
    std::string all;
    char buffer[65536];
    ssize_t got;
    while ((got = ::recv(supervisor.get(), buffer, sizeof buffer, MSG_DONTWAIT)) > 0) {
      all.append(buffer, static_cast<std::size_t>(got));
    }
    at_end = got == 0;
    return all;
  }
  bool at_end = false;

  Failure failure() {
    std::string bytes = received();
    REQUIRE(bytes.substr(0, kAgentMagic.size()) == kAgentMagic);
    FrameReader reader;
    reader.feed(bytes.substr(kAgentMagic.size()));
    std::optional<Frame> last;
    while (true) {
      auto frame = reader.next();
      REQUIRE(frame);
      if (!*frame) break;
      last = **frame;
    }
    REQUIRE(last);
    REQUIRE(last->type == FrameType::kFailure);
    return *decode<Failure>(last->payload);
  }

  std::string take_outgoing() {
    std::string all;
    while (!link->outgoing().empty()) {
      all += link->outgoing();
      link->sent(link->outgoing().size());
    }
    return all;
  }

  void start() {
    link->on_remote_output(std::string(kAgentMagic) + hello_frame());
    turn();
    REQUIRE(link->agent_started());
    REQUIRE(received() == std::string(kAgentMagic) + hello_frame());
  }
};

RemoteEnd exited(int status) {
  RemoteEnd end;
  end.exit_status = status;
  return end;
}

TEST_CASE("noise is taken away, and an agent's bytes pass both ways") {
  Bench bench;
  REQUIRE(::send(bench.supervisor.get(), "early", 5, 0) == 5);
  bench.link->on_remote_output("Welcome!\n" + std::string(kAgentMagic));
  bench.turn();
  CHECK(bench.received().empty());  // nothing before Hello is whole
  CHECK(bench.link->outgoing().empty());
  const std::string frame = hello_frame();
  bench.link->on_remote_output(frame.substr(0, 7));
  CHECK(bench.received().empty());
  bench.link->on_remote_output(frame.substr(7) + "abc");
  CHECK(bench.received() == std::string(kAgentMagic) + frame + "abc");
  bench.turn();
  CHECK(bench.changed > 0);
  REQUIRE(::send(bench.supervisor.get(), "later", 5, 0) == 5);
  bench.turn();
  CHECK(bench.take_outgoing() == "earlylater");
  CHECK_FALSE(bench.link->wants_end_of_input());
}

TEST_CASE("the agent is sent when it is asked for, as it is or packed") {
  const std::string agent(300'000, 'a');
  for (const std::string form : {"raw", "gz"}) {
    Bench bench(agent);
    std::ofstream(bench.folder.path() + "/agent.gz") << test::run_program({"gzip"}, agent).out;
    bench.link->on_remote_output("HORA-" + bench.nonce() + " need " + form + " pdp11 /d\n");
    REQUIRE(bench.turn_until([&] { return !bench.link->outgoing().empty(); }));
    const std::string sent = bench.take_outgoing();
    const auto line_end = sent.find('\n');
    const std::string bytes = sent.substr(line_end + 1);
    CHECK(sent.substr(0, line_end) == form + " " + std::to_string(bytes.size()));
    if (form == "raw") {
      CHECK(bytes == agent);
    } else {
      CHECK(test::run_program({"gzip", "-dc"}, bytes).out == agent);
    }
    bench.link->on_remote_output(std::string(kAgentMagic) + hello_frame("abc"));
    CHECK(bench.link->agent_started());
  }
}

TEST_CASE("a host is sent the agent for its processor") {
  Bench bench;
  CHECK(bench.link->command_line()->find(" pdp11 abc 5 - pdp10 def 19 b10 -") != std::string::npos);
  bench.link->on_remote_output("HORA-" + bench.nonce() + " need raw pdp10 /d\n");
  REQUIRE(bench.turn_until([&] { return !bench.link->outgoing().empty(); }));
  CHECK(bench.take_outgoing() == "raw 19\nan agent of 36 bits");
  bench.link->on_remote_output(std::string(kAgentMagic) + hello_frame("def"));
  CHECK(bench.link->agent_started());
}

TEST_CASE("a host that cannot name its processor gets the agent for ours") {
  Bench bench;
  bench.link->on_remote_output("HORA-" + bench.nonce() + " need raw  /d\n");
  REQUIRE(bench.turn_until([&] { return !bench.link->outgoing().empty(); }));
  CHECK(bench.take_outgoing() == "raw 5\nAGENT");
}

TEST_CASE("a processor without a build has a failure of its own") {
  const std::string said = GENERATE("need raw vax /d", "machine vax");
  Bench bench;
  bench.link->on_remote_output("HORA-" + bench.nonce() + " " + said + "\n");
  const Failure failure = bench.failure();
  CHECK(failure.code == "E_PROCESSOR");
  CHECK(failure.subject == "host b");
  CHECK(failure.message ==
        "its processor is vax, and this installation has builds for pdp11, pdp10 only");
  CHECK(failure.advice.find("scripts/build release --arch vax") != std::string::npos);
}

TEST_CASE("a cached agent that ends at once is replaced, once") {
  Bench bench;
  const std::string first = bench.nonce();
  CHECK_FALSE(bench.forced);
  bench.link->on_remote_end(exited(139));
  bench.link->on_remote_output("late words of the old command");
  REQUIRE(bench.turn_until([&] { return bench.restarts == 1; }));
  CHECK(bench.nonce() != first);
  CHECK(bench.forced);
  bench.link->on_remote_errors("no such thing\n");
  bench.link->on_remote_end(exited(127));
  const auto failure = bench.failure();
  CHECK(failure.code == failure::kRemoteShell);
  CHECK(failure.message.find("status 127") != std::string::npos);
  CHECK(failure.message.find("no such thing") != std::string::npos);
  CHECK(failure.message.find("late words") == std::string::npos);
  REQUIRE(bench.turn_until([&] { return bench.finished == 1; }));
  bench.received();
  CHECK(bench.at_end);
}

TEST_CASE("an agent that is not what its name says is replaced, once") {
  Bench bench;
  bench.link->on_remote_output(std::string(kAgentMagic) + hello_frame("other"));
  REQUIRE(bench.turn_until([&] { return bench.restarts == 1; }));
  CHECK(bench.received().empty());
  bench.link->on_remote_output(std::string(kAgentMagic) + hello_frame("another"));
  CHECK(bench.failure().code == failure::kAgent);
}

TEST_CASE("a host without a fit directory") {
  Bench bench;
  const std::string marker = "HORA-" + bench.nonce();
  bench.link->on_remote_output(marker + " unfit full /a\n");
  SECTION("for more reasons than one") {
    bench.link->on_remote_output(marker + " unfit write /is full\n" + marker + " fail\n");
    const auto failure = bench.failure();
    CHECK(failure.code == failure::kCache);
    CHECK(failure.message.find("/a is full; /is full cannot be written") != std::string::npos);
  }
  SECTION("for lack of space") {
    bench.link->on_remote_output(marker + " unfit create /noexec\n" + marker + " fail\n");
    CHECK(bench.failure().code == failure::kDiskFull);
  }
}

TEST_CASE("a connection that breaks before the agent spoke is not tried again") {
  Bench bench;
  RemoteEnd end;
  end.link_error = "reset";
  bench.link->on_remote_end(end);
  CHECK(bench.failure().code == failure::kHostLost);
  CHECK(bench.restarts == 0);
}

TEST_CASE("the end of an agent that said good-bye is just the end") {
  Bench bench;
  bench.start();
  const std::string last = encode_frame(FrameType::kGoodbye, encode(Goodbye{}));
  bench.link->on_remote_output(last);
  bench.link->on_remote_end(exited(0));
  CHECK(bench.received() == last);
  CHECK(bench.at_end);
  CHECK(bench.turn_until([&] { return bench.finished == 1; }));
}

TEST_CASE("the end of one that did not comes with the reason, behind a whole frame") {
  Bench bench;
  bench.start();
  SECTION("between frames") {
    bench.link->on_remote_output(encode_frame(FrameType::kOutput, "xyz"));
    bench.link->on_remote_errors("I was a teapot");
    RemoteEnd end;
    end.signal = "SEGV";
    bench.link->on_remote_end(end);
    const std::string all = bench.received();
    FrameReader reader;
    reader.feed(all);
    CHECK((**reader.next()).type == FrameType::kOutput);
    auto last = decode<Failure>((**reader.next()).payload);
    REQUIRE(last);
    CHECK(last->code == failure::kHostLost);
    CHECK(last->message.find("SEGV") != std::string::npos);
    CHECK(last->message.find("teapot") != std::string::npos);
  }
  SECTION("in the middle of one, nothing is added") {
    const std::string part = encode_frame(FrameType::kOutput, "xyz").substr(0, 6);
    bench.link->on_remote_output(part);
    bench.link->on_remote_end(exited(1));
    CHECK(bench.received() == part);
  }
  CHECK(bench.at_end);
}

TEST_CASE("a supervisor that does not read stops the flow, and loses nothing") {
  Bench bench;
  bench.start();
  std::string sent;
  int pieces = 0;
  while (bench.link->room() > 0) {
    REQUIRE(++pieces < 1000);
    const std::string piece =
        encode_frame(FrameType::kData, std::string(10'000, char('a' + pieces % 26)));
    bench.link->on_remote_output(piece);
    sent += piece;
  }
  CHECK(sent.size() < 1'000'000);
  std::string got;
  bench.changed = 0;
  REQUIRE(bench.turn_until([&] {
    got += bench.received();
    return got.size() == sent.size();
  }));
  CHECK(got == sent);
  CHECK(bench.link->room() > 0);
  CHECK(bench.changed > 0);  // the carrier was notified that there is room again
}

TEST_CASE("a remote end that does not read stops the flow the other way") {
  Bench bench;
  bench.start();
  const std::string piece(64 * 1024, 'p');
  std::size_t sent = 0;
  for (int quiet = 0; quiet < 5;) {
    const ssize_t wrote = ::send(bench.supervisor.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (wrote > 0) sent += static_cast<std::size_t>(wrote);
    quiet = wrote > 0 ? 0 : quiet + 1;
    bench.turn();
    REQUIRE(sent < 10'000'000);
  }
  std::size_t got = 0;
  REQUIRE(bench.turn_until([&] {
    got += bench.take_outgoing().size();
    return got == sent;
  }));
}

TEST_CASE("what the supervisor wrote before it closed its end is delivered") {
  Bench bench;
  bench.start();
  REQUIRE(::send(bench.supervisor.get(), "last words", 10, 0) == 10);
  bench.supervisor.reset();
  REQUIRE(bench.turn_until([&] { return bench.link->outgoing() == "last words"; }));
  CHECK(bench.finished == 0);
  bench.link->sent(10);
  CHECK(bench.turn_until([&] { return bench.finished == 1; }));
}

TEST_CASE("a supervisor that closes during the start ends it") {
  Bench bench;
  bench.supervisor.reset();
  CHECK(bench.turn_until([&] { return bench.finished == 1; }));
}

TEST_CASE("a half-closed supervisor still reads the agent's output to its end") {
  Bench bench;
  bench.start();
  REQUIRE(::shutdown(bench.supervisor.get(), SHUT_WR) == 0);
  REQUIRE(bench.turn_until([&] { return bench.link->wants_end_of_input(); }));
  bench.link->on_remote_output(encode_frame(FrameType::kGoodbye, encode(Goodbye{})));
  bench.link->on_remote_end(exited(0));
  CHECK_FALSE(bench.received().empty());
  CHECK(bench.turn_until([&] { return bench.finished == 1; }));
}

}  // namespace
}  // namespace hora::launcher
