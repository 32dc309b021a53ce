// SPDX-License-Identifier: Apache-2.0
#include "apps/pmi/pmix_server.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "apps/pmi/job_exchange.h"

namespace hora::pmi {

namespace {

constexpr const char* kFile = "libpmix.so.2";

Error failed(const char* what) {
  const char* const text = ::dlerror();
  return make_error(ErrorCode::kUnavailable, text == nullptr ? what : text);
}

}  // namespace

Result<PmixLibrary> open_pmix_library() {
  // RTLD_GLOBAL: the plug-ins of some builds rely on the symbols of the library that loads them.
  void* const library = ::dlopen(kFile, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return failed(kFile);
  PmixLibrary out;
#define HORA_FIND(name)                                                     \
  out.name = reinterpret_cast<decltype(out.name)>(::dlsym(library, #name)); \
  if (out.name == nullptr) return failed(#name);
  HORA_PMIX_FUNCTIONS(HORA_FIND)
#undef HORA_FIND
  for (const char* const name : {"PMIx_Value_load", "pmix_value_load"}) {
    if (out.load_value != nullptr) break;
    out.load_value = reinterpret_cast<decltype(out.load_value)>(::dlsym(library, name));
  }
  if (out.load_value == nullptr) return failed("PMIx_Value_load");
  return out;
}

// The PMIx library does the work and calls back for what concerns other hosts. Its callbacks run on
// its progress thread and must not block, so each question to the rendezvous gets a thread of its
// own.

namespace {

using launcher::PmiHost;
using launcher::PmiJob;
using launcher::PmiReply;

struct Server {
  PmiJob job;
  std::optional<Exchange> exchange;
  PmixLibrary pmix;
  // The job's name in PMIx.
  std::string name;

  // Guards what follows, and every call back into the library.
  std::mutex mutex;
  bool ending = false;
  // The number of fences that each group of ranks has had.
  std::map<std::string, int> fences;
};

// The code that Open MPI itself ends with (MPI_ERR_SPAWN).
constexpr int kSpawnRefused = 50;

// Limits the name in the message, which the rank chooses freely.
constexpr std::size_t kMostProgram = 200;

// The callbacks of the library carry no context.
Server* the_server = nullptr;

const PmiHost& own_host(const PmiJob& job) {
  return job.hosts[static_cast<std::size_t>(job.own_host)];
}

// --- callbacks of the library: they must not block, so what takes time has a thread --------------

// Answers the library, unless it is being shut down.
template <typename Function>
void answer(const Function& function) {
  const std::lock_guard<std::mutex> lock(the_server->mutex);
  if (!the_server->ending) function();
}

void answer_modex(pmix_modex_cbfunc_t callback, void* context, const Result<std::string>& data) {
  answer([&] {
    if (!data) {
      std::fprintf(stderr, "%s\n", data.error().message.c_str());
      return callback(PMIX_ERROR, nullptr, 0, context, nullptr, nullptr);
    }
    // The library frees the data with the function it gets, so it must come from malloc().
    auto* const kept = static_cast<char*>(std::malloc(data->size() + 1));
    if (kept == nullptr) return callback(PMIX_ERR_NOMEM, nullptr, 0, context, nullptr, nullptr);
    data->copy(kept, data->size());
    callback(PMIX_SUCCESS, kept, data->size(), context, std::free, kept);
  });
}

pmix_status_t on_client(const pmix_proc_t*, void*, pmix_op_cbfunc_t callback, void* context) {
  report_used();
  if (callback != nullptr) callback(PMIX_SUCCESS, context);
  return PMIX_SUCCESS;
}

// The rank ends by itself, and the job with it.
pmix_status_t on_abort(const pmix_proc_t*, void*, int, const char*, pmix_proc_t*, std::size_t,
                       pmix_op_cbfunc_t callback, void* context) {
  if (callback != nullptr) callback(PMIX_SUCCESS, context);
  return PMIX_SUCCESS;
}

// Returns the hosts of the ranks that take part.
std::vector<int> hosts_of(const pmix_proc_t* procs, std::size_t count) {
  std::vector<int> found;
  for (std::size_t i = 0; i < the_server->job.hosts.size(); ++i) {
    const auto& ranks = the_server->job.hosts[i].ranks;
    const bool takes_part = std::any_of(procs, procs + count, [&](const pmix_proc_t& proc) {
      return proc.rank == PMIX_RANK_WILDCARD ||
             std::count(ranks.begin(), ranks.end(), static_cast<int>(proc.rank)) > 0;
    });
    if (takes_part) found.push_back(static_cast<int>(i));
  }
  return found;
}

// The name must be the same on all hosts, whatever order a host lists the ranks in.
std::string name_of_group(const pmix_proc_t* procs, std::size_t count) {
  std::vector<pmix_rank_t> ranks;
  for (std::size_t i = 0; i < count; ++i) ranks.push_back(procs[i].rank);
  std::sort(ranks.begin(), ranks.end());
  if (!ranks.empty() && ranks.back() == PMIX_RANK_WILDCARD) return "all";
  std::string name;
  for (const pmix_rank_t rank : ranks) name += (name.empty() ? "" : "-") + std::to_string(rank);
  return name;
}

// The library owns `data`, so keep a copy.
pmix_status_t on_fence(const pmix_proc_t* procs, std::size_t count, const pmix_info_t*, std::size_t,
                       char* data, std::size_t bytes, pmix_modex_cbfunc_t callback, void* context) {
  std::string mine = data == nullptr ? "" : std::string(data, bytes);
  std::vector<int> hosts = hosts_of(procs, count);
  const std::string group = name_of_group(procs, count);
  std::string place = "hora_pmix_fence_" + group + "_";
  {
    const std::lock_guard<std::mutex> lock(the_server->mutex);
    // Ranks fence in the same order everywhere, so a counter per group gives equal names.
    place += std::to_string(the_server->fences[group]++);
  }
  std::thread([mine = std::move(mine), hosts = std::move(hosts), place, callback, context] {
    answer_modex(callback, context,
                 hosts.size() < 2
                     ? mine
                     : the_server->exchange->gather(place, the_server->job.own_host, hosts, mine));
  }).detach();
  return PMIX_SUCCESS;
}

std::string card_key(pmix_rank_t rank) { return "hora_pmix_cards/" + std::to_string(rank); }

// A rank here wants the data of a rank on another host, whose server has published it.
pmix_status_t on_direct_modex(const pmix_proc_t* proc, const pmix_info_t*, std::size_t,
                              pmix_modex_cbfunc_t callback, void* context) {
  if (!the_server->exchange) return PMIX_ERR_NOT_FOUND;
  std::thread([rank = proc->rank, callback, context] {
    answer_modex(callback, context, the_server->exchange->wait(card_key(rank)));
  }).detach();
  return PMIX_SUCCESS;
}

// The library itself removes the files and directories that a rank registers for removal.
pmix_status_t on_job_control(const pmix_proc_t*, const pmix_proc_t*, std::size_t,
                             const pmix_info_t*, std::size_t, pmix_info_cbfunc_t, void*) {
  return PMIX_ERR_NOT_SUPPORTED;
}

// No further program can be started, and the rank that asks gets an error at once. Open MPI's other
// ranks, which ask together with it, would then wait forever for the new ones, so such a job is
// ended.
pmix_status_t on_spawn(const pmix_proc_t* proc, const pmix_info_t*, std::size_t,
                       const pmix_app_t* apps, std::size_t count, pmix_spawn_cbfunc_t, void*) {
  std::string program = count > 0 && apps[0].cmd != nullptr ? apps[0].cmd : "a program";
  if (program.size() > kMostProgram) program = program.substr(0, kMostProgram) + "...";
  static bool is_reported = false;  // the library calls back from one thread
  if (!std::exchange(is_reported, true)) {
    send_note(
        "rank " + std::to_string(proc->rank) + " asked for " + program +
        " to be started (MPI_Comm_spawn), which --pmix does not serve: start all ranks at once "
        "with a larger -np, or let mpirun start them, which serves it: horarun --mpi");
  }
  const std::vector<PmiHost>& hosts = the_server->job.hosts;
  if (hosts.size() > 1 || hosts.front().ranks.size() > 1) {
    report_abort(static_cast<int>(proc->rank), kSpawnRefused);
  }
  return PMIX_ERR_NOT_SUPPORTED;
}

// --- setting up ----------------------------------------------------------------------------------

// A list of attributes, which points into memory of its own.
class InfoList {
 public:
  InfoList() = default;
  ~InfoList() {
    for (void* each : regexes_) std::free(each);
  }
  InfoList(const InfoList&) = delete;
  InfoList& operator=(const InfoList&) = delete;

  void text(const char* key, const std::string& value) {
    add(key, PMIX_STRING).string = texts_.emplace_back(value).data();
  }
  void number(const char* key, std::size_t value) {
    add(key, PMIX_UINT32).uint32 = static_cast<std::uint32_t>(value);
  }
  void small(const char* key, std::size_t value) {
    add(key, PMIX_UINT16).uint16 = static_cast<std::uint16_t>(value);
  }
  void rank(const char* key, int value) {
    add(key, PMIX_PROC_RANK).rank = static_cast<pmix_rank_t>(value);
  }
  void yes(const char* key) { add(key, PMIX_BOOL).flag = true; }
  // Only the library knows how long such a text is, so the library copies it.
  void regex(const char* key, const char* value) {
    add(key, PMIX_REGEX);
    pmix_value_t& made = list_.back().value;
    the_server->pmix.load_value(&made, value, PMIX_REGEX);
    regexes_.push_back(made.data.bo.bytes);
  }
  // `inner` has to live as long as this list.
  void list(const char* key, InfoList& inner) {
    pmix_data_array_t& array = arrays_.emplace_back();
    array.type = PMIX_INFO;
    array.size = inner.list_.size();
    array.array = inner.list_.data();
    add(key, PMIX_DATA_ARRAY).darray = &array;
  }
  pmix_info_t* data() { return list_.data(); }
  std::size_t size() const { return list_.size(); }

 private:
  decltype(pmix_value_t::data)& add(const char* key, pmix_data_type_t type) {
    pmix_info_t& info = list_.emplace_back();
    std::strncpy(info.key, key, PMIX_MAX_KEYLEN);
    info.value.type = type;
    return info.value.data;
  }

  std::vector<pmix_info_t> list_;
  // Their elements stay where they are.
  std::deque<std::string> texts_;
  std::deque<pmix_data_array_t> arrays_;
  std::vector<void*> regexes_;
};

std::string joined(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ",") + std::to_string(rank);
  return text;
}

struct Failed {
  std::string what;
};

// Exceptions are used only inside the set-up, where each of many calls may fail;
// start_pmix_server() catches them.
void must(pmix_status_t status, const char* what) {
  if (status != PMIX_SUCCESS && status != PMIX_OPERATION_SUCCEEDED) {
    throw Failed{std::string(what) + ": " + the_server->pmix.PMIx_Error_string(status)};
  }
}

void make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    throw Failed{path + ": " + std::strerror(errno)};
  }
}

pmix_proc_t process(int rank) {
  pmix_proc_t proc{};
  std::strncpy(proc.nspace, the_server->name.c_str(), PMIX_MAX_NSLEN);
  proc.rank = static_cast<pmix_rank_t>(rank);
  return proc;
}

// The ranks of the program that has this number: from its first rank up to that of the next.
struct ProgramRanks {
  std::size_t first = 0;
  std::size_t count = 0;
};
ProgramRanks ranks_of_program(const PmiJob& job, std::size_t number) {
  std::size_t all = 0;
  for (const PmiHost& host : job.hosts) all += host.ranks.size();
  const auto& next = job.next_programs;
  const std::size_t first = number == 0 ? 0 : static_cast<std::size_t>(next[number - 1]);
  const std::size_t end = number < next.size() ? static_cast<std::size_t>(next[number]) : all;
  return {first, end - first};
}

// Each rank's place in the job, and for the ranks of this host a directory of their own.
void describe_ranks(InfoList& info, std::deque<InfoList>& ranks_of_job,
                    const std::string& directory) {
  for (std::size_t host = 0; host < the_server->job.hosts.size(); ++host) {
    const auto& ranks = the_server->job.hosts[host].ranks;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      InfoList& about = ranks_of_job.emplace_back();
      about.rank(PMIX_RANK, ranks[i]);
      about.small(PMIX_LOCAL_RANK, i);
      about.small(PMIX_NODE_RANK, i);
      about.number(PMIX_NODEID, host);
      const auto program = static_cast<std::size_t>(program_number(the_server->job, ranks[i]));
      const ProgramRanks peers = ranks_of_program(the_server->job, program);
      about.number(PMIX_APPNUM, program);
      about.rank(PMIX_APP_RANK, ranks[i] - static_cast<int>(peers.first));
      about.rank(PMIX_APPLDR, static_cast<int>(peers.first));
      about.number(PMIX_APP_SIZE, peers.count);
      about.rank(PMIX_GLOBAL_RANK, ranks[i]);
      about.text(PMIX_HOSTNAME, the_server->job.hosts[host].name);
      if (static_cast<int>(host) == the_server->job.own_host) {
        const std::string own = directory + "/" + std::to_string(ranks[i]);
        make_directory(own);
        about.text(PMIX_PROCDIR, own);
      }
      info.list(PMIX_PROC_DATA, about);
    }
  }
}

void describe_job(InfoList& info, const std::string& directory) {
  const PmiJob& job = the_server->job;
  const PmiHost& here = own_host(job);
  std::size_t size = 0;
  std::string names;
  std::string places;
  for (const PmiHost& host : job.hosts) {
    size += host.ranks.size();
    names += (names.empty() ? "" : ",") + host.name;
    places += (places.empty() ? "" : ";") + joined(host.ranks);
  }
  char* regex = nullptr;
  must(the_server->pmix.PMIx_generate_regex(names.c_str(), &regex), "naming the hosts");
  info.regex(PMIX_NODE_MAP, regex);
  std::free(regex);
  char* map = nullptr;
  must(the_server->pmix.PMIx_generate_ppn(places.c_str(), &map), "placing the ranks");
  info.regex(PMIX_PROC_MAP, map);
  std::free(map);
  for (const char* key : {PMIX_UNIV_SIZE, PMIX_JOB_SIZE, PMIX_MAX_PROCS}) info.number(key, size);
  info.number(PMIX_LOCAL_SIZE, here.ranks.size());
  info.number(PMIX_NODE_SIZE, here.ranks.size());
  info.number(PMIX_NUM_NODES, job.hosts.size());
  info.number(PMIX_NODEID, static_cast<std::size_t>(job.own_host));
  info.number(PMIX_APP_SIZE, ranks_of_program(job, 0).count);
  info.number(PMIX_APPNUM, 0);
  info.number(PMIX_JOB_NUM_APPS, 1 + job.next_programs.size());
  info.rank(PMIX_LOCALLDR, here.ranks.front());
  info.text(PMIX_LOCAL_PEERS, joined(here.ranks));
  info.text(PMIX_HOSTNAME, here.name);
  info.text(PMIX_JOBID, the_server->name);
  // Files that the ranks leave there are removed with the job, however they end.
  info.text(PMIX_TMPDIR, directory);
  info.text(PMIX_NSDIR, directory);
  info.yes(PMIX_TDIR_RMCLEAN);
}

// Settings that PMIx does not cover, unless the user has chosen them.
void add_for_open_mpi(launcher::PmiReply& reply, const PmiHost& here) {
  std::vector<std::pair<std::string, std::string>> wanted = {
      // Open MPI 4 assumes a world of one rank unless it finds the address of a daemon.
      {"OMPI_MCA_orte_local_daemon_uri", "0.0;tcp://127.0.0.1:9"}};
  // More ranks than cores: waiting ranks should give up the processor.
  const long cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  if (cores > 0 && static_cast<long>(here.ranks.size()) > cores) {
    wanted.emplace_back("OMPI_MCA_mpi_yield_when_idle", "1");
  }
  // Between hosts, use the network on which they were found to reach each other.
  const char* interface = std::getenv("HOROVOD_GLOO_IFACE");
  const bool chosen = std::getenv("OMPI_MCA_btl_tcp_if_exclude") != nullptr;
  if (the_server->exchange && interface != nullptr && *interface != '\0' && !chosen) {
    wanted.emplace_back("OMPI_MCA_btl_tcp_if_include", interface);
  }
  for (const auto& variable : wanted) {
    if (std::getenv(variable.first.c_str()) != nullptr) continue;
    for (auto& [rank, variables] : reply.environment) variables.push_back(variable);
  }
}

// Publishes a rank's data as soon as it is known, for ranks of other hosts that ask for it alone.
void publish_card(int rank) {
  const pmix_proc_t proc = process(rank);
  const auto is_reported = [](pmix_status_t status, char* data, std::size_t bytes, void* context) {
    const auto whose = static_cast<pmix_rank_t>(reinterpret_cast<std::uintptr_t>(context));
    if (status != PMIX_SUCCESS) return;
    std::thread([whose, card = std::string(data, bytes)] {
      static_cast<void>(the_server->exchange->publish(card_key(whose), card));
    }).detach();
  };
  // The library answers once the rank has committed its data.
  must(the_server->pmix.PMIx_server_dmodex_request(
           &proc, is_reported, reinterpret_cast<void*>(static_cast<std::uintptr_t>(rank))),
       "waiting for a rank's card");
}

PmiReply set_up() {
  const PmiJob& job = the_server->job;
  const PmiHost& here = own_host(job);
  const std::string directory = job.directory + "/.pmix";
  make_directory(directory);

  static pmix_server_module_t module{};
  module.client_connected = on_client;
  module.client_finalized = on_client;
  module.abort = on_abort;
  module.fence_nb = on_fence;
  module.direct_modex = on_direct_modex;
  module.job_control = on_job_control;
  module.spawn = on_spawn;
  InfoList settings;
  settings.text(PMIX_SERVER_TMPDIR, directory);
  settings.text(PMIX_SYSTEM_TMPDIR, directory);
  settings.text(PMIX_HOSTNAME, here.name);
  must(the_server->pmix.PMIx_server_init(&module, settings.data(), settings.size()),
       "starting the server");

  InfoList info;
  std::deque<InfoList> about_ranks;
  describe_job(info, directory);
  describe_ranks(info, about_ranks, directory);
  pmix_nspace_t name{};
  std::strncpy(name, the_server->name.c_str(), PMIX_MAX_NSLEN);
  must(the_server->pmix.PMIx_server_register_nspace(name, static_cast<int>(here.ranks.size()),
                                                    info.data(), info.size(), nullptr, nullptr),
       "describing the job");
  PmiReply reply;
  for (const int rank : here.ranks) {
    const pmix_proc_t proc = process(rank);
    must(the_server->pmix.PMIx_server_register_client(&proc, ::geteuid(), ::getegid(), nullptr,
                                                      nullptr, nullptr),
         "describing a rank");
    char** variables = nullptr;
    must(the_server->pmix.PMIx_server_setup_fork(&proc, &variables),
         "preparing a rank's environment");
    auto& [whose, list] = reply.environment.emplace_back();
    whose = rank;
    for (char** each = variables; each != nullptr && *each != nullptr; ++each) {
      const std::string text = *each;
      const std::size_t equals = text.find('=');
      list.emplace_back(text.substr(0, equals), text.substr(equals + 1));
      std::free(*each);
    }
    std::free(variables);
    if (the_server->exchange) publish_card(rank);
  }
  add_for_open_mpi(reply, here);
  return reply;
}

}  // namespace

launcher::PmiReply start_pmix_server(const launcher::PmiJob& job,
                                     std::optional<Exchange> exchange) {
  // Lives as long as the process, because threads may still wait in it.
  the_server = new Server;
  the_server->job = job;
  the_server->exchange = std::move(exchange);
  // Not a number: Open MPI would mistake it for one of its own.
  the_server->name = "hora-" + job.job_id;
  auto library = open_pmix_library();
  if (!library) return {library.error().message, {}, ""};
  the_server->pmix = *library;
  try {
    return set_up();
  } catch (const Failed& failed) {
    return {failed.what, {}, ""};
  }
}

void stop_pmix_server() {
  {
    const std::lock_guard<std::mutex> lock(the_server->mutex);
    // From here on, answers that arrive late are dropped.
    the_server->ending = true;
  }
  pmix_nspace_t name{};
  std::strncpy(name, the_server->name.c_str(), PMIX_MAX_NSLEN);
  for (const int rank : own_host(the_server->job).ranks) {
    const pmix_proc_t proc = process(rank);
    the_server->pmix.PMIx_server_deregister_client(&proc, nullptr, nullptr);
  }
  the_server->pmix.PMIx_server_deregister_nspace(name, nullptr, nullptr);
  the_server->pmix.PMIx_server_finalize();
}

}  // namespace hora::pmi
