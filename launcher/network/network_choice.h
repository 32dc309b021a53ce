// SPDX-License-Identifier: Apache-2.0
// Over which interface of each host the ranks talk.  [pure]
//
// Two steps: candidate_probes() says what the agents should try, choose_network() decides from
// their answers. The rules, in order: what the user named; the network by which the hosts were
// reached; the faster one; the first. Never: an address that two machines both have (docker0), an
// interface that is down, link-local; loopback only when all ranks are on one machine and stay
// there.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// The facts about one machine, from its agent's Hello and from how it was reached.
struct HostNetwork {
  std::string name;  // as in the host list
  std::string boot_id;
  std::vector<InterfaceInfo> interfaces;
  std::string reached_at;        // numeric address by which the launcher reached it; may be empty
  std::string launcher_seen_as;  // the launcher's address in that connection; may be empty
  int probe_port = 0;
  std::string probe_nonce;
};

// `remote`: reached over a network, as the Hello says.
HostNetwork host_network(std::string name, const Hello& hello, bool remote);

// "client-address client-port server-address server-port" of $SSH_CONNECTION into the two fields.
void read_ssh_connection(std::string_view text, HostNetwork& host);

// --network-interfaces: each an interface's name ("eth0"), an address, or a network
// ("10.0.0.0/8"). A kUsage error says what is wrong with it.
Status check_interface_selector(std::string_view text);

// probes[i] goes to hosts[i]; without targets there is nothing to try. The address lists are in the
// order of preference. With more than kAllPairsHosts hosts every host tries only those at
// distances 1, 2, 4, ... in the list, so that the cost grows as n log n.
inline constexpr int kAllPairsHosts = 8;
std::vector<Probe> candidate_probes(const std::vector<HostNetwork>& hosts,
                                    const std::vector<std::string>& wanted);

struct HostRoute {
  std::string interface;                // "eth0"
  std::string address;                  // numeric; other hosts reach this one by it
  std::vector<std::string> interfaces;  // the chosen one and others that the user named
  bool is_prefix = false;  // one of their names begins that of another interface of this host
  std::string rendezvous_address;  // numeric; this host reaches the launcher by it
  std::string reason;              // "10.78.1.0/24, the network by which the hosts were reached"
  friend bool operator==(const HostRoute&, const HostRoute&) = default;
};

struct NetworkChoice {
  std::vector<HostRoute> hosts;  // as the hosts given
  // Distinct rendezvous addresses: where the server must listen.
  std::vector<std::string> listen_addresses;
  // The ranks reach the launcher at the first host's address, from where its agent's stream carries
  // what they say; the server listens on loopback.
  bool relayed = false;
  friend bool operator==(const NetworkChoice&, const NetworkChoice&) = default;
};

// Whether ranks on other hosts may join these later: they cannot connect over loopback.
enum class Hosts { kFixed, kMayCome };
// Of ranks to the launcher. kOrRelay: where none is known, as with a jump host. kRelay: whatever
// the addresses look like; those of pods mean something in their cluster only.
enum class WayBack { kNeeded, kOrRelay, kRelay };

// `answers[i]` is what hosts[i] found out; empty when nothing was probed. `launcher` is this
// machine. A Failure (E_NETWORK) shows what each host has and why it cannot be used.
std::variant<NetworkChoice, Failure> choose_network(const std::vector<HostNetwork>& hosts,
                                                    const HostNetwork& launcher,
                                                    const std::vector<std::string>& wanted,
                                                    const std::vector<ProbeResult>& answers,
                                                    Hosts later = Hosts::kFixed,
                                                    WayBack way_back = WayBack::kNeeded);

}  // namespace hora::launcher
