// SPDX-License-Identifier: Apache-2.0
// What is said between a launcher and the machines that dial it: the URL to join, the messages, and
// the script of an engine's step.  [pure]
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/plan/host_list.h"
#include "launcher/plan/job_spec.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// What `horarun --listen` prints and `horarun --join` reads: where the launcher is, how to know it,
// and the proof that one was asked to come.
//   url := "hora://" fingerprint token "@" address ("," address)*       address := host ":" port
// The fingerprint (64 hexadecimal digits) is the SHA-256 of the launcher's certificate, the token
// has 32 more. Anyone who has the text may run the job's ranks and read its environment.

struct JoinUrl {
  struct Address {
    std::string host;  // a name or a numeric address, without brackets
    std::uint16_t port = 0;
    friend bool operator==(const Address&, const Address&) = default;
  };
  std::string fingerprint;
  std::string token;
  std::vector<Address> addresses;  // to be tried in this order; never empty
  friend bool operator==(const JoinUrl&, const JoinUrl&) = default;
};

inline constexpr std::string_view kJoinScheme = "hora://";

std::string format_join_url(const JoinUrl& url);
// "10.0.0.1:4711", "[fe80::1]:4711"
std::string format_join_address(const JoinUrl::Address& address);
// Blanks around it do not count. Errors (kUsage) never quote the text, which is a secret.
Result<JoinUrl> parse_join_url(std::string_view text);

// Machines that share a key (launcher/platforms/) need no line: certificate and token of their job
// are functions of the key. A certificate says nothing about the key to those who lack it.
std::string seed_of_key(std::string_view key);  // of tls::make_server_side()
std::string token_of_key(std::string_view key);
inline constexpr const char* kCertificateName = "horarun --listen";

// The messages between a launcher and a machine that dialled it, inside of TLS.
// docs/reference/agent-protocol.md describes them; a change edits both.
//   frame := length:u32le type:u8 payload        (length counts the payload)
// They carry one command at a time, with its three streams, as ssh would: what runs in it is the
// start script of launcher/transports/bootstrap.h and then the agent. Each command has a number, so
// that what is left of one is not taken for the next.

enum class DialFrameType : std::uint8_t {
  // machine to launcher
  kJoin = 1,    // JoinRequest; the first frame
  kOutput = 2,  // number:u32le bytes                 (stdout of the command)
  kErrors = 3,  // number:u32le bytes                 (its stderr)
  kEnded = 4,   // number:u32le status:u32le (after all of its output)
  // launcher to machine
  kAccepted = 32,  // name: what the launcher calls this machine
  kRefused = 33,   // text: why; the connection ends
  kRun = 34,       // number:u32le line: run it with sh
  kInput = 35,     // number:u32le bytes              (stdin of the command)
  kInputEnd = 36,  // number:u32le
  kStop = 37,      // number:u32le: end the command
  kOver = 38,      // exit_code:u32le: the job has ended; the connection ends
  // Only to a helper of the launcher's own version. number:u32le size:u32le, arguments of that many
  // bytes in all, each followed by a NUL, and the line of kRun: start the agent that the arguments
  // name (cached_agent() of launcher/transports/bootstrap.h), or run the line if it is not here.
  kStart = 39,
};

struct DialFrame {
  DialFrameType type = DialFrameType::kJoin;
  std::string_view payload;
};

// Identifies a connecting machine, and proves that it may join.
struct JoinRequest {
  std::string token;  // of the JoinUrl
  std::string name;   // of the machine
  std::uint32_t slots = 0;
  friend bool operator==(const JoinRequest&, const JoinRequest&) = default;
};
std::string encode(const JoinRequest& request);
// Errors: another version, or nothing that was a request.
Result<JoinRequest> decode_join_request(std::string_view payload);

// The name of a machine as it is used in lists of hosts, variables and messages: what DNS allows.
bool is_machine_name(std::string_view name);

inline constexpr std::size_t kLargestJoin = 1024;  // of a frame before the machine is known
inline constexpr std::size_t kLargestDialFrame = 1u << 20;  // of a following one
inline constexpr std::size_t kDialPiece = 32 * 1024;        // bytes of a stream in one frame

// `head` and `body` are the payload.
void append_dial_frame(std::string& out, DialFrameType type, std::string_view head,
                       std::string_view body = {});

// What follows the number in kStart.
std::string encode_words(const std::vector<std::string>& words);
// Takes them off the front of `payload`. Nothing: it does not begin with words.
std::optional<std::vector<std::string>> decode_words(std::string_view& payload);

// Cuts a stream into frames.
class DialFrameReader {
 public:
  explicit DialFrameReader(std::size_t largest) : largest_(largest) {}
  void allow(std::size_t largest) { largest_ = largest; }
  void feed(std::string_view bytes);
  // A frame, valid until the next call; nothing when more bytes are needed; an error when one is
  // larger than allowed.
  Result<std::optional<DialFrame>> next();

 private:
  std::size_t largest_;
  std::string buffer_;
  std::size_t position_ = 0;
};

// What is said between the launcher and the tasks of an engine's step, before they dial: a script
// that each task runs, lines on its stdout, lines on the stdin that they share.
// (An engine whose tasks have no stdin in common has a folder that all hosts see: there are the
// copies, and a file with the launcher's lines.)
//   launcher: URL                      what hora-dial needs to know, as of --listen: a secret
//   task:     HORA-<nonce> need <step>          the cache of its host lacks the helper
//   launcher: sent, URL                         the engine has copied it
//   task:     HORA-<nonce> failed <host> <why>  no connection will come from there
// Then the helper runs in the task, and connects.

// How long a task tries to reach the launcher. An engine's own command is reached in an instant.
inline constexpr std::chrono::milliseconds kStepDialTimeout{8'000};
inline constexpr int kStepFiles = 2;  // that are copied at the most

// A program that hosts keep: the helper, which comes first, and the agent that it will start.
struct StepFile {
  std::string path;  // on this machine
  std::string sha256;
  std::uint64_t size_bytes = 0;
};

struct StepRequest {
  std::string nonce;    // letters and digits
  std::string machine;  // as `uname -m` says: the files are for it
  std::vector<StepFile> files;
  std::vector<Host> hosts;
  std::chrono::milliseconds grace{5'000};  // for ranks, between TERM and KILL
};

// The whole command that starts the step. Errors (kUsage): a host that could be taken for something
// else.
Result<std::vector<std::string>> step_command(const EngineStep& engine, const StepRequest& request);
// How long the step's command may go on without the launcher before it is ended.
std::chrono::milliseconds guard_timeout(const StepRequest& request);
// Where the engine is to put a copy of the file, and the command for that.
std::string step_copies(const EngineStep& engine, const std::string& nonce);
// The launcher's lines, in the engine's folder.
std::string step_words_file(const std::string& copies);
std::string step_words_text(const std::string& url);
std::string step_copy(const std::string& copies, int file);
std::vector<std::string> copy_command(const EngineStep& engine, const StepRequest& request,
                                      int file, const std::string& step);
inline constexpr std::string_view kStepSent = "sent\n";

struct StepNeed {
  std::string step;
};
struct StepFailure {
  std::string host;
  std::string why;
};
// The meaning of a line on the step's stdout; nothing: it is not one of ours.
std::optional<std::variant<StepNeed, StepFailure>> parse_step_line(std::string_view nonce,
                                                                   std::string_view line);
std::string step_failure(std::string_view nonce, std::string_view host, std::string_view why);

}  // namespace hora::launcher
