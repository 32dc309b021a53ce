// SPDX-License-Identifier: Apache-2.0
// The engine's command that starts a task on every host of a step, and what is said with the tasks
// until their helpers dial. Lives on one event loop's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/step/step_files.h"
#include "launcher/step/step_words.h"
#include "launcher/step/watched_child.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class StepProcess {
 public:
  struct Handlers {
    std::function<void(const StepFailure&)> on_failure;  // that host will not dial
    std::function<void(std::string_view said)> on_errors;
    // The command has ended, as `how` says; once, and the last call.
    std::function<void(const std::string& how)> on_end;
  };

  // `secret` is the line for the tasks.
  StepProcess(os::EventLoop& loop, EngineStep engine, StepRequest request, std::string secret,
              Handlers handlers);

  // Errors: there is no such command.
  Status begin();
  void remove_files() { files_.remove(); }   // when no task is left to read them
  void ask_to_end() { step_.ask_to_end(); }  // which the engine's command passes on to the tasks

 private:
  void on_output(std::string_view bytes);
  void copy_files(const std::string& step);
  void on_copied(int status);
  void refuse_copies(const std::string& why);

  os::EventLoop& loop_;
  EngineStep engine_;
  StepRequest request_;
  std::string secret_;
  Handlers handlers_;
  StepFiles files_;
  WatchedChild step_;
  std::string line_;  // of its output, not whole yet
  std::vector<std::unique_ptr<WatchedChild>> copies_;
  std::size_t under_way_ = 0;  // of those
  bool copy_failed_ = false;
  std::string copy_words_;  // what the failed one said
};

}  // namespace hora::launcher
