// SPDX-License-Identifier: Apache-2.0
// hora.h: operations, from their submission to their release.
#include "collectives/c_interface/calls.h"

using namespace hora::collectives;

extern "C" {

hora_status hora_submit(const hora_request* requests, int32_t count, hora_handle* handles) {
  return guarded(__func__, [&] {
    const Visit visit;
    Communicator* const communicator = visit.world();
    if (communicator == nullptr) return not_initialized();
    if (requests == nullptr || count < 1) {
      return fail(HORA_INVALID_ARGUMENT, "hora_submit needs at least one request");
    }
    // Callers of this version's header, nearly all, spare the copies.
    if (requests->struct_size == sizeof(hora_request)) {
      return report(communicator->submit({requests, static_cast<std::size_t>(count)}, handles));
    }
    return report(communicator->submit(copies_of(requests, count), handles));
  });
}

hora_status hora_run(const hora_request* request, int64_t timeout_ms, hora_handle* handle) {
  return guarded(__func__, [&] {
    const auto communicator = current();
    if (communicator == nullptr) return not_initialized();
    if (request == nullptr) return fail(HORA_INVALID_ARGUMENT, "hora_run needs a request");
    const auto deadline = deadline_after(timeout_ms);
    const Outcome outcome =
        request->struct_size == sizeof(hora_request)
            ? communicator->run(*request, deadline, handle)
            : communicator->run(copies_of(request, 1).front(), deadline, handle);
    if (outcome.status == HORA_TIMED_OUT) {
      return fail(outcome.status, "waited " + std::to_string(timeout_ms) + " ms for '" +
                                      outcome.text + "'; it is still in flight");
    }
    return report(outcome);
  });
}

hora_status hora_poll(hora_handle handle) {
  // A poll is a wait that does not wait, with a status of its own for "not yet".
  const hora_status status = hora_wait(handle, 0);
  return status == HORA_TIMED_OUT ? fail(HORA_IN_PROGRESS, "") : status;
}

hora_status hora_wait(hora_handle handle, int64_t timeout_ms) {
  return guarded(__func__, [&] {
    // Completed operations need no driver: of a set of them, all but the first.
    if (const Visit visit; visit.world() != nullptr && visit.world()->succeeded(handle)) {
      return HORA_OK;
    }
    const auto communicator = current();
    if (communicator == nullptr) return not_initialized();
    const OperationPtr operation = communicator->find(handle);
    if (operation == nullptr) return fail(HORA_INVALID_ARGUMENT, "unknown handle");
    if (!operation->done()) {
      if (!communicator->wait(*operation, deadline_after(timeout_ms))) {
        return fail(HORA_TIMED_OUT, "waited " + std::to_string(timeout_ms) + " ms for '" +
                                        operation->request.name + "'; it is still in flight");
      }
    }
    return report(operation->status, operation->error);
  });
}

const char* hora_error(hora_handle handle) {
  const auto communicator = current();
  if (communicator == nullptr) return "";
  const OperationPtr operation = communicator->find(handle);
  return operation != nullptr && operation->done() ? operation->error.c_str() : "";
}

hora_status hora_result(hora_handle handle, hora_tensor* result) {
  return guarded(__func__, [&] {
    const auto communicator = current();
    if (communicator == nullptr) return not_initialized();
    const OperationPtr operation = communicator->find(handle);
    if (operation == nullptr) return fail(HORA_INVALID_ARGUMENT, "unknown handle");
    if (result == nullptr) return fail(HORA_INVALID_ARGUMENT, "result is NULL");
    if (!operation->done() || operation->status != HORA_OK || operation->result.data() == nullptr) {
      return fail(HORA_INVALID_ARGUMENT, "the operation has no result");
    }
    // Owned by the handle: valid until hora_release().
    result->data = operation->result.data();
    result->shape = operation->result_shape.data();
    result->ndim = static_cast<std::int32_t>(operation->result_shape.size());
    result->dtype = operation->request.dtype;
    result->device = operation->request.device;
    result->reserved = 0;
    return HORA_OK;
  });
}

hora_status hora_received_splits(hora_handle handle, const int64_t** splits, int32_t* count) {
  return guarded(__func__, [&] {
    const auto communicator = current();
    if (communicator == nullptr) return not_initialized();
    const OperationPtr operation = communicator->find(handle);
    if (operation == nullptr || !operation->done() || operation->status != HORA_OK ||
        operation->request.action != Action::kAlltoall) {
      return fail(HORA_INVALID_ARGUMENT, "the handle is not a finished alltoall");
    }
    if (splits == nullptr || count == nullptr) {
      return fail(HORA_INVALID_ARGUMENT, "hora_received_splits needs room for splits and count");
    }
    *splits = operation->received_splits.data();
    *count = static_cast<std::int32_t>(operation->received_splits.size());
    return HORA_OK;
  });
}

int hora_last_joined(hora_handle handle) {
  return ask([&](Communicator& communicator) {
    const OperationPtr operation = communicator.find(handle);
    if (operation == nullptr || !operation->done() || operation->status != HORA_OK ||
        operation->request.action != Action::kJoin) {
      return -1;
    }
    return static_cast<int>(operation->number);
  });
}

void hora_release(hora_handle handle) {
  const Visit visit;
  if (visit.world() != nullptr) visit.world()->release(handle);
}

}  // extern "C"
