// SPDX-License-Identifier: Apache-2.0
// Starts helpers on hosts, which dial the launcher.  [interface]
// Lives on one event loop's thread, on which its handlers are called.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/dial/dial_protocol.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class Starter {
 public:
  struct Handlers {
    std::function<void(const StepFailure&)> on_failure;  // that host will not dial
    std::function<void(std::string_view said)> on_errors;
    // Nothing of it runs any more, as `how` says; once, and the last call.
    std::function<void(const std::string& how)> on_end;
  };

  virtual ~Starter() = default;
  // Errors: nothing could be started.
  virtual Status begin() = 0;
  // That host has dialled.
  virtual void on_joined(const std::string&) {}
  virtual void remove_files() {}  // when no host is left to read them
  virtual void ask_to_end() = 0;
  // Only processes that are ending are left: true when they need not be waited for.
  virtual bool leave() { return false; }
  // Whether the helpers belong to it, and end with it.
  virtual bool owns_helpers() const = 0;
};

// `url`: what the helpers need, a secret.
using MakeStarter = std::function<std::unique_ptr<Starter>(os::EventLoop& loop, std::string url,
                                                           Starter::Handlers handlers)>;

}  // namespace hora::launcher
