// SPDX-License-Identifier: Apache-2.0
// The engine's command that starts a task on every host of a step, the files that the tasks find,
// and its output and end as calls on an event loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/dial/dial_protocol.h"
#include "launcher/dial/starter.h"
#include "launcher/process/piped_child.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

// The files for the tasks of a step in a folder that all hosts see: the programs that a host may
// lack, and the launcher's lines, which are a secret. Takes as long as the file system does.

class StepFiles {
 public:
  StepFiles() = default;
  ~StepFiles() { remove(); }
  StepFiles(const StepFiles&) = delete;
  StepFiles& operator=(const StepFiles&) = delete;

  // Errors: of the file system; nothing is left then.
  Status write(const EngineStep& engine, const StepRequest& request, const std::string& url);
  void remove();

 private:
  Status put(const std::string& path, const std::string& bytes, unsigned mode);

  std::vector<std::string> paths_;
};

// A child process whose words and end come as calls on an event loop's thread, where it lives.

class WatchedChild {
 public:
  struct Handlers {
    std::function<void(std::string_view bytes)> on_output;
    std::function<void(std::string_view bytes)> on_errors;
    // It has ended, and all that it had written was read: 0..255, or 128 + signal. Once, and the
    // last call; may destroy the object.
    std::function<void(int status)> on_end;
  };

  WatchedChild(os::EventLoop& loop, Handlers handlers)
      : loop_(loop), handlers_(std::move(handlers)) {}
  ~WatchedChild();  // kills it, unless it has ended
  WatchedChild(const WatchedChild&) = delete;
  WatchedChild& operator=(const WatchedChild&) = delete;

  Status start(const std::vector<std::string>& argv);
  Status watch(PipedChild child);  // one that has been started
  // A few bytes, which a pipe has room for.
  void write(std::string_view text);
  // Any number of them, as fast as it reads; its input ends after them. Once.
  Status feed(std::shared_ptr<const std::string> bytes);
  void close_input();
  void ask_to_end() { child_.ask_to_end(); }
  void leave();  // it goes on unwatched: PipedChild::leave(); no more calls

 private:
  bool read_all(os::Fd& fd, bool& watched, const std::function<void(std::string_view)>& report);
  void write_input();
  void on_exit();
  void unwatch_all();
  void unwatch(int fd, bool& watched);

  os::EventLoop& loop_;
  Handlers handlers_;
  PipedChild child_;
  bool in_ = false, out_ = false, err_ = false, end_ = false;  // watched
  std::shared_ptr<const std::string> input_;                   // of feed()
  std::size_t fed_ = 0;
};

// The engine's command that starts a task on every host of a step, and what is said with the tasks
// until their helpers dial. Lives on one event loop's thread.

class StepProcess : public Starter {
 public:
  // `secret` is the line for the tasks, `early` what begin_early() has started.
  StepProcess(os::EventLoop& loop, EngineStep engine, StepRequest request, std::string secret,
              std::optional<PipedChild> early, Handlers handlers);

  // The tasks' standard input can come after the command has begun: the engine takes its time.
  static Result<std::optional<PipedChild>> begin_early(const EngineStep& engine,
                                                       const StepRequest& request);
  // Errors: there is no such command.
  Status begin() override;
  void remove_files() override { files_.remove(); }
  void ask_to_end() override { step_.ask_to_end(); }  // passed on to the tasks by the command
  bool owns_helpers() const override { return true; }
  bool leave() override;

 private:
  void on_output(std::string_view bytes);
  void on_errors(std::string_view bytes);
  void copy_files(const std::string& step);
  void on_copied(int status);
  void refuse_copies(const std::string& why);

  os::EventLoop& loop_;
  EngineStep engine_;
  StepRequest request_;
  std::string secret_;
  std::optional<PipedChild> early_;
  Handlers handlers_;
  StepFiles files_;
  WatchedChild step_;
  std::string line_;    // of its output, not whole yet
  std::string errors_;  // the last of what it has said
  std::vector<std::unique_ptr<WatchedChild>> copies_;
  std::size_t under_way_ = 0;  // of those
  bool copy_failed_ = false;
  bool is_guarded_ = false;
  std::string copy_words_;  // what the failed one said
};

}  // namespace hora::launcher
