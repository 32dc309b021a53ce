// SPDX-License-Identifier: Apache-2.0
#include "launcher/protocol/messages.h"

#include <algorithm>

#include "rendezvous/base/address.h"

namespace hora::launcher {

namespace {

std::string fault(std::string_view field, std::string_view what) {
  return "'" + std::string(field) + "' " + std::string(what);
}

std::string fault_of_address(std::string_view field, const std::string& text) {
  if (parse_ip_address(text)) return {};
  return fault(field, "is not an address: " + quote(text, 64));
}

// "E_SSH_AUTH"
bool is_class(std::string_view code) {
  return code.size() > 2 && code.size() <= 64 && code.substr(0, 2) == "E_" &&
         code.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string_view::npos;
}

}  // namespace

std::string InterfaceInfo::contradiction() const { return fault_of_address("address", address); }

std::string ProbeAnswer::contradiction() const {
  return local_address.empty() ? "" : fault_of_address("local_address", local_address);
}

std::string RankExit::contradiction() const {
  if (signal != 0 && exit_code != 0) return fault("signal", "comes with an exit code");
  if (!code.empty() && !is_class(code)) return fault("code", "is not a class of failures");
  const bool did_not_start =
      signal == 0 && (exit_code == kExitCannotExecute || exit_code == kExitNotFound);
  if (stage != SpawnStage::kNone && !did_not_start) {
    return fault("stage", "comes with another exit code than 126 and 127");
  }
  return {};
}

std::string CollectiveStanding::contradiction() const {
  const bool is_known = state.empty() || state == "joining" || state == "joined" || state == "left";
  return is_known ? "" : fault("state", "is unknown");
}

std::string DeliveryReport::contradiction() const {
  return here || port == 0 ? "" : fault("port", "is of what is not here");
}

std::string Failure::contradiction() const {
  return is_class(code) ? "" : fault("code", "is not a class of failures");
}

Result<LauncherMessage> read_launcher_frame(Frame frame, const Turns& turns) {
  const FrameType type = frame.type;
  Result<LauncherMessage> read =
      make_error(ErrorCode::kFailed, "a frame of type " + std::to_string(static_cast<int>(type)) +
                                         ", which no launcher sends");
  visit_type(std::type_identity<LauncherMessage>{}, type,
             [&]<typename Message>(std::type_identity<Message>) {
               constexpr MessageRule kRule = Message::kRule;
               if (!turns.may_come(kRule)) {
                 read = kRule.out_of_turn.empty()
                            ? malformed(kRule.name, "out of turn")
                            : make_error(ErrorCode::kFailed, std::string(kRule.out_of_turn));
               } else if (auto message = read_payload<Message>(std::move(frame))) {
                 read = LauncherMessage(std::move(*message));
               } else {
                 read = std::move(message).error();
               }
             });
  return read;
}

// A program owns the ranks from its first one to that of the next.
int program_number(const PmiJob& job, int rank) {
  return static_cast<int>(std::count_if(job.next_programs.begin(), job.next_programs.end(),
                                        [rank](int first) { return first <= rank; }));
}

}  // namespace hora::launcher
