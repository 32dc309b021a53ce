// SPDX-License-Identifier: Apache-2.0
// Notified of the end of a process, whatever started it.
#include "rendezvous/os/process_end.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/catch.h"

using namespace hora::os;
using namespace std::chrono_literals;

namespace {

// A child that lives until it is killed.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ == 0) {
      while (true) ::pause();
    }
    REQUIRE(pid_ > 0);
  }
  ~Child() {
    kill();
    reap();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void kill() const { ::kill(pid_, SIGKILL); }
  void reap() const { ::waitpid(pid_, nullptr, 0); }

 private:
  pid_t pid_;
};

struct Scene {
  std::unique_ptr<EventLoop> loop;
  int reported = 0;
  std::unique_ptr<ProcessEnd> end;

  explicit Scene(pid_t pid) {
    auto made = EventLoop::create();
    REQUIRE(made);
    loop = std::move(*made);
    auto watched = ProcessEnd::watch(*loop, pid, [this] {
      ++reported;
      loop->stop();
    });
    REQUIRE(watched);
    end = std::move(*watched);
  }
  void run_for(hora::Clock::duration time) {
    loop->call_after(time, [this] { loop->stop(); });
    REQUIRE(loop->run());
  }
};

}  // namespace

TEST_CASE("the end of a process is reported once, also if it has not been reaped") {
  const Child child;
  Scene scene(child.pid());
  scene.run_for(20ms);
  CHECK(scene.reported == 0);
  child.kill();
  scene.run_for(20s);
  CHECK(scene.reported == 1);
  child.reap();
  scene.run_for(20ms);
  CHECK(scene.reported == 1);
}

TEST_CASE("a process that has ended before is reported as well") {
  const Child child;
  child.kill();
  child.reap();
  Scene scene(child.pid());
  CHECK(scene.reported == 0);  // from the loop only
  scene.run_for(20s);
  CHECK(scene.reported == 1);
}

TEST_CASE("a watcher that is gone gets no report") {
  const Child child;
  Scene scene(child.pid());
  child.kill();
  scene.end.reset();
  scene.run_for(20ms);
  CHECK(scene.reported == 0);
}
