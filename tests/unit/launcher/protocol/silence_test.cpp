// SPDX-License-Identifier: Apache-2.0
#include "launcher/protocol/silence.h"

#include "tests/support/catch.h"

using namespace hora::launcher;
using namespace std::chrono_literals;

namespace {

const Silence::TimePoint kStart{1h};

// Of a process that does the same all the time, by looks every 2 s.
SilenceEvidence after_looks(int looks, Standing standing) {
  Silence silence(kStart);
  auto now = kStart;
  for (int look = 0; look < looks; ++look) {
    now += 2s;
    silence.look(now, now, 2s, Pulse{standing, {}});
  }
  return silence.evidence(now);
}

}  // namespace

TEST_CASE("silence lasts since the last message of the peer") {
  Silence silence(kStart);
  silence.look(kStart + 2s, kStart + 2s, 2s);
  silence.look(kStart + 4s, kStart + 5s, 2s);  // a little late
  CHECK(silence.length(kStart + 5s) == 5s);
  silence.received(kStart + 6s);
  CHECK(silence.length(kStart + 7s) == 1s);
  CHECK(silence.last_received() == kStart + 6s);
}

TEST_CASE("time that this process slept does not count as silence of the peer") {
  Silence silence(kStart);
  silence.look(kStart + 2s, kStart + 62s, 2s);
  CHECK(silence.length(kStart + 62s) == 2s);
  CHECK(silence.last_received() == kStart);
  silence.look(kStart + 64s, kStart + 64s, 2s);
  CHECK(silence.length(kStart + 64s) == 4s);
  silence.look(kStart + 66s, kStart + 96s, 2s);
  CHECK(silence.length(kStart + 96s) == 6s);
  silence.received(kStart + 97s);
  CHECK(silence.length(kStart + 100s) == 3s);
}

TEST_CASE("who is always late finds out in the end") {
  Silence silence(kStart);
  auto now = kStart;
  for (int look = 0; look < 5; ++look) {
    const auto due = now + 2s;
    now += 12s;
    silence.look(due, now, 2s);
  }
  CHECK(silence.length(now) == 10s);
}

TEST_CASE("no time is excused twice") {
  Silence silence(kStart);
  silence.received(kStart + 60s);  // when it went on, before it looked
  silence.look(kStart + 2s, kStart + 61s, 2s);
  CHECK(silence.length(kStart + 61s) == 0s);
  CHECK(silence.length(kStart + 71s) == 10s);
}

TEST_CASE("who is lost, and who only has no time") {
  struct Row {
    Silence::Duration silence;
    std::optional<Standing> standing;
    Silence::Duration standing_for;
    Verdict verdict;
  };
  const auto row = GENERATE(
      // On another machine.
      Row{0s, {}, 0s, Verdict::kPresent}, Row{10s, {}, 0s, Verdict::kPresent},
      Row{11s, {}, 0s, Verdict::kLost},
      // A process on this machine that exists and is not stopped, however long it is silent.
      Row{9s, Standing::kAtWork, 9s, Verdict::kPresent},
      Row{11s, Standing::kAtWork, 11s, Verdict::kSlow},
      Row{1h, Standing::kAtWork, 1h, Verdict::kSlow},
      // Stopped, but not for that long: it had no time before that, or has just been stopped.
      Row{11s, Standing::kStopped, 0s, Verdict::kSlow},
      Row{1h, Standing::kStopped, 10s, Verdict::kSlow},
      Row{11s, Standing::kStopped, 11s, Verdict::kLost},
      // Stopped for long, but it has said something since.
      Row{1s, Standing::kStopped, 11s, Verdict::kPresent},
      // Gone: its stream may end between two looks.
      Row{1s, Standing::kGone, 1s, Verdict::kPresent},
      Row{11s, Standing::kGone, 0s, Verdict::kSlow}, Row{11s, Standing::kGone, 2s, Verdict::kLost});
  SilenceEvidence evidence;
  evidence.silence = row.silence;
  evidence.standing = row.standing;
  evidence.standing_for = row.standing_for;
  CHECK(judge(evidence, 10s) == row.verdict);
}

TEST_CASE(
    "a process is lost after it was seen stopped for a lease, at looks that follow each other") {
  CHECK(judge(after_looks(6, Standing::kStopped), 10s) == Verdict::kSlow);
  CHECK(judge(after_looks(7, Standing::kStopped), 10s) == Verdict::kLost);
  CHECK(judge(after_looks(1800, Standing::kAtWork), 10s) == Verdict::kSlow);

  Silence silence(kStart);
  auto now = kStart;
  for (int look = 0; look < 100; ++look) {  // stopped again and again
    now += 2s;
    const auto standing = look % 3 == 2 ? Standing::kAtWork : Standing::kStopped;
    silence.look(now, now, 2s, Pulse{standing, {}});
    CHECK(judge(silence.evidence(now), 10s) != Verdict::kLost);
  }
}

TEST_CASE("the time of a pause of both counts for neither") {
  Silence silence(kStart);
  silence.look(kStart + 2s, kStart + 2s, 2s, Pulse{Standing::kStopped, {}});
  silence.look(kStart + 4s, kStart + 64s, 2s, Pulse{Standing::kStopped, {}});
  const SilenceEvidence evidence = silence.evidence(kStart + 64s);
  CHECK(evidence.silence == 4s);
  CHECK(evidence.standing_for == 2s);
  CHECK(evidence.late == 60s);
}

TEST_CASE("a process that says something has not been stopped all the time") {
  Silence silence(kStart);
  silence.look(kStart + 2s, kStart + 2s, 2s, Pulse{Standing::kStopped, {}});
  silence.received(kStart + 3s);
  silence.look(kStart + 4s, kStart + 4s, 2s, Pulse{Standing::kStopped, {}});
  CHECK(silence.evidence(kStart + 4s).standing_for == 0s);
}

TEST_CASE("the evidence is described") {
  Silence silence(kStart);
  CHECK(describe(silence.evidence(kStart + 12s), "its agent (process 7)") ==
        "no sign of life for 12 s");
  silence.look(kStart + 2s, kStart + 2s, 2s, Pulse{Standing::kAtWork, 30s});
  silence.look(kStart + 4s, kStart + 6s, 2s, Pulse{Standing::kAtWork, 33s});
  CHECK(
      describe(silence.evidence(kStart + 6s), "its agent (process 7)") ==
      "no sign of life for 6 s: its agent (process 7) exists, and waited for a processor for 3 s; "
      "the process that reports this did not run for 2 s");
  silence.received(kStart + 7s);
  silence.look(kStart + 8s, kStart + 8s, 2s, Pulse{Standing::kStopped, 33s});
  silence.look(kStart + 10s, kStart + 10s, 2s, Pulse{Standing::kStopped, 33s});
  CHECK(describe(silence.evidence(kStart + 10s), "its agent (process 7)") ==
        "no sign of life for 3 s: its agent (process 7) has been stopped for 2 s (SIGSTOP, a "
        "debugger)");
  silence.look(kStart + 12s, kStart + 12s, 2s, Pulse{Standing::kGone, {}});
  CHECK(describe(silence.evidence(kStart + 12s), "it") == "no sign of life for 5 s: it has ended");
}
