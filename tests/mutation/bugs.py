"""Bugs, put into a copy of the code one at a time: (name, file, what stands there once, what is put there,
the unit tests that must notice). tests/mutation/check.py applies them."""

STATE, PUMP, JOB = "launcher/job/job_state.cpp", "launcher/agent/output_pump.cpp", "launcher/agent/host_job.cpp"
KV, LINE, FRAME = "rendezvous/kv_service.cpp", "launcher/output/line_tagger.cpp", "launcher/protocol/frame.cpp"
IMAGE, CACHE, BOOT = "launcher/agent/own_image.cpp", "launcher/agent/bundle_cache.cpp", "launcher/transports/bootstrap.cpp"
DOOR, COORD, PLAN = "collectives/control/tcp_control.cpp", "collectives/negotiation/coordinator.cpp", "launcher/plan/plan.cpp"
CONN, ACCESS = "rendezvous/kv_connection.cpp", "rendezvous/kv_access.cpp"
EPOCHS = "launcher/elastic/elastic_epochs.cpp"

BUGS = [
    # --- who is ended, when and why
    ("exit codes are ORed", STATE, "outcome_.cause->exit_code = exit_code_of(outcome_.cause->exit);", "outcome_.cause->exit_code |= exit_code_of(outcome_.cause->exit);", "launcher_test"),
    ("signals count as codes", STATE, "return exit.signal != 0 ? 128 + exit.signal : exit.exit_code;", "return exit.exit_code;", "launcher_test"),
    ("a rank that we ended is the cause", STATE, "if (!failed(e.exit) || e.exit.terminated_by_us) return;", "if (!failed(e.exit)) return;", "launcher_test"),
    ("the first report is the cause, not the first failure", STATE, "return a.second.when < b.second.when;", "return a.first < b.first;", "launcher_test"),
    ("one host is not told to end", STATE, "} else if (hosts_[host] < HostPhase::kFinished) {", "} else if (host > 0 && hosts_[host] < HostPhase::kFinished) {", "launcher_test"),
    ("no deadline for the end", STATE, "if (hosts_[host] >= HostPhase::kFinished) continue;", "continue;", "launcher_test"),
    ("a second signal gives more time", STATE, "std::min(end_deadline_.value_or(TimePoint::max()), now + grace + kSweepTime)", "now + grace + kSweepTime", "launcher_test"),
    ("a goodbye without exits is a success", STATE, "(ended_there || e.missing_exits > 0)", "(ended_there)", "launcher_test"),
    ("a lost host is no failure", STATE, "if (phase_ != Phase::kEnding) {\n    end(std::move(cause), now, options_.grace, actions);\n  } else if", "if (false) {\n  } else if", "launcher_test"),
    ("ranks start when one host is ready", STATE, "if (phase_ == Phase::kPreparing && all_hosts_at_least(HostPhase::kReady)) {", "if (phase_ == Phase::kPreparing) {", "launcher_test"),
    ("the start never times out", STATE, "if (phase_ < Phase::kRunning && now >= start_deadline_) {", "if (false && now >= start_deadline_) {", "launcher_test"),
    ("the third signal waits", STATE, "end_deadline_ = now;\n", "", "launcher_test"),
    ("a rank that dies of a silent host is blamed", STATE, "e.silent_since < cause_time_", "false", "launcher_test"),
    # --- the epochs of elastic jobs
    ("nobody is fenced", EPOCHS, "if (worker(seat.worker).phase != WorkerPhase::kRunning) continue;", "continue;", "elastic_test"),
    ("an epoch begins without waiting for all", EPOCHS, "if (all_recorded()) evaluate(now, actions);", "evaluate(now, actions);", "elastic_test"),
    ("a host is used while it is left alone", "launcher/elastic/host_registry.cpp", "if (entry.listed && !barred && ", "if (entry.listed && ", "elastic_test"),
    ("new ranks push survivors out", "launcher/elastic/epoch_plan.cpp", "const int kept = std::min(offer.survivors, left);", "const int kept = std::min(offer.survivors + offer.room, left);", "elastic_test"),
    ("rank 0 need not know the state", "launcher/elastic/epoch_plan.cpp", "return offer.survivors > 0 && offer.has_state;", "return false;", "elastic_test"),
    ("who has died is sent away instead", EPOCHS, "return worker(id).phase != WorkerPhase::kAsking;", "return false;", "elastic_test"),
    ("a void order is used", EPOCHS, "if (life(id).phase == LifePhase::kOrdered || life(id).phase == LifePhase::kReady) {", "if (false) {", "elastic_test"),
    ("who is not needed stays", "launcher/elastic/elastic_state.cpp", "actions.emplace_back(EndWorker{id});", "", "elastic_test"),
    ("the host of a rank that failed goes on", "launcher/elastic/elastic_state.cpp", "if (life(id).host.name == host) end_life(id, actions);", "", "elastic_test"),
    ("an unsigned answer is believed", "launcher/elastic/horovod_wire.cpp", "if (apart != 0) return", "if (false) return", "elastic_test"),
    # --- the agent
    ("SIGCHLD is lost", JOB, "if (rank != ranks_.end()) take_exit(*rank, status, usage);", "if (rank == ranks_.end()) take_exit(*rank, status, usage);", "agent_ranks_test"),
    ("the last words are not drained", JOB, "if (rank.alive || rank.reported || !output_.drain(rank.exit.rank)) continue;", "if (rank.alive || rank.reported) continue;", "agent_output_test agent_ranks_test"),
    ("grace is no limit", JOB, "if (now < *kill_at_) {\n        sweep_again", "if (true) {\n        sweep_again", "agent_life_test"),
    ("a stopped rank is not continued", JOB, "signal_groups(SIGCONT);  // a stopped one could not obey", "", "agent_life_test"),
    # Where there is a cgroup, it ends them as well.
    ("strays are not killed", JOB, """if (JobCgroup* cgroup = prepared_.cgroup()) cgroup->kill();
  // Stopped first, so that none forks while the others are being killed.
  for (const ProcessEntry& stray : left) signal_process(stray, SIGSTOP);
  for (const ProcessEntry& stray : left) signal_process(stray, SIGKILL);""", "", "agent_life_test"),
    ("ranks that were ended are not marked", JOB, "rank.ended_by_us = true;\n      termed_groups_", "termed_groups_", "agent_life_test"),
    ("the keeper does not look after ranks", "launcher/agent/keeper.cpp", "kill_strays(scope, share_.cgroup, kSweepPatience);", "", "agent_life_test"),
    ("the lease is not kept", "launcher/agent/agent.cpp", "on_link_end(\"the launcher has been silent for longer than the lease\");", "", "agent_life_test"),
    ("credit is not asked for", PUMP, "const std::size_t credit = discarding_ ? kReadChunk : window_ - std::min(window_, in_flight_);", "const std::size_t credit = kReadChunk;", "agent_output_test"),
    ("credit does not come back", PUMP, "in_flight_ -= std::min(in_flight_, bytes);", "(void)bytes;", "agent_output_test"),
    ("a stream's end is not told", PUMP, "append_frame(link_.outgoing(), FrameType::kOutputEnd, payload);", "", "agent_ranks_test agent_output_test"),
    ("a wrong code for a missing program", "launcher/agent/prepared_job.cpp", "missing ? kNotFound : kCannotExecute", "kCannotExecute", "agent_ranks_test"),
    # --- what is trusted
    ("a damaged agent is used", IMAGE, "if (*found != hash) return refused", "if (false) return refused", "agent_image_test"),
    ("somebody's note is believed", IMAGE, "|| info.st_uid != ::geteuid()) return false;", ") return false;", "agent_image_test"),
    ("an agent that others may write is used", IMAGE, "if ((own.st_mode & kOthersWrite) != 0)", "if (false)", "agent_image_test"),
    ("a cache of another user's is used", CACHE, "if (info.st_uid != ::geteuid()) {", "if (false) {", "agent_delivery_test"),
    ("a cache that others may replace is used", CACHE, "HORA_TRY(check_parent(directory.get(), path));", "", "agent_delivery_test"),
    ("the cache stays open to others", CACHE, "(info.st_mode & kOthers) != 0 && ::fchmod", "false && ::fchmod", "agent_delivery_test"),
    ("paths may lead out", "launcher/agent/safe_path.cpp", 'if (part == "..") return refused(path, "leads outside");', "", "agent_delivery_test"),
    ("a damaged file is taken", "launcher/agent/file_unpacker.cpp", "if (hasher_->hex() != file.sha256) {", "if (false) {", "agent_delivery_test"),
    ("a foreign directory is used to start", BOOT, '[ -O \\"$_a\\" ] && [ -O \\"$_d\\" ]; then', '[ -O \\"$_a\\" ]; then', "transports_bootstrap_test"),
    ("a link is followed to start", BOOT, '[ -L \\"$_d\\" ] || { _p && exec', '{ _p && exec', "transports_bootstrap_test"),
    ("rank 0 lets in who has no token", DOOR, "if (!proof || !in.ok() || !equals_in_constant_time(given, expected)) {", "if (!proof || !in.ok()) {", "collectives_test"),
    ("a rank talks to who has no token", DOOR, """return make_error(ErrorCode::kDenied,
                      "what answers at rank 0's address does not know the job token");""", "", "collectives_test"),
    ("the proof is the same every time", DOOR, "candidate.own_nonce = os::random_bytes(kNonceBytes);", "candidate.own_nonce = std::string(kNonceBytes, 'n');", "collectives_test"),
    ("strangers may take the last descriptor", DOOR, "if (turn_one_away()) continue;", "", "collectives_test"),
    ("any token opens the store", ACCESS, "if (!token.empty() && shows_token(authorization, token)) return true;", "if (!token.empty()) return true;", "rendezvous_server_test"),
    ("any address opens the store", ACCESS, "[&](const Cidr& network) { return network.contains(peer); }", "[&](const Cidr&) { return true; }", "rendezvous_server_test"),
    # --- what is said and stored
    ("a carriage return is lost", LINE, "after_return_ = true;", "", "launch_core_test"),
    ("an unfinished line is lost", LINE, "if (!held_.empty()) emit({}, true, timestamp, out);", "held_.clear();", "launch_core_test"),
    ("a frame one byte too short", FRAME, "position_ += kFrameHeaderSize + length;", "position_ += kFrameHeaderSize + length - (length > 70000 ? 1 : 0);", "protocol_test"),
    ("frames of any length", FRAME, "if (length > kMaxFramePayload) {", "if (false) {", "protocol_test"),
    ("waiters of a key are not woken", KV, "wake_waiters_of_key(scope, key, shared);", "", "rendezvous_service_test"),
    ("a batch of before is answered", KV, "stored_bytes_ += shared->size();\n  scope.batch.reset();", "stored_bytes_ += shared->size();", "rendezvous_service_test"),
    ("a wait never ends", KV, "ready_.push_back({client, status_only(404)});", "", "rendezvous_service_test"),
    ("who is done counts twice", KV, "scope.done.emplace(target.key);", "scope.done.emplace(std::string(target.key) + std::to_string(scope.done.size()));", "rendezvous_service_test"),
    ("the store has no limit", KV, "return stored_bytes_ - freed + key.size() + value_bytes <= limits_.total_bytes;", "return true;", "rendezvous_service_test"),
    ("slow requests are waited for", CONN, "if (now < request_deadline()) return Fate::kKeep;", "return Fate::kKeep;", "rendezvous_server_test"),
    # --- who is where, and who agrees
    ("cross ranks count hosts without the slot", PLAN, "slot.cross_size = sharing[static_cast<std::size_t>(slot.local_rank)];", "slot.cross_size = static_cast<int>(plan.hosts.size());", "launch_core_test"),
    ("a tensor runs when most have asked", COORD, "if (entry.arrived + set.joined_count == static_cast<int>(set.ranks.size())) {", "if (entry.arrived + set.joined_count + 1 >= static_cast<int>(set.ranks.size())) {", "collectives_test"),
    ("a mismatch is not seen", COORD, "entry.mismatch = describe_mismatch(entry.first_rank, entry.first, rank, request);", "", "collectives_test"),
    ("a request counts twice", COORD, "if (entry.has_arrived[at]) return;", "", "collectives_test"),
]
