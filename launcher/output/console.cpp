#include "launcher/output/console.h"

namespace hora::launcher {

// A full disk or a reader that is gone does not end a job because of our own messages, so errors
// are ignored here.
Console::Console(os::EventLoop& loop, int fd)
    : fd_(fd),
      writer_(loop, {[this](int, std::size_t bytes) {
                       std::lock_guard lock(mutex_);
                       held_ -= bytes;
                     },
                     [](int, int) {}}) {}

void Console::say(std::string text) {
  if (text.empty()) return;
  std::lock_guard lock(mutex_);
  // Drops messages instead of blocking when nothing reads the terminal, and says so later.
  if (held_ + text.size() > kMostHeld) {
    ++lost_;
    return;
  }
  if (lost_ > 0) {
    text.insert(0, "warn horarun: " + std::to_string(lost_) +
                       " messages are missing here, which nobody had read in time\n");
    lost_ = 0;
  }
  const std::size_t size = text.size();
  held_ += size;
  writer_.write(fd_, std::move(text), 0, size);
}

}  // namespace hora::launcher
