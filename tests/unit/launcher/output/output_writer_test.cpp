// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/output_writer.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "launcher/output/console.h"
#include "rendezvous/os/fd.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;
using namespace std::chrono_literals;

namespace {

struct Pipe {
  os::Fd reader, writer;
  Pipe() {
    int fds[2];
    REQUIRE(::pipe2(fds, O_CLOEXEC) == 0);
    reader = os::Fd(fds[0]);
    writer = os::Fd(fds[1]);
  }
};

}  // namespace

TEST_CASE("text arrives in order, credit comes back, flush is last") {
  auto loop = std::move(*os::EventLoop::create());
  Pipe pipe;
  std::size_t credit = 0;
  const auto wake = GENERATE(OutputWriter::Wake::kAtOnce, OutputWriter::Wake::kAtEndOfTurn);
  OutputWriter writer(*loop, wake,
                      {[&](int host, std::size_t bytes) {
                         REQUIRE(host == 3);
                         credit += bytes;
                       },
                       [](int, int) { FAIL("nothing is broken"); }});
  std::string expected;
  for (int i = 0; i < 1000; ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    expected += line;
    writer.write(pipe.writer.get(), line, 3, line.size());
  }
  bool flushed = false;
  writer.flush([&] {
    flushed = true;
    loop->stop();
  });
  std::string got;
  std::thread reader([&] {
    char chunk[512];
    while (got.size() < expected.size()) {
      const ssize_t n = ::read(pipe.reader.get(), chunk, sizeof chunk);
      if (n <= 0) break;
      got.append(chunk, static_cast<std::size_t>(n));
    }
  });
  loop->call_after(20s, [&] { loop->stop(); });
  REQUIRE(loop->run());
  reader.join();
  REQUIRE(flushed);
  REQUIRE(got == expected);
  REQUIRE(credit == expected.size());
}

TEST_CASE("a broken reader is reported once, and credit still comes back") {
  ::signal(SIGPIPE, SIG_IGN);
  auto loop = std::move(*os::EventLoop::create());
  Pipe pipe;
  pipe.reader.reset();
  int broken = 0;
  std::size_t credit = 0;
  OutputWriter writer(*loop, OutputWriter::Wake::kAtOnce,
                      {[&](int, std::size_t bytes) { credit += bytes; },
                       [&](int fd, int error) {
                         REQUIRE(fd == pipe.writer.get());
                         REQUIRE(error == EPIPE);
                         ++broken;
                       }});
  for (int i = 0; i < 10; ++i) writer.write(pipe.writer.get(), "x", 0, 1);
  writer.flush([&] { loop->stop(); });
  loop->call_after(20s, [&] { loop->stop(); });
  REQUIRE(loop->run());
  REQUIRE(broken == 1);
  REQUIRE(credit == 10);
}

TEST_CASE("an error on closing a file is reported once, after what was written") {
  auto loop = std::move(*os::EventLoop::create());
  const os::Fd target(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  const int gone = ::fcntl(target.get(), F_DUPFD_CLOEXEC, 0);
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  std::vector<std::pair<int, int>> broken;
  OutputWriter writer(
      *loop, OutputWriter::Wake::kAtOnce,
      {[](int, std::size_t) {}, [&](int fd, int errnum) { broken.emplace_back(fd, errnum); }});
  writer.write(full, "x", 0, 1);
  writer.close(os::Fd(full));  // is known to be broken already
  ::close(gone);
  writer.close(os::Fd(gone));  // a close that fails, as that of a network file system may
  writer.settle(target.get());
  writer.settle(-1);  // of a stream that was never open
  writer.flush([&] { loop->stop(); });
  loop->call_after(20s, [&] { loop->stop(); });
  REQUIRE(loop->run());
  REQUIRE(broken == std::vector<std::pair<int, int>>{{full, ENOSPC}, {gone, EBADF}});
  REQUIRE(::fcntl(target.get(), F_GETFD) >= 0);
}

TEST_CASE("threads speak to one console at once, and each line stays whole") {
  auto loop = std::move(*os::EventLoop::create());
  Pipe pipe;
  Console console(*loop, pipe.writer.get());
  constexpr int kThreads = 4;
  constexpr int kLines = 500;
  std::vector<std::thread> speakers;
  std::atomic<int> speaking = kThreads;
  for (int each = 0; each < kThreads; ++each) {
    speakers.emplace_back([&, each] {
      for (int i = 0; i < kLines; ++i) {
        console.say(std::to_string(each) + ":" + std::to_string(i) + "\n");
      }
      if (--speaking == 0) loop->post([&] { console.flush([&] { loop->stop(); }); });
    });
  }
  std::vector<int> next(kThreads, 0);
  std::thread reader([&] {
    std::string got;
    char chunk[4096];
    for (int lines = 0; lines < kThreads * kLines;) {
      const ssize_t n = ::read(pipe.reader.get(), chunk, sizeof chunk);
      if (n <= 0) break;
      got.append(chunk, static_cast<std::size_t>(n));
      for (std::size_t end; (end = got.find('\n')) != std::string::npos; ++lines) {
        const std::string line = got.substr(0, end);
        got.erase(0, end + 1);
        const int who = line.empty() ? -1 : line[0] - '0';
        const bool known = who >= 0 && who < kThreads;
        if (!known || line != std::to_string(who) + ":" + std::to_string(next[who])) return;
        ++next[who];
      }
    }
  });
  loop->call_after(20s, [&] { loop->stop(); });
  REQUIRE(loop->run());
  for (std::thread& speaker : speakers) speaker.join();
  pipe.writer.reset();
  reader.join();
  REQUIRE(next == std::vector<int>(kThreads, kLines));
}

TEST_CASE("a console says the begin of what is too long for it") {
  auto loop = std::move(*os::EventLoop::create());
  Pipe pipe;
  Console console(*loop, pipe.writer.get());
  std::string got;
  std::thread reader([&] {
    char chunk[65536];
    while (got.find("left out)\n") == std::string::npos) {
      const ssize_t n = ::read(pipe.reader.get(), chunk, sizeof chunk);
      if (n <= 0) break;
      got.append(chunk, static_cast<std::size_t>(n));
    }
  });
  console.say(std::string(60'000'000, 'x'));
  console.flush([&] { loop->stop(); });
  REQUIRE(loop->run());
  pipe.writer.reset();
  reader.join();
  CHECK(got.substr(0, 3) == "xxx");
  CHECK(got.size() <= Console::kMostHeld);
  CHECK(console.loss().empty());
}

TEST_CASE("a console knows what it has lost, and why") {
  auto loop = std::move(*os::EventLoop::create());
  const auto say = [&](int fd) {
    Console console(*loop, fd);
    console.say("a word\n");
    std::string loss;
    console.flush([&] {
      loss = console.loss();
      loop->stop();
    });
    REQUIRE(loop->run());
    return loss;
  };
  const os::Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  CHECK(say(full.get()) == "No space left on device");
  const os::Fd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  CHECK(say(null.get()).empty());
  ::signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  pipe.reader.reset();
  CHECK(say(pipe.writer.get()).empty());  // a reader that has gone wants no more
}

TEST_CASE("a reader that never reads does not keep the writer from ending") {
  auto loop = std::move(*os::EventLoop::create());
  Pipe pipe;
  auto writer = std::make_unique<OutputWriter>(
      *loop, OutputWriter::Wake::kAtOnce,
      OutputWriter::Handlers{[](int, std::size_t) {}, [](int, int) {}});
  writer->write(pipe.writer.get(), std::string(1 << 20, 'x'), 0, 0);
  // Wait until the pipe is full: the thread blocks, or is about to.
  char byte;
  REQUIRE(::read(pipe.reader.get(), &byte, 1) == 1);
  writer.reset();  // would hang here
  SUCCEED();
}

TEST_CASE("a console buffers a limited amount for its reader, and says what is missing") {
  auto loop = std::move(*os::EventLoop::create());
  Pipe pipe;
  Console console(*loop, pipe.writer.get());
  const std::string message(1 << 20, 'x');
  for (int i = 0; i < 20; ++i) console.say(message);  // not read yet
  std::string got;
  std::thread reader([&] {
    char chunk[65536];
    while (got.find("end\n") == std::string::npos) {
      const ssize_t n = ::read(pipe.reader.get(), chunk, sizeof chunk);
      if (n <= 0) break;
      got.append(chunk, static_cast<std::size_t>(n));
    }
  });
  console.flush([&] {
    console.say("end\n");
    console.flush([&] { loop->stop(); });
  });
  REQUIRE(loop->run());
  reader.join();
  CHECK(got.size() < Console::kMostHeld + 200);
  CHECK(got.find("warn horarun: 4 messages are missing") == Console::kMostHeld);
}

TEST_CASE("a writer that writes nothing has no thread") {
  const auto threads = [] {
    const auto tasks = std::filesystem::directory_iterator("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  // The kernel takes a thread off the list an instant after it has been joined.
  const auto expect_in_the_end = [&](std::ptrdiff_t count) {
    const Deadline deadline = Clock::now() + 10s;
    while (threads() != count && Clock::now() < deadline) std::this_thread::yield();
    CHECK(threads() == count);
  };
  // With the first thread of a program, the thread sanitizer starts one of its own.
  std::ptrdiff_t before = 0;
  std::thread([&] { before = threads() - 1; }).join();
  expect_in_the_end(before);
  auto loop = std::move(*os::EventLoop::create());
  bool flushed = false;
  {
    OutputWriter writer(*loop, OutputWriter::Wake::kAtOnce,
                        {[](int, std::size_t) {}, [](int, int) { FAIL("nothing is broken"); }});
    writer.write(STDOUT_FILENO, "", 0, 0);
    writer.settle(STDOUT_FILENO);
    writer.flush([&] {
      flushed = true;
      loop->stop();
    });
    CHECK(threads() == before);
    CHECK(!flushed);  // by way of the loop
    REQUIRE(loop->run());
    CHECK(flushed);
    writer.write(STDOUT_FILENO, "\n", 0, 1);
    CHECK(threads() == before + 1);
  }
  expect_in_the_end(before);
}
