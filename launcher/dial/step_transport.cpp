// SPDX-License-Identifier: Apache-2.0
#include "launcher/dial/step_transport.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "launcher/dial/dial_server.h"
#include "launcher/dial/step_process.h"
#include "launcher/failures/failure_code.h"
#include "launcher/process/captured_run.h"
#include "launcher/transports/agent_link.h"
#include "launcher/transports/command_transport.h"
#include "launcher/transports/pacing.h"
#include "launcher/transports/supervisor_socket.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/random.h"

namespace hora::launcher {

// The output of the engine's command comes on one thread, while another asks why the job ended,
// often before the answer has come: a scheduler ends the ranks first and explains later.

namespace {

// With a chatty command the end counts: its last lines say why it ended.
constexpr std::size_t kMostStepOutput = 8 * 1024;
// A scheduler of a busy cluster takes a moment. The job has ended, and its user waits.
constexpr std::chrono::milliseconds kAnswerTimeout{3'000};

}  // namespace

// Both may come in any number of pieces; the waiting thread looks at all that has come.
void EngineWords::receive(std::string_view said) {
  {
    const std::lock_guard lock(mutex_);
    said_ += said;
    if (said_.size() > kMostStepOutput) said_.erase(0, said_.size() - kMostStepOutput);
  }
  changed_.notify_all();
}

void EngineWords::command_ended(const std::string& how) {
  {
    const std::lock_guard lock(mutex_);
    end_ = how;
  }
  changed_.notify_all();
}

std::vector<FailedHost> EngineWords::failed_hosts() {
  if (engine_.failed_hosts == nullptr) return {};
  const std::lock_guard lock(mutex_);
  return engine_.failed_hosts(said_);
}

// The messages say more than the end of the command that they caused.
std::string EngineWords::received(std::chrono::milliseconds timeout) {
  if (engine_.last_word == nullptr) return "";
  std::unique_lock lock(mutex_);
  std::string word;
  const auto known = [&] {
    word = engine_.last_word(said_);
    return !word.empty() || !end_.empty();
  };
  (void)changed_.wait_for(lock, timeout, known);
  return word;
}

// An engine that does not answer, or whose command is not here, knows nothing.
std::string EngineWords::asked() const {
  if (engine_.verdict == nullptr || job_.question.empty()) return "";
  const auto answer = run_captured(job_.question, kAnswerTimeout);
  if (!answer) return "";
  return visible_line(engine_.verdict(job_.job, {answer->exit_code, answer->output}));
}

std::optional<Failure> EngineWords::why_ended(std::chrono::milliseconds timeout) {
  // That is the cause, and named with its host: the engine's command ends the others for it.
  if (!failed_hosts().empty()) return std::nullopt;
  std::string word = received(timeout);
  if (word.empty() && timeout.count() > 0) word = asked();
  if (word.empty()) {
    const std::lock_guard lock(mutex_);
    word = end_;
  }
  if (word.empty()) return std::nullopt;
  return Failure{std::string(failure::kEngine),
                 std::string(engine_.title) + " has ended the job: " + word, ""};
}

// A host of the step is in one of three states: awaited, joined, given up. Requests of the job
// before that is settled wait in `wanted_`. All of it lives on the thread of the server's loop.

namespace {

constexpr auto kStepEndTime = std::chrono::milliseconds(2'000);  // of the step, and after TERM

class StepTransport : public Transport {
 public:
  StepTransport(const JobSpec& spec, DialWay way, const std::vector<Host>& hosts,
                std::shared_ptr<EngineWords> words, StageObserver observer);
  ~StepTransport() override;

  Result<os::Fd> start(const Host& host, int host_index, const AgentImage& image,
                       Clock::time_point deadline) override;

 private:
  Status open(const std::vector<Host>& hosts);
  void run_on_loop(const std::function<void()>& task);  // and waits for it
  void want(HostStart wanted);
  void serve(HostStart wanted);
  void by_command(HostStart wanted);
  void on_joined(const std::string& name);
  void give_up(const std::string& name, const std::string& why);
  void receive(std::string_view said);
  void refuse(HostStart wanted) const;
  void on_step_end(const std::string& how);
  void say(const std::string& text) const;

  const JobSpec& spec_;
  DialWay way_;
  const std::shared_ptr<EngineWords> words_;  // nullptr: not wanted
  StageObserver observer_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool step_ended_ = true;  // guarded by mutex_

  // The server's thread only.
  std::set<std::string> awaited_;
  std::map<std::string, std::vector<HostStart>> wanted_;
  std::map<std::string, std::string> refused_;  // hosts where the engine starts nothing: its words
  bool late_timer_ = false;
  bool reported_ = false;  // why there are commands for each host
  bool leaving_ = false;
  bool served_ = false;  // an agent has been started in the step
  std::unique_ptr<Starter> step_;

  // Their threads call this object, so they end before what is above.
  AgentPayloads payloads_;
  CommandTransport commands_;
  std::unique_ptr<DialServer> server_;  // nullptr: there is no step
};

StepTransport::StepTransport(const JobSpec& spec, DialWay way, const std::vector<Host>& hosts,
                             std::shared_ptr<EngineWords> words, StageObserver observer)
    : spec_(spec),
      way_(std::move(way)),
      words_(std::move(words)),
      observer_(observer),
      commands_({spec.rsh_command, spec.passing_refusal, "",
                 [this](std::string_view printed) {
                   if (words_) words_->receive(printed);
                 }},
                std::move(observer), std::make_shared<FanOut>(spec.fan_out)) {
  if (const auto opened = open(hosts); !opened) {
    server_.reset();
    // Including starts from before.
    way_.make_starter = nullptr;
    way_.begin_early = nullptr;
    say(opened.error().message);
  }
}

// The step begins first: what the launcher does meanwhile, a certificate among it, takes no longer
// than the engine.
Status StepTransport::open(const std::vector<Host>& hosts) {
  if (hosts.empty()) return Ok{};
  if (!way_.make_starter) {
    return make_error(ErrorCode::kNotFound, "this installation has no hora-dial");
  }
  if (way_.begin_early) HORA_TRY(way_.begin_early());
  const auto observer = [this](const DialServer::Event& event) {
    if (!event.joined.empty()) on_joined(event.joined);
  };
  Endpoint any;
  any.address.v6 = true;
  auto server = DialServer::open(any, DialRoster(hosts, 0), observer);
  // A machine without IPv6 has no "::".
  if (!server) server = DialServer::open({IpAddress{}, 0}, DialRoster(hosts, 0), observer);
  if (!server) return std::move(server).error();
  server_ = std::move(*server);
  Status begun = Ok{};
  run_on_loop([&] {
    if (way_.by_helpers) server_->expect_helpers();
    for (const Host& host : hosts) awaited_.insert(host.name);
    step_ = way_.make_starter(
        server_->loop(), format_join_url(server_->url()),
        Starter::Handlers{
            [this](const StepFailure& failure) { give_up(failure.host, failure.why); },
            [this](std::string_view said) { receive(said); },
            [this](const std::string& how) { on_step_end(how); }});
    begun = step_->begin();
    if (!begun) return step_.reset();
    const std::lock_guard lock(mutex_);
    step_ended_ = false;
  });
  return begun;
}

// The machines hang up, their tasks end, and with the last one the engine's command does: there is
// nothing to wait for if all of them were there. Otherwise those that do not end are asked to, and
// killed at last.
StepTransport::~StepTransport() {
  if (!server_) return;
  run_on_loop([this] {
    leaving_ = true;
    wanted_.clear();
  });
  bool left = false;
  if (server_->say_goodbye(0)) {
    run_on_loop(
        [&] { left = awaited_.empty() && refused_.empty() && !reported_ && step_->leave(); });
  }
  const auto wait = [this] {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kStepEndTime, [this] { return step_ended_; });
  };
  if (!left && !wait()) {
    run_on_loop([this] { step_->ask_to_end(); });
    (void)wait();
  }
  run_on_loop([this] { step_.reset(); });
}

// The loop's thread never waits for another one, so this cannot lock up.
void StepTransport::run_on_loop(const std::function<void()>& task) {
  std::promise<void> done;
  server_->loop().post([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

// --- hosts ---------------------------------------------------------------------------------------

Result<os::Fd> StepTransport::start(const Host& host, int host_index, const AgentImage& image,
                                    Clock::time_point deadline) {
  if (!server_) return commands_.start(host, host_index, image, deadline);
  auto pair = make_supervisor_pair(host.name);
  if (!pair) return std::move(pair).error();
  auto wanted =
      std::make_shared<HostStart>(HostStart{pair->transport, host, host_index, image, deadline});
  if (observer_) observer_(host_index, Stage::kConnect, way_.way);
  server_->loop().post([this, wanted] { want(std::move(*wanted)); });
  return std::move(pair->supervisor);
}

// Half of the time is for the step; the other half is enough for a command of its own.
void StepTransport::want(HostStart wanted) {
  const std::string name = wanted.host.name;
  if (awaited_.count(name) == 0) return serve(std::move(wanted));
  if (!std::exchange(late_timer_, true)) {
    const auto timeout = (wanted.deadline - Clock::now()) / 2;
    server_->loop().call_after(timeout, [this] {
      const auto late = awaited_;
      for (const std::string& each : late) give_up(each, "it has not dialled in time");
    });
  }
  wanted_[name].push_back(std::move(wanted));
}

// A host that has left is reached by a command: an elastic job, or a restart, asks for it again.
void StepTransport::serve(HostStart wanted) {
  if (refused_.count(wanted.host.name) != 0) return refuse(std::move(wanted));
  if (!server_->has(wanted.host.name)) return by_command(std::move(wanted));
  AgentLinkOptions options;
  options.host = "host " + wanted.host.name;
  options.host_index = wanted.host_index;
  options.payloads = &payloads_;
  options.image = std::move(wanted.image);
  options.observer = observer_;
  options.lost_class = failure::kHostLost;
  options.shell_class = failure::kRemoteShell;
  options.shell_advice = "try sh -c true on that host";
  served_ = true;
  server_->reach(wanted.host.name, std::move(*wanted.stream), std::move(options), wanted.deadline);
}

// The supervisor sees the stream end if even this cannot begin.
void StepTransport::by_command(HostStart wanted) {
  if (leaving_) return;
  (void)commands_.adopt(std::move(wanted));
}

// From inside the server, which is not done with the machine: reaching it only posts and sends.
void StepTransport::on_joined(const std::string& name) {
  if (awaited_.erase(name) != 0) step_->on_joined(name);
  if (awaited_.empty()) step_->remove_files();
  auto waiting = wanted_.extract(name);
  if (waiting.empty()) return;
  for (HostStart& each : waiting.mapped()) serve(std::move(each));
}

// One line for the first host: where it is a firewall, it is the same for all.
void StepTransport::give_up(const std::string& name, const std::string& why) {
  if (awaited_.erase(name) == 0) return;
  if (awaited_.empty()) step_->remove_files();
  if (!std::exchange(reported_, true)) say("host " + name + ": " + why);
  auto waiting = wanted_.extract(name);
  if (waiting.empty()) return;
  for (HostStart& each : waiting.mapped()) by_command(std::move(each));
}

// A host whose daemon does not answer the engine. Another command of the engine would wait as long
// for it, with the same result.
void StepTransport::refuse(HostStart wanted) const {
  send_failure(*wanted.stream,
               {std::string(failure::kRsh), visible_line(refused_.at(wanted.host.name)),
                "look at the engine's daemon on that host", "host " + wanted.host.name});
}

void StepTransport::receive(std::string_view said) {
  if (!words_) return;
  words_->receive(said);
  for (FailedHost& each : words_->failed_hosts()) {
    if (awaited_.erase(each.name) == 0) continue;
    refused_[each.name] = std::move(each.words);
    auto waiting = wanted_.extract(each.name);
    if (waiting.empty()) continue;
    for (HostStart& wanted : waiting.mapped()) refuse(std::move(wanted));
  }
}

// --- the step ------------------------------------------------------------------------------------

// The engine's command ends with its processes: none may outlive the job.
void StepTransport::on_step_end(const std::string& how) {
  {
    const std::lock_guard lock(mutex_);
    step_ended_ = true;
  }
  changed_.notify_all();
  if (leaving_) return;
  if (served_ && words_) words_->command_ended(how);
  const auto left = awaited_;
  for (const std::string& each : left) give_up(each, how);
  if (step_->owns_helpers()) server_->drop_all(how);
}

void StepTransport::say(const std::string& text) const {
  if (!spec_.json) {
    std::fprintf(stderr, "horarun: %s (%s); %s\n", way_.problem.c_str(), text.c_str(),
                 way_.remedy.c_str());
  }
}

}  // namespace

std::unique_ptr<Transport> make_step_transport(const JobSpec& spec, StepSource source,
                                               const std::vector<Host>& hosts,
                                               std::shared_ptr<EngineWords> words,
                                               StageObserver observer) {
  DialWay way{spec.engine_step->name,
              "not all hosts are reached by one step",
              "the others by one each",
              {},
              {}};
  if (!source.helper.path.empty()) {
    way.by_helpers = true;
    StepRequest request;
    request.nonce = os::random_token().substr(0, 16);
    request.machine = std::move(source.machine);
    request.files = {std::move(source.helper), std::move(source.agent)};
    request.hosts = hosts;
    request.grace = spec.grace;
    auto early = std::make_shared<std::optional<PipedChild>>();
    way.begin_early = [&spec, request, early]() -> Status {
      auto begun = StepProcess::begin_early(*spec.engine_step, request);
      if (!begun) return std::move(begun).error();
      *early = *std::move(begun);
      return Ok{};
    };
    way.make_starter = [&spec, request, early](os::EventLoop& loop, std::string url,
                                               Starter::Handlers handlers) {
      return std::make_unique<StepProcess>(loop, *spec.engine_step, request, std::move(url),
                                           std::exchange(*early, {}), std::move(handlers));
    };
  }
  return make_dial_transport(spec, std::move(way), hosts, std::move(words), std::move(observer));
}

std::unique_ptr<Transport> make_dial_transport(const JobSpec& spec, DialWay way,
                                               const std::vector<Host>& hosts,
                                               std::shared_ptr<EngineWords> words,
                                               StageObserver observer) {
  return std::make_unique<StepTransport>(spec, std::move(way), hosts, std::move(words),
                                         std::move(observer));
}

}  // namespace hora::launcher
