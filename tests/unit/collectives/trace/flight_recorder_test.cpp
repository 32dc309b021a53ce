// SPDX-License-Identifier: Apache-2.0
#include "collectives/trace/flight_recorder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "rendezvous/os/fd.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::collectives;
using rendezvous::FlightPage;

namespace {

// Pages as the agent makes them.
class Pages {
 public:
  explicit Pages(int count) : fd_(::memfd_create("flight", MFD_CLOEXEC)) {
    const FlightPage page{.magic = rendezvous::kFlightMagic};
    for (int i = 0; i < count; ++i) {
      REQUIRE(::pwrite(fd_.get(), &page, sizeof page, i * static_cast<off_t>(sizeof page)) ==
              static_cast<ssize_t>(sizeof page));
    }
    path_ = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd_.get());
  }
  const std::string& path() const { return path_; }
  std::string read(int page) const {
    std::string bytes(sizeof(FlightPage), '\0');
    REQUIRE(::pread(fd_.get(), bytes.data(), bytes.size(),
                    page * static_cast<off_t>(sizeof(FlightPage))) ==
            static_cast<ssize_t>(bytes.size()));
    return bytes;
  }

 private:
  os::Fd fd_;
  std::string path_;
};

Response response_for(const std::string& name) {
  Response response;
  response.agreed.action = Action::kAllreduce;
  response.agreed.name = name;
  return response;
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("flight recorder: records the state of the rank") {
  Pages pages(3);
  CHECK(rendezvous::describe_flight(pages.read(1), now_ns()).empty());
  FlightRecorder recorder;
  recorder.open(pages.path(), 1, 7);
  const auto reported = [&](std::int64_t later_ns = 0) {
    return rendezvous::describe_flight(pages.read(1), now_ns() + later_ns);
  };
  CHECK(rendezvous::flight_rank(pages.read(1)) == 7);
  CHECK_FALSE(rendezvous::flight_rank(pages.read(0)));
  CHECK(contains(reported(3'000'000'000), "was connecting to the other ranks for 3.0 s"));
  recorder.joined(0b101);
  CHECK(reported() == "had joined the job and run no collective yet");

  const Response first = response_for("grad/7");
  recorder.taken(first.agreed, Clock::now());
  CHECK(contains(reported(2'100'000'000),
                 "had waited for other ranks in allreduce 'grad/7' for 2.1 s"));
  for (int i = 0; i < 3; ++i) {  // others come and go meanwhile
    const Response other = response_for("other");
    recorder.taken(other.agreed, Clock::now());
    const Response* const response = &other;
    recorder.agreed({&response, 1}, Clock::now());
  }
  CHECK(contains(reported(), "had waited for other ranks in allreduce 'grad/7' for 0.0"));
  const Response* const response = &first;
  recorder.agreed({&response, 1}, Clock::now());
  const Response second = response_for("grad/8");
  const Response* const step[] = {&first, &second};
  recorder.step_begins(0, step, Clock::now());
  CHECK(contains(reported(5'000'000'000), "was in allreduce 'grad/7' and 1 more for 5.0 s"));
  {
    const auto standing = rendezvous::read_flight(pages.read(1), now_ns() + 5'000'000'000);
    REQUIRE(standing);
    CHECK(standing->process_sets == 0b101);
    REQUIRE(standing->operations.size() == 1);
    CHECK(standing->operations[0].running);
    CHECK(standing->operations[0].text == "allreduce 'grad/7' and 1 more");
    CHECK(standing->operations[0].for_ns >= 5'000'000'000);
    CHECK(standing->last.empty());
  }
  recorder.step_ends(0, Clock::now());
  CHECK(rendezvous::read_flight(pages.read(1), now_ns())->last == "allreduce 'grad/7' and 1 more");
  CHECK(contains(reported(1'000'000'000),
                 "was in no collective; its last, allreduce 'grad/7' and 1 more, had ended 1.0 s"));
  recorder.world_ended();
  CHECK(reported().empty());
}

TEST_CASE("flight recorder: how long a rank has waited for the others, and what it has done") {
  using namespace std::chrono_literals;
  Pages pages(1);
  CHECK_FALSE(rendezvous::flight_counters(pages.read(0), now_ns()));
  FlightRecorder recorder;
  recorder.open(pages.path(), 0, 0);
  recorder.joined(1);
  const auto start = Clock::now();
  const auto counters = [&](Clock::duration later = 0s) {
    const auto now = std::chrono::nanoseconds((start + later).time_since_epoch()).count();
    return *rendezvous::flight_counters(pages.read(0), now);
  };
  CHECK(counters().waited_ns == 0);
  CHECK(counters().last_ended_ns == -1);

  // Two requests wait together from 0 s to 3 s; one of them to 5 s. That is 5 s.
  Response first = response_for("first");
  first.agreed.dtype = HORA_FLOAT32;
  first.agreed.shape = {3};
  const Response second = response_for("second");
  recorder.taken(first.agreed, start);
  recorder.taken(second.agreed, start + 1s);
  CHECK(counters(2s).waited_ns == 2'000'000'000);  // it still waits
  const Response* const response[] = {&first, &second};
  recorder.agreed({response, 1}, start + 3s);
  CHECK(counters(4s).waited_ns == 4'000'000'000);
  recorder.agreed({response + 1, 1}, start + 5s);
  CHECK(counters(9s).waited_ns == 5'000'000'000);

  recorder.step_begins(0, {response, 1}, start + 5s);
  recorder.step_ends(0, start + 6s);
  CHECK(counters(9s).collectives == 1);
  CHECK(counters(9s).bytes == 12);
  CHECK(counters(9s).last_ended_ns == 3'000'000'000);

  // Submitted before the last agreement: that time has been counted.
  recorder.taken(first.agreed, start + 4s);
  recorder.agreed({response, 1}, start + 7s);
  CHECK(counters(9s).waited_ns == 7'000'000'000);

  // Other process sets do not count: not all ranks are in them.
  Response other = response_for("other");
  other.agreed.process_set = 1;
  recorder.taken(other.agreed, start + 7s);
  const Response* const of_set = &other;
  recorder.agreed({&of_set, 1}, start + 8s);
  CHECK(counters(9s).waited_ns == 7'000'000'000);

  recorder.ran_at_once(first.agreed, start + 8s);
  recorder.ran_at_once(first.agreed, start + 8s);
  recorder.ran_at_once(Request{}, start + 8s);  // a barrier
  CHECK(counters(9s).collectives == 4);
  CHECK(counters(9s).bytes == 36);
  CHECK(counters(9s).last_ended_ns == 1'000'000'000);
}

TEST_CASE("flight recorder: many steps, and names of any length and content") {
  Pages pages(1);
  FlightRecorder recorder;
  recorder.open(pages.path(), 0, 0);
  recorder.joined(1);
  for (int i = 0; i < 1000; ++i) {
    const Response response = response_for("n" + std::to_string(i) + std::string(200, '\x1b'));
    const Response* const step[] = {&response};
    recorder.taken(response.agreed, Clock::now());
    recorder.agreed(step, Clock::now());
    recorder.step_begins(0, step, Clock::now());
    if (i < 999) recorder.step_ends(0, Clock::now());
  }
  const std::string text = rendezvous::describe_flight(pages.read(0), now_ns());
  CHECK(contains(text, "was in allreduce 'n999????"));
  CHECK(text.size() < 140);
}

TEST_CASE("flight recorder: of several steps under way, the one that has lasted longest") {
  Pages pages(1);
  FlightRecorder recorder;
  recorder.open(pages.path(), 0, 0);
  recorder.joined(1);
  const auto reported = [&] { return rendezvous::describe_flight(pages.read(0), now_ns()); };
  const auto begin = [&](int place, const std::string& name) {
    const Response response = response_for(name);
    const Response* const step[] = {&response};
    recorder.step_begins(place, step, Clock::now());
  };
  begin(0, "first");
  begin(1, "second");
  recorder.step_ends(1, Clock::now());
  CHECK(contains(reported(), "was in allreduce 'first'"));
  begin(1, "third");
  recorder.step_ends(0, Clock::now());
  CHECK(contains(reported(), "was in allreduce 'third'"));
  CHECK(rendezvous::read_flight(pages.read(0), now_ns())->operations.size() == 1);
  recorder.step_ends(1, Clock::now());
  CHECK(contains(reported(), "was in no collective; its last, allreduce 'third'"));
  // Steps that have ended since take the note of one that lasts: its end touches none of theirs.
  begin(0, "long");
  for (std::size_t i = 0; i < rendezvous::kFlightSteps; ++i) {
    begin(1, "short");
    if (i + 1 < rendezvous::kFlightSteps) recorder.step_ends(1, Clock::now());
  }
  recorder.step_ends(0, Clock::now());
  CHECK(contains(reported(), "was in allreduce 'short'"));
}

TEST_CASE("flight recorder: a note that was being written is passed over") {
  Pages pages(1);
  FlightRecorder recorder;
  recorder.open(pages.path(), 0, 0);
  recorder.joined(1);
  const Response response = response_for("whole");
  const Response* const step[] = {&response};
  recorder.step_begins(0, step, Clock::now());
  std::string bytes = pages.read(0);
  FlightPage page;
  std::memcpy(&page, bytes.data(), sizeof page);
  page.steps[1].stamp = page.steps[0].stamp + 3;
  std::memset(page.steps[1].name, 'x', sizeof page.steps[1].name);
  std::memcpy(bytes.data(), &page, sizeof page);
  CHECK(contains(rendezvous::describe_flight(bytes, now_ns()), "was in allreduce 'whole'"));
  CHECK(rendezvous::describe_flight("short", 0).empty());
  CHECK(rendezvous::describe_flight(std::string(sizeof(FlightPage), '\xff'), 0).empty());
}

TEST_CASE("flight recorder: what cannot be the agent's file is not touched") {
  FlightRecorder recorder;
  recorder.open("/nowhere", 0, 0);
  recorder.open("/dev/null", 0, 0);
  Pages pages(1);
  recorder.open(pages.path(), 1, 0);  // after its end
  const Response response = response_for("x");
  const Response* const step[] = {&response};
  recorder.taken(response.agreed, Clock::now());
  recorder.step_begins(0, step, Clock::now());
  recorder.step_ends(0, Clock::now());
  CHECK_FALSE(rendezvous::flight_rank(pages.read(0)));
}

TEST_CASE("flight recorder: survives the SIGKILL of its writer") {
  Pages pages(1);
  int ready[2];
  REQUIRE(::pipe2(ready, O_CLOEXEC) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    FlightRecorder recorder;
    recorder.open(pages.path(), 0, 3);
    recorder.joined(1);
    const Response response = response_for("last words");
    const Response* const step[] = {&response};
    recorder.step_begins(0, step, Clock::now());
    [[maybe_unused]] const ssize_t reported = ::write(ready[1], "x", 1);
    while (true) ::pause();
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  REQUIRE(::kill(child, SIGKILL) == 0);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK(rendezvous::flight_rank(pages.read(0)) == 3);
  CHECK(contains(rendezvous::describe_flight(pages.read(0), now_ns()),
                 "was in allreduce 'last words'"));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("flight recorder: who leaves first") {
  const Pages pages(1);
  FlightRecorder recorder;
  recorder.open(pages.path(), 0, 7);
  const auto left_for = [&] { return rendezvous::left_for_ns(pages.read(0), now_ns()); };
  recorder.joined(1);
  CHECK(!left_for());
  const auto before = now_ns();
  recorder.asks_to_leave();
  recorder.world_ended();
  REQUIRE(left_for());
  CHECK(*left_for() <= now_ns() - before);
  // Another one asked earlier, as rank 0 has found.
  recorder.others_left();
  CHECK(!left_for());
  recorder.asks_to_leave();
  CHECK(!left_for());
}
