// SPDX-License-Identifier: Apache-2.0
// A process's membership in a job: the implementation of hora.h, as an object. hora.h keeps one;
// tests keep one per thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "collectives/runtime/driver.h"
#include "collectives/runtime/engine.h"
#include "collectives/runtime/handle_table.h"
#include "collectives/runtime/plan.h"
#include "collectives/trace/recorder.h"
#include "collectives/trace/timeline_record.h"
#include "hora/hora.h"
#include "rendezvous/store.h"

namespace hora::collectives {

// An outcome with the text that hora_last_error() shows.
struct Outcome {
  hora_status status = HORA_OK;
  std::string text;
};

class Communicator {
 public:
  struct Start {
    Settings settings;
    std::vector<std::vector<std::int32_t>> process_sets;  // static ones
    std::string address;  // own, numeric, where the others can reach this rank
    std::string machine;  // equal on ranks that are to share memory; empty: those that can
    // Where rank 0 says where it is, under `meeting_key`; not used in a world of one. Used until
    // join() returns only.
    std::shared_ptr<rendezvous::Store> store;
    std::string meeting_key;
    std::string void_key;  // exists as soon as this meeting cannot take place any more; empty: none
    bool removed = false;  // the elastic job goes on without this process; nothing else is set
  };

  // Blocks until all ranks have met, at most settings.start_timeout.
  static Result<std::unique_ptr<Communicator>> join(Start start);
  // As leave().
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Ends the job for all ranks. Idempotent; blocks until this rank has left.
  void leave();

  Outcome submit(std::span<const hora_request> requests, hora_handle* handles,
                 Then then = Then::kGoesOn);
  // Submits one request, and waits. `handle`: of what is in flight after HORA_TIMED_OUT, or has a
  // result; else 0. Null: none of both can be.
  Outcome run(const hora_request& request, Deadline deadline, hora_handle* handle);
  // Null for an unknown handle.
  OperationPtr find(hora_handle handle) const;
  // Whether it is done, without an error.
  bool succeeded(hora_handle handle) const;
  void release(hora_handle handle);
  // True when done; false when the deadline came first. Drives the runtime meanwhile.
  bool wait(Operation& operation, Deadline deadline);

  // Checks the requests, and puts together what is to run together. Nothing is sent.
  Outcome prepare(std::span<const hora_request> requests, Plan& plan);
  Outcome start(Plan& plan, Then then = Then::kGoesOn);
  // start() and wait(); `done`: the latter's answer.
  Outcome run(Plan& plan, Deadline deadline, bool& done);
  // As wait() for all of its operations.
  bool wait(Plan& plan, Deadline deadline, Then then = Then::kGoesOn);
  // For each prepared plan, once. Operations in flight are finished all the same.
  void let_go(Plan& plan);

  Outcome add_process_set(std::vector<std::int32_t> ranks, std::int32_t* id);
  Outcome process_set_of(std::vector<std::int32_t> ranks, std::int32_t* id);
  Outcome remove_process_set(std::int32_t id);

  // Where this rank writes no file of that path (own_timeline_path), nothing is done.
  Outcome start_timeline(const std::string& path, bool mark_cycles);
  void stop_timeline() { recorder_.stop_timeline(); }

  const World& world() const { return *world_; }
  const Engine& engine() const { return *engine_; }
  bool is_homogeneous() const;

 private:
  Communicator() = default;
  void start_records();
  Result<OperationPtr> operation_for(const hora_request& request) const;
  void keep(const hora_request& request, const Operation& ran);
  // `barrier`: its count, if it has one already.
  Outcome submit_one(const hora_request& request, std::uint64_t barrier, hora_handle* handle,
                     Then then);
  Outcome hand_over(std::span<const OperationPtr> operations, hora_handle* handles, Then then,
                    std::uint64_t barrier = 0);
  Outcome enqueue(std::span<const OperationPtr> operations, Then then);
  Outcome push(std::span<const OperationPtr> operations, Then then);
  bool submit_again(std::span<const hora_request> requests, hora_handle* handles, Then then);
  Outcome outcome_of(RequestQueue::Push how, const std::string& detail, Then then);
  Outcome make_process_set(Action action, std::vector<std::int32_t> ranks, std::int32_t* id);
  Outcome run_world_action(Action action, std::vector<std::int64_t> numbers, OperationPtr* done);
  void name_unnamed(Operation& operation, std::uint64_t barrier);
  std::uint64_t count_barrier() {
    const std::lock_guard<std::mutex> lock(handles_mutex_);
    return ++barriers_[HORA_GLOBAL_PROCESS_SET];
  }
  std::uint64_t own_process_sets() const;  // as FlightRecorder has them

  std::unique_ptr<World> world_;
  Recorder recorder_;
  ClockOffset clock_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Driver> driver_;
  std::thread thread_;

  mutable std::mutex handles_mutex_;
  HandleTable handles_;
  // The n-th barrier of a set on one rank meets the n-th on the others.
  std::map<std::int32_t, std::uint64_t> barriers_;
  std::uint64_t world_actions_ = 0;
  std::uint64_t own_actions_ = 0;  // that no other rank has a part in
};

}  // namespace hora::collectives
