// SPDX-License-Identifier: Apache-2.0
// Gloo's own allreduce of float32 sums, its default algorithm: "bytes median p99 mean" for each
// size, in microseconds, of the slowest rank.  allreduce_gloo FOLDER MOST: sizes up to MOST bytes.
// Ranks meet in the folder, and talk over loopback, or between hosts by the names that these have
// in the job.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "timing.h"

namespace {

std::shared_ptr<gloo::rendezvous::Context> context;

template <typename T, void (*Function)(void*, const void*, const void*, size_t)>
void reduce(std::vector<T>& in, std::vector<T>& out) {
  gloo::AllreduceOptions options(context);
  options.setInput(in.data(), in.size());
  options.setOutput(out.data(), out.size());
  options.setReduceFunction(Function);
  gloo::allreduce(options);
}

double largest(double mine) {
  std::vector<double> in{mine};
  std::vector<double> out{0};
  reduce<double, &gloo::max<double>>(in, out);
  return out[0];
}

double timed(std::vector<float>& in, std::vector<float>& out) {
  const double start = now_us();
  reduce<float, &gloo::sum<float>>(in, out);
  return now_us() - start;
}

int number_of(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) {
    std::fprintf(stderr, "%s is not set: start this by horarun\n", variable);
    std::exit(2);
  }
  return std::atoi(text);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const long most = std::atol(argv[2]);
  const int rank = number_of("HOROVOD_RANK");
  context = std::make_shared<gloo::rendezvous::Context>(rank, number_of("HOROVOD_SIZE"));
  gloo::rendezvous::FileStore store(argv[1]);
  gloo::transport::tcp::attr attributes;
  attributes.hostname =
      number_of("HOROVOD_CROSS_SIZE") == 1 ? "127.0.0.1" : std::getenv("HOROVOD_HOSTNAME");
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  context->connectFullMesh(store, device);
  for (long bytes : kSizes) {
    if (bytes > most) break;
    std::vector<float> in(static_cast<std::size_t>(bytes) / 4, 1);
    std::vector<float> out(in.size(), 0);
    for (int i = 0; i < WARM_UP; ++i) timed(in, out);
    double each = 0;
    for (int i = 0; i < 3; ++i) each += timed(in, out) / 3;
    const int iterations = iterations_for(largest(each));
    std::vector<double> times(static_cast<std::size_t>(iterations));
    gloo::BarrierOptions barrier(context);
    gloo::barrier(barrier);
    for (double& time : times) time = timed(in, out);
    const double median = largest(median_of(times.data(), iterations));
    const double p99 = largest(p99_of(times.data(), iterations));
    const double mean = largest(mean_of(times.data(), iterations));
    if (rank == 0) std::printf("%ld %.3f %.3f %.3f\n", bytes, median, p99, mean);
  }
  return 0;
}
