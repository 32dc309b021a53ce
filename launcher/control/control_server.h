// SPDX-License-Identifier: Apache-2.0
// The launcher's socket, by which `horarun jobs` and the like find it and ask. On the event loop's
// thread. A client that is slow, silent or malformed costs itself its connection, and nothing else.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/control/control_protocol.h"
#include "launcher/control/job_figures.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

class ControlServer {
 public:
  struct Handlers {
    std::function<JobSummary()> summary;
    std::function<void()> cancel;
    std::function<void(bool wanted)> watch;  // whether any client wants figures
  };

  // In the first of `folders` that works, named by this process. The Error is that of the last.
  static Result<std::unique_ptr<ControlServer>> open(os::EventLoop& loop,
                                                     const std::vector<std::string>& folders,
                                                     Handlers handlers);
  // For the clients that are attached: kRunningLine, exit_code_line().
  void announce(const std::string& line);
  // For the clients of kTop. One that has not read its last figures does not get these.
  void publish(const JobFigures& figures);

  ~ControlServer();  // removes the socket, and the folder if no other job has one in it
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

 private:
  struct Client {
    os::Fd fd;
    std::string in;
    std::string out;  // that the kernel did not take yet
    bool asked = false;
    bool attached = false;
    bool watches = false;
    bool stays = false;  // until this process ends
    os::EventLoop::TimerId deadline = 0;
  };

  ControlServer(os::EventLoop& loop, Handlers handlers)
      : loop_(loop), handlers_(std::move(handlers)) {}
  Status watch_listener();
  Status listen_in(const std::string& folder);
  void on_connection();
  void on_client(int fd, std::uint32_t events);
  bool read_request(Client& client);
  void answer(Client& client, const ControlRequest& request);
  bool write_out(Client& client);
  void settle_watch();
  void drop(int fd);

  os::EventLoop& loop_;
  Handlers handlers_;
  std::string folder_;
  std::string name_;
  os::Fd directory_;
  os::Fd listener_;
  os::EventLoop::TimerId retry_ = 0;
  std::map<int, Client> clients_;  // by descriptor
};

}  // namespace hora::launcher
