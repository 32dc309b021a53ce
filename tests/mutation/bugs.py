# SPDX-License-Identifier: Apache-2.0
"""The bugs of the mutation check: (name, file, a text that occurs once in it, its replacement, the tests that
must fail). tests/mutation/check.py applies them one at a time to a copy of the code."""

STATE, PUMP, JOB = "launcher/job/job_state.cpp", "launcher/agent/output_pump.cpp", "launcher/agent/host_job.cpp"
RANKS, PREPARED, OWNER = (
    "launcher/agent/rank_set.cpp",
    "launcher/agent/prepared_job.cpp",
    "launcher/agent/rank_processes.cpp",
)
KV, KV_TABLE = "rendezvous/kv_service.cpp", "rendezvous/kv_table.cpp"
LINE, FRAME = "launcher/output/line_tagger.cpp", "launcher/protocol/frame.cpp"
IMAGE, CACHE, BOOT = (
    "launcher/agent/own_image.cpp",
    "launcher/agent/bundle_cache.cpp",
    "launcher/transports/bootstrap.cpp",
)
FOLDER, CLEAN, DELIVERIES = (
    "launcher/agent/cache_directory.cpp",
    "launcher/agent/cache_clean.cpp",
    "launcher/agent/bundle_staging.cpp",
)
DOOR, COORD, PLAN = (
    "collectives/control/door.cpp",
    "collectives/negotiation/coordinator.cpp",
    "launcher/plan/plan.cpp",
)
CONN, ACCESS = "rendezvous/kv_connection.cpp", "rendezvous/kv_access.cpp"
EPOCHS = "launcher/elastic/elastic_state.cpp"
TALK, LIMITS, END = (
    "launcher/protocol/agent_conversation.cpp",
    "launcher/protocol/agent_limits.cpp",
    "launcher/report/final_exit_code.cpp",
)
LOST = "integration/test_lost_records.py"
DIAL, DIALLED, ROSTER = (
    "launcher/dial/dial_frame.cpp",
    "launcher/dial/dial_server.cpp",
    "launcher/dial/dial_roster.cpp",
)
STEP, PODS = "launcher/step/step_words.cpp", "launcher/pods/pod_states.cpp"
TABLE, STRAYS, KEEPER = "launcher/process/process_table.cpp", "launcher/process/strays.cpp", "launcher/agent/shim.cpp"

# fmt: off
BUGS = [
    # --- who is ended, when and why
    ("exit codes are ORed", STATE, "outcome_.cause->exit_code = exit_code_of(outcome_.cause->exit);", "outcome_.cause->exit_code |= exit_code_of(outcome_.cause->exit);", "launcher_test"),
    ("signals count as codes", STATE, "return exit.signal != 0 ? exit_code_of_signal(exit.signal) : exit.exit_code;", "return exit.exit_code;", "launcher_test"),
    ("a rank that we ended is the cause", STATE, "if (!failed(e.exit) || e.exit.terminated_by_us) return;", "if (!failed(e.exit)) return;", "launcher_test"),
    ("the first report is the cause, not the first failure", STATE, "return a.second.when < b.second.when;", "return a.first < b.first;", "launcher_test"),
    ("one host is not told to end", STATE, "} else if (hosts_[host] < HostPhase::kFinished) {", "} else if (host > 0 && hosts_[host] < HostPhase::kFinished) {", "launcher_test"),
    ("no deadline for the end", STATE, "if (hosts_[host] >= HostPhase::kFinished) continue;", "continue;", "launcher_test"),
    ("a second signal gives more time", STATE, "std::min(end_deadline_.value_or(TimePoint::max()), now + grace + kSweepTime)", "now + grace + kSweepTime", "launcher_test"),
    ("a goodbye without exits is a success", STATE, "(agent_ended_ranks_ || e.missing_exits > 0)", "agent_ended_ranks_", "launcher_test"),
    ("a lost host is no failure", STATE, "if (phase_ != Phase::kEnding) {\n    end(std::move(cause), now, options_.grace, actions);\n  } else if", "if (false) {\n  } else if", "launcher_test"),
    ("ranks start when one host is ready", STATE, "if (phase_ == Phase::kPreparing && all_hosts_at_least(HostPhase::kReady)) {", "if (phase_ == Phase::kPreparing) {", "launcher_test"),
    ("the start never times out", STATE, "if (phase_ < Phase::kRunning && now >= start_deadline_) {", "if (false && now >= start_deadline_) {", "launcher_test"),
    ("the third signal waits", STATE, "end_deadline_ = now;\n", "", "launcher_test"),
    ("a rank that dies of a silent host is blamed", STATE, "e.silent_since < cause_time_", "false", "launcher_test"),
    # --- the epochs of elastic jobs
    ("nobody is fenced", EPOCHS, "if (roster_.worker(seat.worker).phase != WorkerPhase::kRunning) continue;", "continue;", "elastic_test"),
    ("an epoch begins without waiting for all", EPOCHS, "if (all_recorded()) evaluate(now, actions);", "evaluate(now, actions);", "elastic_test"),
    ("a host is used while it is left alone", "launcher/elastic/host_registry.cpp", "if (entry.listed && !barred && ", "if (entry.listed && ", "elastic_test"),
    ("new ranks push survivors out", "launcher/elastic/epoch_plan.cpp", "const int kept = std::min(offer.survivors, left);", "const int kept = std::min(offer.survivors + offer.room, left);", "elastic_test"),
    ("rank 0 need not know the state", "launcher/elastic/epoch_plan.cpp", "return offer.survivors > 0 && offer.has_state;", "return false;", "elastic_test"),
    ("who has died is sent away instead", "launcher/elastic/epoch_seats.cpp", "return roster.worker(id).phase != WorkerPhase::kAsking;", "return false;", "elastic_test"),
    ("a void order is used", "launcher/elastic/epoch_seats.cpp", "if (phase == IncarnationPhase::kOrdered || phase == IncarnationPhase::kReady) {", "if (false) {", "elastic_test"),
    ("who is not needed stays", "launcher/elastic/elastic_state.cpp", "actions.emplace_back(EndWorker{id});", "", "elastic_test"),
    ("the host of a rank that failed goes on", "launcher/elastic/elastic_state.cpp", "if (roster_.incarnation(id).host.name == host) end_incarnation(id, actions);", "", "elastic_test"),
    ("an unsigned answer is believed", "launcher/elastic/horovod_wire.cpp", "if (apart != 0) return", "if (false) return", "elastic_test"),
    # --- the agent
    ("SIGCHLD is lost", RANKS, "  take_exit(*rank, status, usage);\n", "", "agent_ranks_test"),
    ("the last words are not drained", RANKS, "if (rank.alive || rank.reported || !output_.drain(rank.exit.rank)) continue;", "if (rank.alive || rank.reported) continue;", "agent_output_test agent_ranks_test"),
    ("grace is no limit", JOB, "if (now < *kill_at_) return look_again", "if (true) return look_again", "agent_life_test"),
    ("a stopped rank is not continued", RANKS, "signal(SIGCONT);  // a stopped one could not obey", "", "agent_life_test"),
    # Each of the three ways ends what the others would.
    ("strays are not killed", "launcher/agent/stray_hunt.cpp", """  if (cgroup != nullptr) cgroup->kill();
  // Stopped first, so that none forks while the others are being killed.
  for (const ProcessEntry& stray : left) signal_process(stray, SIGSTOP);
  for (const ProcessEntry& stray : left) signal_process(stray, SIGKILL);
  StrayScope scope = scope_;
  scope.spare = spared.ranks;
  if (spared.server > 0) scope.spare.push_back(spared.server);
  const Chase chase = chase_descendants(scope, kChaseAtOnce);
  remember_killed(chase.killed);
  caught_up_ = chase.caught_up;
""", "", "agent_life_test"),
    ("strays without their main thread are not seen", TABLE, "if (!entry || !entry->is_zombie() || entry->threads <= 1) return entry;", "if (true) return entry;", "process_test agent_life_test agent_survivors_test"),
    ("strays without their main thread are not known by their mark", TABLE, "if (found != Found::kNothingToRead) return found == Found::kYes;", "if (true) return found == Found::kYes;", "process_test"),
    ("chains of forks that a look misses are no strays", STRAYS, "if (strays && strays->empty() && childless) return {};", "if (strays && strays->empty()) return {};", "process_test"),
    ("a chase kills whom it should spare", STRAYS, "if (!spared) visit(*child);", "visit(*child);", "process_test"),
    ("the agent keeps no descriptor for the end", JOB, """fd = os::Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return errno_error(errno, "opening /dev/null");""", "fd.reset();", "agent_life_test"),
    ("a shim that is stopped does not see the agent's end", KEEPER, "be_continued_by(shims_end.get());", "", "agent_life_test"),
    ("a shim that is stopped does not see the launcher's end", "apps/agent/main.cpp", "be_continued_by(STDIN_FILENO);", "", "agent_life_test"),
    ("an agent that is stopped does not see the shim's end", KEEPER, "be_continued_by(agents_end.get());", "", "agent_life_test"),
    ("an agent that is stopped does not see the launcher's end", KEEPER, "::kill(agent_, SIGCONT);  // it may be stopped, and could not see that the launcher is gone", "", "agent_life_test"),
    ("a suspended job waits for ever", "launcher/agent/agent.cpp", "Milliseconds(options_.suspended_lease_ms)", "Milliseconds(24 * 3'600'000)", "agent_life_test"),
    ("ranks that are more than the CPUs have sessions of their own", PREPARED, "ranks <= cpus) return false;", "ranks > 0) return false;", "agent_rank_process_test"),
    ("all ranks share a session", PREPARED, "if (cpus == 0 || ranks <= cpus) return false;", "if (cpus == 0 || ranks == 0) return false;", "agent_rank_process_test"),
    ("the ranks of one session share the agent's process group", "launcher/process/spawn.cpp", "need(SpawnStage::kSession, raw_call(SYS_setpgid, 0, 0));", "", "agent_rank_process_test"),
    ("a rank that has left its process group gets no signal", RANKS, "  if (::getpgid(rank) != rank) ::kill(rank, signal);\n", "", "agent_rank_process_test"),
    ("a rank's child of another process group is nobody's", OWNER, "pid = process->parent;", "return -1;", "agent_rank_processes_test"),
    ("the environment does not tell whose a process is", OWNER, "if (environment_has(pid, own)) return rank.rank;", "", "agent_rank_processes_test"),
    ("another job's process is a rank's", OWNER, "  if (!mark.empty() && !environment_has(pid, mark)) return -1;\n", "", "agent_rank_processes_test"),
    ("a yield that hands the core to another program is worth it", "collectives/memory/futex.h", "now - begin > kLongTurn", "false", "collectives_test"),
    ("ranks that were ended are not marked", RANKS, "rank.ended_by_us = true;\n    groups.insert", "groups.insert", "agent_life_test"),
    ("the shim does not look after ranks", KEEPER, "tell(kill_strays(scope, share_.cgroup, kSweepPatience));", "", "agent_life_test"),
    ("the lease is not kept", "launcher/agent/agent.cpp", "[this] { on_lease_over(); }", "[] {}", "agent_life_test"),
    ("credit is not asked for", PUMP, "const std::size_t credit = discarding_ ? kReadChunk : window_ - std::min(window_, in_flight_);", "const std::size_t credit = kReadChunk;", "agent_output_test"),
    ("credit does not come back", PUMP, "in_flight_ -= std::min(in_flight_, bytes);", "(void)bytes;", "agent_output_test"),
    ("a stream's end is not told", PUMP, "append_frame(link_.outgoing(), FrameType::kOutputEnd, payload);", "", "agent_ranks_test agent_output_test"),
    ("a wrong code for a missing program", "launcher/agent/rank_program.cpp", "{failure::kProgramNotFound, kExitNotFound}", "{failure::kProgramNotFound, kExitCannotExecute}", "agent_ranks_test"),
    # --- what is trusted
    ("a damaged agent is used", IMAGE, "if (*found != hash) return refused", "if (false) return refused", "agent_image_test"),
    ("somebody's note is believed", IMAGE, "|| info.st_uid != ::geteuid()) return false;", ") return false;", "agent_image_test"),
    ("an agent that others may write is used", IMAGE, "if ((own.st_mode & kOthersWrite) != 0)", "if (false)", "agent_image_test"),
    ("a cache of another user's is used", FOLDER, "if (info.st_uid != ::geteuid()) {", "if (false) {", "agent_staging_test"),
    ("a cache that others may replace is used", FOLDER, "HORA_TRY(check_parent(directory.get(), path));", "", "agent_staging_test"),
    ("the cache stays open to others", FOLDER, "(info.st_mode & kOthers) != 0 && ::fchmod", "false && ::fchmod", "agent_staging_test"),
    ("hosts that share a home ship to one name", BOOT, "_t=$_d/.ship-$_k; ", "_t=$_d/.ship-$$; ", "transports_bootstrap_test"),
    ("an agent that runs on another host is replaced", BOOT, '[ $_f = 0 ] && { ln', 'false && { ln', "transports_bootstrap_test"),
    ("a free lock proves everything", FOLDER, "if (!here_.empty() && place == here_) {", "if (true) {", "agent_staging_test"),
    ("debris of other hosts stays for ever", FOLDER, "owner.gone = owner.age_s && *owner.age_s > kAbandonedAfterS;", "", "agent_staging_test agent_cache_use_test"),
    ("a bundle has one place", DELIVERIES, "place_ + 1 >= places_.size()", "true", "agent_staging_test"),
    ("nobody marks what is used", DELIVERIES, "place.mark.emplace(std::move(*made));", "", "agent_cache_use_test agent_staging_test"),
    ("a mark is looked for once only", CLEAN, "  auto use = use_of(directory, name);\n  // If", "  Found use = std::optional<Use>();\n  // If", "agent_cache_use_test"),
    ("limits take what is in use", "launcher/agent/cache_choice.cpp", "if (item.in_use) {", "if (false) {", "agent_cache_choice_test"),
    ("a job that ends leaves its bundle old", DELIVERIES, "for (const Place& place : places_) note_use_of(place);", "", "agent_cache_clean_test"),
    ("a cleaner removes before it looks aside", CLEAN, "  if (::renameat(directory.fd(), name.c_str(), directory.fd(), aside.c_str()) != 0) {", "  if (auto gone = remove_tree(path); !gone) return gone.error(); else if (true) return std::optional<Use>(); else {", "agent_cache_clean_test"),
    ("an agent that was killed keeps its mark", "launcher/agent/shim.cpp", "if (mark[0] != '\\0') (void)remove_tree(mark);", "", "agent_cache_use_test"),
    ("paths may lead out", "launcher/agent/safe_path.cpp", 'if (part == "..") return refused(path, "leads outside");', "", "agent_staging_test"),
    ("a damaged file is taken", "launcher/agent/file_unpacker.cpp", "if (hasher_->hex() != packed_sha256_) {", "if (false) {", "agent_staging_test"),
    ("a foreign directory is used to start", BOOT, '_i && [ -O \\"$_d\\" ]; then', '_i; then', "transports_bootstrap_test"),
    ("a link is followed to start", BOOT, '[ -L \\"$_d\\" ] || { _p && exec', '{ _p && exec', "transports_bootstrap_test"),
    ("an agent that another host sent is started unseen", "launcher/transports/fetch_script.cpp", "case $(sha256sum <\\\"$t\\\") in $h*)", "case $(sha256sum <\\\"$t\\\") in *)", "transports_bootstrap_test"),
    ("what fetches the agent outlives the launcher", "launcher/transports/fetch_script.cpp", "kill -9 $_p -$_p; wait $_p;", ":;", "transports_bootstrap_test"),
    ("an agent's program is anybody's", "launcher/agent/image_server.cpp", "if (!equals_in_constant_time(line, server_.request_)) return", "if (false) return", "agent_image_test"),
    ("strangers keep the peers of the job out", "launcher/agent/peer_server.cpp", "if (peers_.size() - served_ >= limits_.strangers) drop_oldest_stranger();", "if (peers_.size() - served_ >= limits_.strangers) return;", "agent_peer_server_test"),
    ("a peer that reads nothing keeps its place", "launcher/agent/peer_server.cpp", "if (peers_.at(number).deadline < now) drop(number);", "", "agent_peer_server_test"),
    ("any program of Python is a launcher", "launcher/options/other_launchers.cpp", "return module > 0 && has(kModules, command[module]) ?", "return module > 0 ?", "command_line_test"),
    ("a rank may be any number", "launcher/plan/rank_list.cpp", "if (*last >= kMaxRanks) {", "if (false) {", "launch_core_test"),
    ("an error shows bytes that steer a terminal", "launcher/text/spec_location.cpp", "visible_line(line.text.substr(first, last - first))", "std::string(line.text.substr(first, last - first))", "launch_core_test"),
    ("an answer to an offer that is over counts", "launcher/transports/agent_link.cpp", "if (news.number == 0 || news.number != fetching.number) return;", "", "transports_link_test"),
    ("a source of another processor is named", "launcher/fleet/agent_delivery.cpp", "plans_.try_emplace(machine,", 'plans_.try_emplace("any",', "fleet_test"),
    ("a host fetches for as long as it likes", "launcher/fleet/agent_delivery.cpp", "[this, host] { on_late(host); }", "[] {}", "fleet_test"),
    ("who cannot fetch keeps its place at a source", "launcher/sharing/share_plan.cpp", "case State::kFetching:\n      end_fetch(member);\n      break;", "case State::kFetching:\n      break;", "share_plan_test"),
    ("rank 0 lets in who has no token", DOOR, "if (!proof || !in.ok() || !equals_in_constant_time(given, expected)) {", "if (!proof || !in.ok()) {", "collectives_test"),
    ("a rank talks to who has no token", "collectives/control/tcp_control.cpp", """return make_error(ErrorCode::kDenied,
                      "the process at rank 0's address does not know the job token");""", "", "collectives_test"),
    ("the proof is the same every time", DOOR, "candidate.own_nonce = os::random_bytes(kNonceBytes);", "candidate.own_nonce = std::string(kNonceBytes, 'n');", "collectives_test"),
    ("strangers may take the last descriptor", DOOR, "if (turn_one_away()) continue;", "", "collectives_test"),
    ("any token opens the store", ACCESS, "if (!token.empty() && shows_token(authorization, token)) return true;", "if (!token.empty()) return true;", "rendezvous_server_test"),
    ("any address opens the store", ACCESS, "[&](const Cidr& network) { return network.contains(peer); }", "[&](const Cidr&) { return true; }", "rendezvous_server_test"),
    ("a rank that waits for its leader is missing", "collectives/runtime/attendance.cpp", "std::erase_if(missing, [&](int rank) { return came.count(std::to_string(rank)) > 0; });", "", "collectives_test"),
    ("a rank that misses others does not ask who they are", "collectives/runtime/control_meeting.cpp", "if (auto told = attendance_.told()) return *std::move(told);\n    return world;", "return world;", "collectives_test"),
    ("who gives up a meeting tells nobody", "collectives/runtime/attendance.cpp", "static_cast<void>(store_.set(told_key_, error.message, soon()));", "", "collectives_test"),
    ("the launcher does not say where ranks are", "launcher/job/job_rendezvous.cpp", "rendezvous::encode_rank_hosts(ranks)", "std::string()", "integration/test_missing_ranks.py::test_on_one_host"),
    ("rank 0 does not stand in for those who miss a meeting", "collectives/runtime/meeting_point.cpp", "HORA_TRY(mark_missing(place));", "", "integration/test_started_world.py::test_all_that_come_are_told_who_does_not"),
    ("two turns decide the duel of autotuning", "collectives/autotune/autotuner.cpp", "std::clamp<std::size_t>(all / 6, 1, kMostTurns)", "std::clamp<std::size_t>(all / 6, 1, 2)", "collectives_test"),
    # --- machines that dial, steps of engines, pods
    ("a machine that dials may announce a long message", DIAL, "if (length && *length > largest_) {", "if (false) {", "dial_test"),
    ("the name of a machine may be any text", DIAL, "std::all_of(name.begin(), name.end(), fits)", "fits('a')", "dial_test"),
    ("the name of a machine may be an option", DIAL, "name.front() != '-' &&", "", "dial_test"),
    ("a machine joins twice", ROSTER, 'if (twin != nullptr) return {"", known_as + " has joined already"};', "", "dial_test"),
    ("a machine joins that was not asked for", ROSTER, "if (wanted == nullptr) {", "if (false) {", "dial_test"),
    ("a text for --join may be cut", "launcher/dial/join_url.cpp", "secret.size() != kFingerprintDigits + kTokenDigits ||", "", "dial_test"),
    ("the token of --listen is not looked at", DIALLED, "if (!equals_in_constant_time(request->token, url_.token)) {", "if (false) {", "integration/test_join.py::test_the_wrong_secret_is_refused_at_once"),
    ("a host's word goes into a command as it is", STEP, 'if (word == "need" && is_step(rest))', 'if (word == "need")', "step_test"),
    ("what a host says of its failure steers the terminal", STEP, "visible_line(trim(rest.substr(end)))", "std::string(trim(rest.substr(end)))", "step_test"),
    ("a failure is two hosts' lines", STEP, 'std::string(host) + " " + visible_line(why) +', 'std::string(host) + " " + std::string(why) +', "step_test"),
    ("a name is two nodes of a step", STEP, 'host.name.find_first_of(", []") != std::string::npos', "false", "step_test"),
    ("a pod that is being deleted goes on", PODS, "pod.leaving = disrupted != nullptr || !pod.leaves_at.empty();", "pod.leaving = false;", "pods_test"),
    ("the first pod by name has ended the job", PODS, "std::tie(a.words_are_ours, a.leaves_at) < std::tie(b.words_are_ours, b.leaves_at)", "a.name < b.name", "pods_test"),
    ("a pod that ended for want of work has ended the job", PODS, "found->words.find(kNobodyWorks) == std::string::npos", "true", "pods_test"),
    ("how a deleted pod's containers end is the reason", PODS, "if (pod.words.empty() && !pod.leaving) pod.words", "if (pod.words.empty()) pod.words", "pods_test"),
    ("the last words of a pod steer the terminal", PODS, "return shortened(visible_line(words), kLongestWords);", "return shortened(words, kLongestWords);", "pods_test"),
    ("a pod runs whose container does not", PODS, 'if (is_worker && !at(each, {"state", "running"}).is_object()) started = false;', "", "pods_test"),
    ("a Job without pods is waited for", PODS, "if (job.workers < 1) {", "if (false) {", "pods_test"),
    ("Kubernetes replaces a pod that was lost", "launcher/pods/pod_manifest.cpp", '{"backoffLimit", 0},', "", "pods_test"),
    # --- what is said and stored
    ("a carriage return is lost", LINE, "after_return_ = true;", "", "launch_core_test"),
    ("an unfinished line is lost", LINE, "if (!held_.empty()) emit({}, true, timestamp, out);", "held_.clear();", "launch_core_test"),
    ("a frame one byte too short", FRAME, "position_ += kFrameHeaderSize + length;", "position_ += kFrameHeaderSize + length - (length > 70000 ? 1 : 0);", "protocol_test"),
    ("frames of any length", FRAME, "if (length > kMaxFramePayload) {", "if (false) {", "protocol_test"),
    ("waiters of a key are not woken", KV, "finish_wait(client, {.status = 200, .body = value});", "", "rendezvous_service_test"),
    ("a batch of before is answered", KV_TABLE, "stored_bytes_ += shared->size();\n  scope.batch.reset();", "stored_bytes_ += shared->size();", "rendezvous_service_test"),
    ("a wait never ends", KV, "finish_wait(client, status_only(404));", "", "rendezvous_service_test"),
    ("who is done counts twice", KV_TABLE, "scope.done.emplace(key);", "scope.done.emplace(std::string(key) + std::to_string(scope.done.size()));", "rendezvous_service_test"),
    ("the store has no limit", KV_TABLE, "return stored_bytes_ - freed + key.size() + value_bytes <= limits_.total_bytes;", "return true;", "rendezvous_service_test"),
    ("slow requests are waited for", CONN, "if (now < request_deadline()) return Fate::kKeep;", "return Fate::kKeep;", "rendezvous_server_test"),
    # --- what is left of a job
    ("a file that is cut off is no failure", END, "if (end.records_lost) return kExitLauncher;", "", "launcher_test " + LOST),
    ("a lost record hides a rank's code", END, "if (const int code = outcome.exit_code(); code != 0) return code;", "const int code = outcome.exit_code();", "launcher_test"),
    ("files are not closed before the end", "launcher/output/output_sinks.cpp", "if (stream.file.valid()) writer_.close(std::move(stream.file));", "", LOST + "::test_what_is_refused_late"),
    ("what is refused when a file is closed is not told", "launcher/output/output_writer.cpp", "if (error != 0 && !is_known) tell_broken(item.fd, error);", "", "launcher_test " + LOST + "::test_what_is_refused_late"),
    ("a report is not waited for", "rendezvous/os/atomic_file.cpp", 'while (!beside_.empty() && ::fsync(file_.get()) != 0', "while (false", LOST + "::test_what_is_refused_late"),
    ("a timeline that is cut off is not told", "collectives/trace/timeline.cpp", "if (on_lost_) on_lost_(file_.failure());", "", LOST + "::test_a_timeline"),
    # --- who is where, and who agrees
    ("cross ranks count hosts without the slot", PLAN, "slot.cross_size = sharing[static_cast<std::size_t>(slot.local_rank)];", "slot.cross_size = static_cast<int>(plan.hosts.size());", "launch_core_test"),
    ("a tensor runs when most have asked", COORD, "if (entry.arrived + set.joined_count == static_cast<int>(set.ranks.size())) {", "if (entry.arrived + set.joined_count + 1 >= static_cast<int>(set.ranks.size())) {", "collectives_test"),
    ("a mismatch is not seen", COORD, "entry.mismatch = describe_mismatch(entry.first_rank, entry.first, rank, request);", "", "collectives_test"),
    ("a request counts twice", COORD, "if (entry.has_arrived[at]) return;", "", "collectives_test"),
    # --- children, disks, keys
    ("the end of a child without a pidfd is not looked for", "launcher/process/captured_run.cpp", "if (child.ended_fd() < 0) pause = std::min(pause, kLookAgain);", "", "process_test"),
    ("what a captured program leaves behind lives on", "launcher/process/piped_child.cpp", "::kill(-pid_, SIGKILL);", "::kill(pid_, SIGKILL);", "process_test"),
    ("errno does not travel with an error", "rendezvous/base/result.cpp", "generic_category().message(errnum), errnum};", "generic_category().message(errnum), 0};", "rendezvous_base_test agent_staging_test"),
    ("a full disk is read off the words of a path", DELIVERIES, "return error.errnum == ENOSPC || error.errnum == EDQUOT;", 'return error.message.find("No space left") != std::string::npos;', "agent_staging_test"),
    ("the limit of a stage outlives it", "launcher/transports/stage_limit.h", "    cancel();\n    began_", "    began_", "transports_link_test"),
    ("a revoked host key is trusted", "launcher/transports/ssh_host_key.cpp", "if (find_revocation(target.host_keys, result)) return result;", "", "transports_link_test"),
    ("the last known_hosts file decides", "launcher/transports/ssh_host_key.cpp", "      result.known_in = file;\n      return;\n    }\n    if (found", "      result.known_in = file;\n    }\n    if (found", "transports_link_test"),
]

# The defences of docs/security.md, one taken away at a time: its attack test must notice.
SECRETS, HOSTILE, TLS = "integration/security/test_secrets.py", "integration/security/test_hostile_host.py", "integration/security/test_tls.py"
RUN, LOOP_OF_JOB = "launcher/runs/run.cpp", "launcher/supervisor/supervisor.cpp"
WIRE, CHANNEL, DESK = "launcher/elastic/horovod_wire.cpp", "collectives/python/hora/channel.py", "collectives/python/hora/desk.py"
LOOP, OUT, COLLECTOR = "rendezvous/os/event_loop.cpp", "rendezvous/http/output_queue.cpp", "launcher/agent/stack_collector.cpp"
REFUSALS, SERVER = "launcher/transports/ssh_refusals.cpp", "rendezvous/kv_server.cpp"

BUGS += [(f"security: {name}", *rest) for name, *rest in [
    ("the token is logged", RUN, "std::to_string(rendezvous_->port()));", "std::to_string(rendezvous_->port()) + context_.identity.token);", SECRETS + "::test_the_token_is_in_no_command_line_log_or_report"),
    ("the token is in the report and its events", LOOP_OF_JOB, "narrator_.open(*loop_, job_.identity.job_id);", "narrator_.open(*loop_, job_.identity.token);", SECRETS + "::test_the_token_is_in_no_command_line_log_or_report"),
    ("the token is in a command line", "launcher/job/orders.cpp", "order.argv = spec.command;", "order.argv = spec.command;\n    order.argv.push_back(identity.token);", SECRETS + "::test_the_token_is_in_no_command_line_log_or_report"),
    ("all jobs have one token", LOOP_OF_JOB, "identity.token = os::random_token();", 'identity.token = std::string(32, \'7\');', SECRETS + "::test_two_jobs_have_two_tokens"),
    ("the token of another job travels", "launcher/plan/worker_environment.cpp", "rendezvous::is_job_variable(name) || is_secret_of_ours(name) ||", "", SECRETS),
    ("the job's folder is open to others", "launcher/agent/job_directory.cpp", "::mkdir(path.c_str(), 0700)", "::mkdir(path.c_str(), 0755)", SECRETS + "::test_what_a_job_leaves_or_holds_is_its_users_alone"),
    ("shared memory is open to others", "collectives/memory/segment.cpp", "O_CREAT | O_EXCL | O_CLOEXEC, 0600)", "O_CREAT | O_EXCL | O_CLOEXEC, 0666)", "collectives_test"),
    ("a prepared cache that is a link is filled", BOOT, 'if [ -L \\"$_d\\" ]; then return 1; fi;', ":;", "transports_bootstrap_test integration/ssh/test_cache.py::test_a_directory_that_somebody_else_made"),
    ("a prepared cache of another user's is filled", BOOT, '[ -O \\"$_d\\" ] || return 1;', ":;", "transports_bootstrap_test integration/ssh/test_cache.py::test_a_directory_that_somebody_else_made"),
    ("a cache that others may replace is filled", BOOT, '_p || return 1;', ":;", "transports_bootstrap_test"),
    ("a cache that others may replace is started from", BOOT, '{ _p && exec', '{ exec', "transports_bootstrap_test"),
    ("an agent that was changed on its way is used", "launcher/transports/agent_link.cpp", "!has_build(options_.image, message->agent_sha256)", "false", "transports_link_test integration/ssh/test_cache.py::test_an_agent_that_is_not_what_was_sent_is_refused"),
    ("a bundle that has lost a file is used", CACHE, "if (!whole) return std::nullopt;", "(void)whole;", "agent_staging_test"),
    ("links of a bundle lead out", "launcher/agent/safe_path.cpp", 'if (--depth < 0) return refused(path, "links outside");', "--depth;", "agent_staging_test"),
    ("links of a bundle are followed", "launcher/agent/file_unpacker.cpp", "O_EXCL | O_NOFOLLOW | O_CLOEXEC", "O_CLOEXEC", "agent_staging_test"),
    ("a changed host key is taken", REFUSALS, "    case Trust::kChanged:\n", "    case Trust::kChanged:\n      return std::nullopt;\n", "integration/ssh/test_connect.py::test_changed_host_key"),
    ("an unknown host key is taken", REFUSALS, "if (target.host_keys.checking != HostKeyChecking::kYes) return std::nullopt;", "return std::nullopt;", "integration/ssh/test_connect.py::test_unknown_host_key"),
    ("the rendezvous asks for no token", ACCESS, "if (!token.empty() && shows_token(authorization, token)) return true;", "return true;", "integration/security/test_rendezvous.py::test_without_the_token_there_is_nothing_to_get"),
    ("the token is asked for behind the body", CONN, "reply_to(*admission.refusal, form_.keep_alive && !has_body && known_);", "reply_to(*admission.refusal, form_.keep_alive && known_);", "rendezvous_server_test"),
    ("bodies of any length are kept", "rendezvous/kv_connection.cpp", "reader_.allow_body(admission.body_limit);", "reader_.allow_body(UINT64_MAX);", "rendezvous_server_test"),
    ("who idles makes no room", SERVER, "if (leaving.empty()) leaving = oldest(idle);", "", "rendezvous_server_test"),
    ("who drips a head makes no room", SERVER, "if (leaving.empty()) leaving = oldest(slow);", "", "rendezvous_server_test"),
    ("any certificate is the job's", "rendezvous/tls/module.cpp", "if (CRYPTO_memcmp(found, session->expected, kDigest) == 0) return 1;", "return 1;", TLS + "::test_another_certificate_is_refused_by_name"),
    ("a first message of TLS may be long", "rendezvous/tls/tls_stream.cpp", "kLargestHello = 4 * 1024;", "kLargestHello = 64 * 1024;", "rendezvous_tls_test"),
    ("strangers have no limit", SERVER, "unauthenticated_.size() > options_.max_unauthenticated", "false", "rendezvous_tls_test"),
    ("strangers may have all places", SERVER, "options_.max_connections / 2", "options_.max_connections", "rendezvous_server_test"),
    ("strangers have the loop's time as agents have", SERVER, "os::EventLoop::Priority::kBackground", "os::EventLoop::Priority::kNormal", "rendezvous_server_test"),
    ("a crowd in the background has a whole turn", LOOP, "kBackgroundBatch = 64", "kBackgroundBatch = 4096", "rendezvous_os_test"),
    ("what is behind a crowd is not looked at", LOOP, "look = background.count == kBackgroundBatch;", "look = false;", "rendezvous_os_test"),
    ("timers are due before all was handled", LOOP, "const std::size_t most = normal_watches_ + 1;", "const std::size_t most = 256;", "rendezvous_os_test"),
    ("a connection has a whole turn", CONN, "kRequestsPerTurn = 16", "kRequestsPerTurn = 1 << 20", "rendezvous_server_test"),
    ("a refused stranger goes on", CONN, "form_.keep_alive && !has_body && known_", "form_.keep_alive && !has_body", "rendezvous_server_test"),
    ("a stranger asks many things in line", CONN, "form_.keep_alive && (known_ || last_of_its_bytes)", "form_.keep_alive", "rendezvous_server_test"),
    ("a stranger need not take his answers", CONN, "return unauthenticated() ? has_output() :", "return", "rendezvous_server_test"),
    ("what was sent is kept until all was", OUT, "  forget_sent();\n", "", "rendezvous_server_test"),
    ("the oldest stranger goes, wherever from", "rendezvous/unauthenticated_peers.cpp", "if (a.second.size() != b.second.size()) return a.second.size() < b.second.size();", "", "rendezvous_tls_test rendezvous_server_test rendezvous_service_test"),
    ("a door that had no room looks at its word no more", DOOR, "      look_again_ = Clock::now() + kRoomPause;\n", "", "collectives_test"),
    ("a flood keeps rank 0 at its door", DOOR, "i < kAcceptsPerTurn", "true", "collectives_test"),
    ("a flood keeps an agent at its collector", COLLECTOR, "i < kAcceptsPerTurn", "true", "agent_stack_collector_test"),
    ("a talker keeps an agent at its collector", COLLECTOR, "i < kReadsPerTurn", "true", "agent_stack_collector_test"),
    ("rank 0's door has no limit", DOOR, "if (candidates_.size() >= static_cast<std::size_t>(self_.size) + kMaxUnauthenticated)\n      turn_one_away();", "", "collectives_test"),
    ("a pickle may be nested without end", WIRE, "kDeepest = 16;", "kDeepest = 1u << 30;", "elastic_test"),
    ("a pickle may cost what it likes", WIRE, "return spent_ <= kMostWork;", "return true;", "elastic_test"),
    ("the key of hora.run is not looked at", CHANNEL, "if not hmac.compare_digest(code, self._code(self._theirs, self._received, body)):", "if False:", "python/test_run.py::test_strangers_get_nothing"),
    ("messages of hora.run may come again", CHANNEL, "head = side + _LENGTH.pack(number) + _LENGTH.pack(len(body))", "head = side + _LENGTH.pack(len(body))", "python/test_run.py::test_messages_cannot_be_replayed_or_changed"),
    ("messages of hora.run may be sent back", CHANNEL, '(b"server", b"worker") if is_server else (b"worker", b"server")', '(b"worker", b"worker")', "python/test_run.py::test_messages_cannot_be_replayed_or_changed"),
    ("strangers may announce long messages to hora.run", CHANNEL, "limit = _MAX_MESSAGE if self._received else 64", "limit = _MAX_MESSAGE", "python/test_run.py::test_strangers_get_nothing"),
    ("the desk of hora.run has no limit", DESK, "            if crowded:\n", "            if False:\n", "python/test_run.py::test_a_crowd_of_silent_strangers_keeps_no_rank_out"),
    ("a host's exit of another's rank is believed", TALK, 'if (rank == ranks_.end()) return violation("exit of a rank that is not of this host");', "if (rank == ranks_.end()) return AgentMessage(std::move(*exit));", "protocol_test " + HOSTILE + "::test_a_lying_host"),
    ("a host's output of another's rank is believed", TALK, 'if (found == ranks_.end()) return violation("of a rank that is not of this host");', "if (found == ranks_.end()) return &ranks_[rank];", "protocol_test"),
    ("a host's output has no credit", TALK, "output_credit_ -= output.bytes().size();  // admit() has looked", "", "protocol_test"),
    ("frames of a host have no turn", TALK, 'if (!has_turn(header.type)) return violation(name + ": out of turn");', "", "protocol_test"),
    ("frames of a host have any length", TALK, "if (header.length > most) {", "if (false) {", "protocol_test " + HOSTILE + "::test_a_lying_host"),
    ("a host tells of GPUs without end", TALK, "ordered_ && gpu_faults_ < kMostGpuFaults", "ordered_", "protocol_test " + HOSTILE + "::test_a_lying_host"),
    ("a host logs without end", TALK, "return log_lines_ < kMostLogLines;", "return true;", "protocol_test " + HOSTILE + "::test_a_lying_host"),
    ("an exit is told twice", TALK, "if (std::exchange(rank->second.exited, true)) return", "if (false) return", "protocol_test"),
    ("input is acknowledged that was not sent", TALK, "if (!bytes || *bytes > (*rank)->input) {", "if (!bytes) {", "protocol_test"),
    ("probes are answered with other addresses", TALK, "if (result && !answers(*result, asked)) {", "if (false) {", "protocol_test"),
    ("a fault of a GPU names another host's rank", TALK, "if (fault->rank >= 0 && ranks_.count(fault->rank) == 0) {", "if (false) {", "protocol_test"),
    ("an exit code of 256 is believed", LIMITS, '.number("exit_code", m.exit_code, 0, 255)', '.number("exit_code", m.exit_code, 0, 256)', "protocol_test " + HOSTILE + "::test_a_lying_host"),
    ("a host's clock is believed", LIMITS, '.number("clock_ns", m.clock_ns, 0, kLatestClockNs)\n      .list(', ".list(", "protocol_test"),
    ("two billion GPUs are believed", LIMITS, '.number("gpus", m.gpus, 0, kMostGpus)', "", "protocol_test"),
    ("what a host logs steers the terminal", LIMITS, "if (kind == Kind::kLine) text = visible_line(text);", "", "protocol_test " + HOSTILE + "::test_what_a_host_logs_steers_no_terminal"),
    ("a host fails in another's name", "launcher/report/outcome_text.cpp", "return adds ? visible_line(failure.subject) : name;", "return failure.subject.empty() ? name : failure.subject;", "launcher_test " + HOSTILE + "::test_a_lying_host"),
    ("a host writes lines of ours", "launcher/report/outcome_text.cpp", 'text += (indented ? "" : "  ") + std::string(line)', "text += std::string(line)", "launcher_test " + HOSTILE + "::test_a_lying_host"),
    ("a host's goodbye without exits is believed", STATE, "(agent_ended_ranks_ || e.missing_exits > 0)", "agent_ended_ranks_", HOSTILE + "::test_a_lying_host"),
    ("an agent takes orders that cannot be", "launcher/agent/order_check.cpp", "if (rank.rank < 0 || !ranks.insert(rank.rank).second) {", "if (false) {", "agent_life_test"),
    ("an agent takes a second order", "launcher/agent/agent.cpp", 'if (job_) return fail_protocol("a second order");', "", "agent_life_test"),
    ("another user's stack traces are taken", "launcher/agent/stack_collector.cpp", "who.uid != ::geteuid()", "false", SECRETS + "::test_stack_traces_of_another_user_are_not_taken"),
    ("probes answer with one word", "launcher/agent/prober.cpp", "nonce_(os::random_token())", "nonce_(std::string(32, 'n'))", "agent_probe_test"),
    ("output is written through links of others", "launcher/output/output_sinks.cpp", "? 0 : O_NOFOLLOW", "? 0 : 0", "integration/test_output.py::test_files_follow_nobody_in_a_folder_of_others"),
    ("an agent leaves its cgroup", "apps/agent/main.cpp", '(void)!::chdir("/");', '(void)!::chdir("/");\n  for (const char* out : {"/sys/fs/cgroup/pids/cgroup.procs", "/sys/fs/cgroup/cgroup.procs"}) {\n    if (std::FILE* file = std::fopen(out, "w")) std::fputs("0", file), std::fclose(file);\n  }', "integration/security/test_limits.py"),
    ("ranks get more descriptors than they had", "launcher/agent/prepared_job.cpp", "request.open_files_limit = open_files_limit_;", "", "agent_rank_process_test"),
]]
