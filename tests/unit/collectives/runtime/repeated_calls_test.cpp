// SPDX-License-Identifier: Apache-2.0
// Which calls count as the same, and whose operation a kept one is.
#include "collectives/runtime/repeated_calls.h"

#include <array>
#include <string>

#include "tests/support/catch.h"

using namespace hora::collectives;

namespace {

// The same again, on the memory of this object.
struct Sum {
  std::string name;
  std::array<float, 6> data{};
  std::array<std::int64_t, 2> shape{2, 3};
  hora_request request{};

  explicit Sum(std::string given) : name(std::move(given)) {
    request.struct_size = sizeof request;
    request.operation = HORA_ALLREDUCE;
    request.name = name.c_str();
    request.input = {data.data(), shape.data(), 2, HORA_FLOAT32, HORA_CPU_DEVICE, 0};
    request.output = request.input;
    request.reduce_op = HORA_SUM;
    request.prescale = request.postscale = 1;
  }
  Sum(const Sum&) = delete;
  Sum& operator=(const Sum&) = delete;

  OperationPtr made() const {
    OperationPtr operation = make_operation();
    operation->request.name = name;
    return operation;
  }
};

}  // namespace

TEST_CASE("repeated_calls: the same request on other memory finds its operation") {
  RequestQueue queue;
  RepeatedCalls calls;
  {
    Sum first("x");
    CHECK(calls.find(first.request) == nullptr);
    calls.keep(first.request, first.made(), queue);
  }
  Sum again("x");
  const OperationPtr* const found = calls.find(again.request);
  REQUIRE(found != nullptr);
  CHECK((*found)->request.name == "x");
  CHECK((*found)->input == again.data.data());
  CHECK((*found)->output == again.data.data());
}

TEST_CASE("repeated_calls: what differs in anything is another request") {
  RequestQueue queue;
  RepeatedCalls calls;
  Sum kept("x");
  calls.keep(kept.request, kept.made(), queue);
  const auto differs = [&](auto&& change) {
    Sum changed("x");
    change(changed);
    return calls.find(changed.request) == nullptr;
  };
  CHECK_FALSE(differs([](Sum&) {}));
  CHECK(differs([](Sum& sum) { sum.request.name = "xy"; }));
  CHECK(differs([](Sum& sum) { sum.request.name = nullptr; }));
  CHECK(differs([](Sum& sum) { sum.shape = {3, 2}; }));
  CHECK(differs([](Sum& sum) { sum.request.input.ndim = 1; }));
  CHECK(differs([](Sum& sum) { sum.request.output.dtype = HORA_INT32; }));
  CHECK(differs([](Sum& sum) { sum.request.input.device = 0; }));
  CHECK(differs([](Sum& sum) { sum.request.input.data = nullptr; }));
  CHECK(differs([](Sum& sum) { sum.request.output.shape = nullptr; }));
  CHECK(differs([](Sum& sum) { sum.request.operation = HORA_BROADCAST; }));
  CHECK(differs([](Sum& sum) { sum.request.process_set = 1; }));
  CHECK(differs([](Sum& sum) { sum.request.reduce_op = HORA_MAX; }));
  CHECK(differs([](Sum& sum) { sum.request.priority = 1; }));
  CHECK(differs([](Sum& sum) { sum.request.postscale = 0.5; }));
}

TEST_CASE("repeated_calls: an operation that a handle has is left to it") {
  RequestQueue queue;
  RepeatedCalls calls;
  Sum sum("x");
  calls.keep(sum.request, sum.made(), queue);
  {
    const OperationPtr of_the_handle = *calls.find(sum.request);
    Sum next("x");
    CHECK(calls.find(next.request) == nullptr);
    CHECK(of_the_handle->input == sum.data.data());
  }
  CHECK(calls.find(sum.request) != nullptr);
}

TEST_CASE("repeated_calls: of many names the latest are kept") {
  RequestQueue queue;
  RepeatedCalls calls;
  for (int i = 0; i < 20; ++i) {
    Sum sum("name." + std::to_string(i));
    calls.keep(sum.request, sum.made(), queue);
  }
  CHECK(calls.find(Sum("name.19").request) != nullptr);
  CHECK(calls.find(Sum("name.12").request) != nullptr);
  CHECK(calls.find(Sum("name.2").request) == nullptr);
}
