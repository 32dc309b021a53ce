// SPDX-License-Identifier: Apache-2.0
// `horarun --listen`: serves machines that dial, prints the line to type on each, and waits until
// the job has its hosts.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "launcher/dial/dial_protocol.h"
#include "launcher/dial/dial_roster.h"
#include "launcher/dial/dial_stream.h"
#include "launcher/dial/joined_host.h"
#include "launcher/plan/job_spec.h"
#include "launcher/plan/platform_node.h"
#include "launcher/transports/agent_link.h"
#include "launcher/transports/io_threads.h"
#include "launcher/transports/transport.h"
#include "rendezvous/net/acceptor.h"

namespace hora::launcher {

// The launcher's listener for machines that connect to it: --listen. It has a certificate and a
// token of its own for each job; a client that does not present the token is disconnected before
// anything else is read. A thread of its own serves the connections. The calls below come from the
// thread that owns it.

class DialServer {
 public:
  // What happened, for people; from the server's thread.
  struct Event {
    std::string text;
    std::string joined;     // the name of the machine that has; empty: none
    bool complete = false;  // the job has all of its hosts; no other is admitted any more
  };
  using Observer = std::function<void(Event event)>;

  // `where`: port 0 takes a free one. Errors: nothing can listen there, or there is no OpenSSL.
  // `key`: what the machines know already, in place of the URL; empty: nothing. With a key, the
  // port stays open until the job ends, to refuse a machine that is started again.
  static Result<std::unique_ptr<DialServer>> open(const Endpoint& where, DialRoster roster,
                                                  Observer observer, std::string_view key = {});
  ~DialServer();
  DialServer(const DialServer&) = delete;
  DialServer& operator=(const DialServer&) = delete;

  const JoinUrl& url() const { return url_; }
  // The machines that have joined.
  std::vector<Host> hosts();
  std::string standing();

  // Reaches the machines that have joined, by name. The server must outlive it.
  std::unique_ptr<Transport> transport(StageObserver observer);

  // For an owner whose work goes on on the server's own thread, where the observer is called and
  // the next three are.
  os::EventLoop& loop() { return threads_->loop(0); }
  bool has(const std::string& name) const;
  // All of them are helpers of this version, which start agents themselves.
  void expect_helpers() { helpers_ = true; }
  // Starts an agent on a machine that has joined, as a transport does. `local` is the link's end.
  void reach(const std::string& name, os::Fd local, AgentLinkOptions options,
             Clock::time_point deadline);
  // Hangs up on all machines that have joined; those in use are lost, by `why`.
  void drop_all(const std::string& why);

  // Announces to all machines that the job is over, and waits a moment for them to hang up; whether
  // they have.
  bool say_goodbye(int exit_code);

 private:
  class DialTransport;
  struct Peer {
    std::string address;  // what it called from
    std::unique_ptr<DialStream> stream;
    std::string name;  // empty: not let in yet
    std::uint32_t next_number = 1;
    JoinedHost* host = nullptr;  // its use at present, of hosts_
    os::EventLoop::TimerId timeout = 0;
  };
  using PeerId = std::uint64_t;
  using HostId = std::uint64_t;

  DialServer(DialRoster roster, Observer observer);
  Status listen(const Endpoint& where);
  void run_on_loop(std::function<void()> task);  // and waits for it

  // On the loop's thread.
  void admit(net::Accepted accepted);
  void on_frame(PeerId id, const DialFrame& frame);
  void on_join(PeerId id, Peer& peer, std::string_view payload);
  void refuse(PeerId id, const std::string& why);
  void on_end(PeerId id, const std::string& why);
  void drop(PeerId id, const std::string& why = "it was closed");
  Peer* find_peer(const std::string& name) const;
  void close_door();
  void forget(HostId id);

  Observer observer_;
  bool helpers_ = false;
  bool stays_open_ = false;
  JoinUrl url_;
  net::AcceptStream accept_;
  AgentPayloads payloads_;
  std::unique_ptr<IoThreads> threads_;

  // The rest belongs to the loop's thread.
  std::optional<net::Acceptor> acceptor_;  // until the door is closed
  DialRoster roster_;
  std::map<PeerId, std::unique_ptr<Peer>> peers_;
  std::map<HostId, std::unique_ptr<JoinedHost>> hosts_;
  HostId next_host_ = 1;
  PeerId next_peer_ = 1;

  std::mutex mutex_;
  std::condition_variable all_gone_;
  std::size_t connected_ = 0;  // guarded by mutex_
};

// `horarun --listen`: prints the line to type on each machine, and waits until the job has its
// hosts.

class JoinWait {
 public:
  // Opens the door, and prints the line or writes its file. `spec.listen` is set. Errors: nothing
  // can listen there, or the file cannot be written. `node`: this one takes part, as the first of
  // `spec.hosts`, and the others know the way.
  static Result<std::unique_ptr<JoinWait>> open(const JobSpec& spec,
                                                const std::optional<PlatformNode>& node = {});
  ~JoinWait();
  JoinWait(const JoinWait&) = delete;
  JoinWait& operator=(const JoinWait&) = delete;

  // Blocks until all hosts are there. Sets the hosts of `spec` then, and answers nothing; else the
  // exit code of a job that has not begun, which it has explained.
  Result<std::optional<int>> wait(JobSpec& spec);

  std::unique_ptr<Transport> transport(StageObserver observer);
  // To be called when the job is over, whatever has become of it.
  void say_goodbye(int exit_code) { server_->say_goodbye(exit_code); }

 private:
  JoinWait(const JobSpec& spec, const std::optional<PlatformNode>& node)
      : spec_(spec), node_(node) {}
  Status announce();
  void say(const std::string& text) const;

  const JobSpec spec_;
  const std::optional<PlatformNode> node_;
  std::unique_ptr<os::EventLoop> loop_;
  std::unique_ptr<DialServer> server_;
  std::string file_;  // that holds the URL; removed at the end
  bool complete_ = false;
};

}  // namespace hora::launcher
