// SPDX-License-Identifier: Apache-2.0
// One line on a terminal that is written over and gone at the end: the progress of a start.
// Nothing at all is written elsewhere. One thread at a time.
#pragma once

#include <functional>
#include <string>

namespace hora::launcher {

class LiveLine {
 public:
  // `wanted`: the user has not asked for JSON or a log instead.
  LiveLine(bool wanted, std::function<void(std::string)> write);
  ~LiveLine() { clear(); }
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  bool enabled() const { return enabled_; }
  std::size_t width() const;
  void show(const std::string& text);
  void clear();

 private:
  std::function<void(std::string)> write_;
  bool enabled_;
  bool shown_ = false;
};

}  // namespace hora::launcher
