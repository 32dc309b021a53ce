// SPDX-License-Identifier: Apache-2.0
#include "launcher/dial/muster.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "launcher/failures/failure_code.h"
#include "launcher/process/signals.h"
#include "launcher/protocol/exit_code.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/atomic_file.h"

namespace hora::launcher {

namespace {

Endpoint door(const ListenSpec& listen) {
  if (const auto address = parse_ip_address(listen.address)) return {*address, listen.port};
  Endpoint any;
  any.address.v6 = true;  // "::" takes IPv4 as well
  any.port = listen.port;
  return any;
}

// In the words of an engine's allocation, in whose place it stands.
std::string summary(const std::vector<Host>& hosts) {
  int slots = 0;
  for (const Host& host : hosts) slots += host.slots.value_or(0);
  return counted(slots, "slot") + " on " + counted(hosts.size(), "host") + " (" +
         format_host_list(hosts) + "), joined by --join";
}

}  // namespace

void Muster::say(const std::string& text) const {
  if (!spec_.json) std::fprintf(stderr, "horarun: %s\n", text.c_str());
}

// The server's thread never touches this object: what it sees comes as a task of the loop.
Result<std::unique_ptr<Muster>> Muster::open(const JobSpec& spec) {
  std::unique_ptr<Muster> muster(new Muster(spec));
  auto loop = os::EventLoop::create();
  if (!loop) return std::move(loop).error();
  muster->loop_ = std::move(*loop);
  const auto observer = [raw = muster.get()](DialServer::Event event) {
    raw->loop_->post([raw, event = std::move(event)] {
      raw->say(event.text);
      if (!event.complete) return;
      raw->complete_ = true;
      raw->loop_->stop();
    });
  };
  const DialRoster roster(spec.hosts, spec.num_proc);
  auto server = DialServer::open(door(*spec.listen), roster, observer);
  // A machine without IPv6 has no "::".
  if (!server && spec.listen->address.empty()) {
    server = DialServer::open({IpAddress{}, spec.listen->port}, roster, observer);
  }
  if (!server) return std::move(server).error().with_context("--listen");
  muster->server_ = std::move(*server);
  HORA_TRY(muster->announce());
  return muster;
}

// After an error, too, no secret stays behind.
Muster::~Muster() {
  if (!file_.empty()) ::unlink(file_.c_str());
}

// The line that is safe to type: the secret is in the memory of a shell and of horarun, and in no
// list of processes.
Status Muster::announce() {
  const std::string url = format_join_url(server_->url());
  const std::string waits_for = server_->standing();
  if (spec_.listen->file.empty()) {
    say("waiting for machines, " + waits_for +
        ". Type on each of them (the line is a secret):\n\n" + "    echo '" + url +
        "' | horarun --join -\n");
    return Ok{};
  }
  auto file = os::AtomicFile::make(spec_.listen->file, 0600);
  if (!file) return std::move(file).error().with_context("--listen-file");
  HORA_TRY(file->write(url + "\n"));
  HORA_TRY(file->finish());
  file_ = spec_.listen->file;
  say("waiting for machines, " + waits_for + ". Run on each of them: horarun --join FILE, with " +
      file_ + " or a copy that only you can read");
  return Ok{};
}

// This loop sees signals and the server's events, nothing else: the connections live on the
// server's thread, which goes on while the job runs on a loop of its own.
Result<std::optional<int>> Muster::wait(JobSpec& spec) {
  int signal = 0;
  bool late = false;
  {
    auto signals = Signals::watch(*loop_, [&](int received) {
      if (!ends_job(received)) return;
      signal = received;
      loop_->stop();
    });
    if (!signals) return std::move(signals).error();
    loop_->call_after(spec.listen->patience, [&] {
      late = true;
      loop_->stop();
    });
    HORA_TRY(loop_->run());
  }
  if (!file_.empty()) ::unlink(file_.c_str());
  file_.clear();
  if (!complete_) {
    const int code = late ? kExitTimeout : exit_code_of_signal(signal);
    const std::string why = late
                                ? "waited " + std::to_string(spec.listen->patience.count() / 1000) +
                                      " s for machines to join: " + server_->standing() + " [" +
                                      std::string(failure::kStartTimeout) + "]"
                                : "ended by signal " + std::to_string(signal) +
                                      " while it waited for machines: " + server_->standing();
    std::fprintf(stderr, "horarun: %s\n", why.c_str());
    return std::optional(code);
  }
  spec.hosts = server_->hosts();
  spec.engine = JobEngine{"join", "", summary(spec.hosts), {}};
  return std::optional<int>();
}

}  // namespace hora::launcher
