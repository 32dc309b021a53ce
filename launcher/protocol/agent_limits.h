// SPDX-License-Identifier: Apache-2.0
// How much an agent has to say at most, and what its numbers can be.  [pure]
// docs/reference/agent-protocol.md has the table; a change edits both.
//
// The agent cuts what it says to these limits, fit(). The launcher does not rely on that: it
// refuses a message of which a number or a list is beyond them, check(), and makes its texts such
// that they can be shown, clean().
#pragma once

#include <cstddef>
#include <cstdint>

#include "launcher/protocol/messages.h"

namespace hora::launcher {

// The memory that a host uses for others, for all deliveries together.
inline constexpr std::size_t kMostKeptBytes = 512u << 20;

inline constexpr std::size_t kMostInterfaces = 1024;
inline constexpr std::size_t kMostParts = 64;       // of a bundle; libraries that are looked for
inline constexpr std::size_t kMostNotes = 8;        // of a placement, and two for each rank
inline constexpr std::size_t kMostLogLines = 1000;  // of one agent, from its start to its end
inline constexpr std::size_t kMostSources = 8;      // of a delivery
inline constexpr std::size_t kMostRelayed = 64 * 1024;  // bytes of one frame
inline constexpr std::size_t kMostRelayedConnections = 8192;
inline constexpr std::size_t kMostGpuFaults = 32;  // of one job on one host
inline constexpr std::size_t kMostSurvivorPids = 64;
inline constexpr std::size_t kMostProcesses = 2048;   // of a stack report
inline constexpr std::size_t kMostStacks = 3u << 20;  // bytes, of all its processes
inline constexpr std::size_t kMostOperations = 64;
inline constexpr int kMostGpus = 1024;

inline constexpr std::size_t kMostName = 256;  // bytes: of a host, a user, a program
inline constexpr std::size_t kMostPath = 4096;
inline constexpr std::size_t kMostText = 4096;         // of a sentence for people
inline constexpr std::size_t kMostFailureText = 8192;  // of one that lists what was tried
inline constexpr std::size_t kMostLastWords = 4096;    // of a rank, on standard error

// Far beyond real values, and so far below 2^63 that sums of them do not overflow.
inline constexpr std::int64_t kLatestClockNs = 4'000'000'000'000'000'000;  // in the year 2096
inline constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;
inline constexpr std::int64_t kLongestUs = 1'000'000'000'000'000;  // 31 years of one CPU
inline constexpr std::int64_t kLongestMs = 10'000'000'000'000;     // 317 years
inline constexpr std::int64_t kLargestPid = 0x7fffffff;

// Bytes of the payload. A list of ranks makes its messages longer: see AgentConversation.
inline constexpr std::size_t kLargestHello = 512 * 1024;
inline constexpr std::size_t kLargestExit = 64 * 1024;
inline constexpr std::size_t kLargestFailure = 64 * 1024;
inline constexpr std::size_t kLargestLogLine = 16 * 1024;
inline constexpr std::size_t kLargestGpuFault = 4 * 1024;
inline constexpr std::size_t kLargestDeliveryReport = 8 * 1024;
inline constexpr std::size_t kLargestPartName = 160;  // of a hash, with its part of the list
inline constexpr std::size_t kLargestGoodbye = 4 * 1024;
inline constexpr std::size_t kLargestStackReport = 8u << 20;
inline constexpr std::size_t kLargestNote = 2 * 1024;  // with its part of the list
inline constexpr std::size_t kLargestAnswer = 512;     // of a probe, for one address

// Lists lose their end, texts too; a text says that it did.
Hello fit(Hello message);
ProbeResult fit(ProbeResult message);
Started fit(Started message);
RankExit fit(RankExit message);
StackReport fit(StackReport message);
Goodbye fit(Goodbye message);
GpuFault fit(GpuFault message);
DeliveryReport fit(DeliveryReport message);
Failure fit(Failure message);
LogLine fit(LogLine message);

// The Error names the field.
Status check(const Hello& message);
Status check(const ProbeResult& message);
Status check(const Started& message);
Status check(const RankExit& message);
Status check(const StackReport& message);
Status check(const Goodbye& message);
Status check(const GpuFault& message);
Status check(const DeliveryReport& message);
Status check(const Failure& message);
Status check(const LogLine& message);

// fit(), and no control characters in its texts. The lines of a rank on standard error keep their
// bytes: their printer escapes them.
Hello clean(Hello message);
ProbeResult clean(ProbeResult message);
Started clean(Started message);
RankExit clean(RankExit message);
StackReport clean(StackReport message);
Goodbye clean(Goodbye message);
GpuFault clean(GpuFault message);
DeliveryReport clean(DeliveryReport message);
Failure clean(Failure message);
LogLine clean(LogLine message);

}  // namespace hora::launcher
