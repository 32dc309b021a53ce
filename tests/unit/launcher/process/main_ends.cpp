// SPDX-License-Identifier: Apache-2.0
// Its main thread ends, two others wait.
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

int main() {
  for (int i = 0; i < 2; ++i) {
    std::thread([] {
      for (;;) ::pause();
    }).detach();
  }
  ::syscall(SYS_exit, 0);
}
