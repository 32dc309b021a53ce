// SPDX-License-Identifier: Apache-2.0
// `horarun --join`: adds this machine to the job of a launcher that listens (--listen), by a
// connection from here to there. Nothing on this machine has to listen.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/dial/dial_protocol.h"
#include "rendezvous/net/stream.h"

namespace hora::launcher {

struct JoinOptions {
  JoinUrl url;
  int slots = 1;
  std::chrono::milliseconds timeout{30'000};  // until the launcher has answered
  // How long a launcher that does not answer is tried again: it may start later than this machine.
  std::chrono::milliseconds launcher_wait{0};
  std::string name;  // of this machine; empty: its host name
  // The folder of a cache in which agents may lie, to be started without a shell; empty: none.
  std::string cache;
  bool silent = false;  // says nothing on stderr, and ends with 0 when the job is over
};

// The URL of the launcher with this key at `address` (dial_protocol.h).
Result<JoinUrl> url_of_key(std::string_view key, JoinUrl::Address address);

// Connects to the launcher, and waits for it as long as `options` say; `reached` is its address
// then. It has proved that it knows what the URL was made of.
Result<std::unique_ptr<net::Stream>> dial_launcher(const JoinOptions& options,
                                                   std::string& reached);
// What a machine says first.
JoinRequest join_request(const JoinOptions& options);

// Blocks until the job is over; reports on stderr what happens. Returns the exit code: that of the
// job, or 128 + the signal that ended this process' part in it. Errors: the launcher was not
// reached, is another one, or refuses this machine.
Result<int> join_job(const JoinOptions& options);

}  // namespace hora::launcher
