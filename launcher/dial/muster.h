// SPDX-License-Identifier: Apache-2.0
// `horarun --listen`: prints the line to type on each machine, and waits until the job has its
// hosts.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "launcher/dial/dial_server.h"
#include "launcher/plan/job_spec.h"

namespace hora::launcher {

class Muster {
 public:
  // Opens the door, and prints the line or writes its file. `spec.listen` is set. Errors: nothing
  // can listen there, or the file cannot be written.
  static Result<std::unique_ptr<Muster>> open(const JobSpec& spec);
  ~Muster();
  Muster(const Muster&) = delete;
  Muster& operator=(const Muster&) = delete;

  // Blocks until all hosts are there. Sets the hosts of `spec` then, and answers nothing; else the
  // exit code of a job that has not begun, which it has explained.
  Result<std::optional<int>> wait(JobSpec& spec);

  std::unique_ptr<Transport> transport(StageObserver observer) {
    return server_->transport(std::move(observer));
  }
  // To be called when the job is over, whatever has become of it.
  void say_goodbye(int exit_code) { server_->say_goodbye(exit_code); }

 private:
  explicit Muster(const JobSpec& spec) : spec_(spec) {}
  Status announce();
  void say(const std::string& text) const;

  const JobSpec spec_;
  std::unique_ptr<os::EventLoop> loop_;
  std::unique_ptr<DialServer> server_;
  std::string file_;  // that holds the URL; removed at the end
  bool complete_ = false;
};

}  // namespace hora::launcher
