// SPDX-License-Identifier: Apache-2.0
// The search for good parameters, on functions whose maximum is known.
#include <cmath>
#include <random>

#include "collectives/autotune/autotuner.h"
#include "tests/support/catch.h"

using namespace hora::collectives;
using std::chrono::microseconds;

namespace {

Point same(const Point& point) { return point; }

double distance(const Point& a, const Point& b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares);
}

template <typename Function>
Point search_with(BayesSearch& search, int samples, const Function& function) {
  while (static_cast<int>(search.samples()) < samples) search.add_sample(function(search.next()));
  return search.best();
}

}  // namespace

TEST_CASE("gaussian process: goes through the values it knows and is unsure away from them") {
  const std::vector<Point> points{{0.0}, {0.25}, {0.5}, {0.75}, {1.0}};
  std::vector<double> values;
  for (const Point& point : points) values.push_back(100 + 10 * std::sin(4 * point[0]));
  const GaussianProcess process(points, values, 0);
  for (std::size_t i = 0; i < points.size(); ++i) {
    CHECK(std::abs(process.at(points[i]).mean - values[i]) < 0.05);
    CHECK(process.at(points[i]).deviation < 0.1);
  }
  CHECK(std::abs(process.at({0.4}).mean - (100 + 10 * std::sin(1.6))) < 0.5);
  CHECK(process.at({0.125}).deviation > process.at({0.25}).deviation);
}

TEST_CASE("gaussian process: separates noise from shape, and finds which dimension matters") {
  std::mt19937 random(1);
  std::normal_distribution<double> error(0, 0.3);
  std::vector<Point> points;
  std::vector<double> values;
  for (int row = 0; row < 6; ++row) {
    for (int column = 0; column < 10; ++column) {
      points.push_back({column / 9.0, row / 5.0});
      values.push_back(2 * std::sin(3 * points.back()[0]) + error(random));
    }
  }
  const GaussianProcess process(points, values, 1.0);
  CHECK(process.length_scales()[0] < process.length_scales()[1]);
  CHECK(process.noise() > 0.01);
  for (const double x : {0.1, 0.5, 0.9}) {
    CHECK(std::abs(process.at({x, 0.5}).mean - 2 * std::sin(3 * x)) < 0.4);
  }
}

TEST_CASE("gaussian process: one value, or all alike") {
  CHECK(GaussianProcess({{0.5}}, {7}, 0.8).at({0.1}).mean == Approx(7));
  CHECK(GaussianProcess({{0.1}, {0.1}, {0.9}}, {3, 3, 3}, 0).at({0.5}).mean == Approx(3));
}

TEST_CASE("bayes search: the start first, then the top of a hill in two dimensions") {
  const Point top{0.7, 0.3};
  BayesSearch search({0.0, 1.0}, same, 0.1);
  CHECK(search.next() == Point{0.0, 1.0});
  CHECK(search.best() == Point{0.0, 1.0});
  const Point found = search_with(search, 30, [&](const Point& point) {
    const double away = distance(point, top);
    return std::exp(-4 * away * away);
  });
  INFO(found[0] << " " << found[1]);
  CHECK(distance(found, top) < 0.08);
}

// Branin's function, turned upside down: three equal maxima, one of them near (0.54, 0.15).
TEST_CASE("bayes search: finds one of several maxima, noise or not") {
  const auto branin = [](const Point& point) {
    const double x = 15 * point[0] - 5;
    const double y = 15 * point[1];
    const double bend = y - 0.1291845 * x * x + 1.5915494 * x - 6;
    return -(bend * bend + 9.6021127 * std::cos(x) + 10);
  };
  std::mt19937 random(7);
  for (const double error : {0.0, 2.0}) {
    std::normal_distribution<double> noise(0, error == 0 ? 1 : error);
    BayesSearch search({0.5, 0.5}, same, 0.8);
    const Point found = search_with(search, 45, [&](const Point& point) {
      return branin(point) + (error == 0 ? 0 : noise(random));
    });
    INFO("noise " << error << ": " << found[0] << " " << found[1]);
    CHECK(branin(found) > -0.397887 - 3);  // the whole range is 308
  }
}

TEST_CASE("bayes search: keeps to points that can be had, and finds the better side of a switch") {
  const auto snap = [](const Point& point) { return Point{point[0] < 0.5 ? 0.0 : 1.0, point[1]}; };
  BayesSearch search({0.0, 0.5}, snap, 0.2);
  const Point found = search_with(search, 25, [&](const Point& point) {
    CHECK((point[0] == 0 || point[0] == 1));
    return point[0] + 1 - std::abs(point[1] - 0.2);
  });
  CHECK(found[0] == 1);
  CHECK(std::abs(found[1] - 0.2) < 0.1);
}

TEST_CASE("parameters: numbers and points, there and back") {
  const Parameters parameters{1 << 22, 1500, false, 4096, 65536};
  CHECK(from_numbers(to_numbers(parameters)) == parameters);
  CHECK(!from_numbers({1, 2, 3}));
  CHECK(!from_numbers({1, 2, 0, 4, -5}));
  const ParameterSpace all(Parameters{}, {true, true, true, true});
  CHECK(all.point_of(parameters).size() == 5);
  const Parameters near = all.at(all.point_of(parameters));
  CHECK(near == parameters);
  CHECK(all.at(all.point_of(Parameters{})).cycle_time_us == 0);
  const ParameterSpace some(parameters, {false, true, false, false});
  Parameters other = parameters;
  other.cycle_time_us = 5000;
  CHECK(some.at({1.0}) == other);
}

namespace {

// A program of this many tensors a step, on a machine whose speed depends on the parameters.
struct Program {
  Program(Tunables tunables, const AutotuneOptions& options)
      : tuner(Parameters{}, tunables, options) {}

  Autotuner tuner;
  Autotuner::TimePoint now{};
  Parameters used{};
  std::vector<Autotuner::Trial> trials;
  int steps = 0;

  template <typename Speed>
  void run(int most_steps, const Speed& bytes_per_us) {
    for (steps = 0; steps < most_steps && !(tuner.result() && !change()); ++steps) {
      for (int tensor = 0; tensor < 8; ++tensor) {
        now += microseconds(std::lround(1e6 / bytes_per_us(used)));
        const auto trial = tuner.ran("t" + std::to_string(tensor), 1'000'000, now);
        if (trial) trials.push_back(*trial);
      }
    }
  }
  bool change() {
    const auto next = tuner.take_change();
    if (!next) return false;
    used = *next;
    tuner.changed(now);
    return true;
  }
};

AutotuneOptions options(int warmup, int steps, int samples) {
  return {warmup, steps, samples, 0.2};
}

}  // namespace

TEST_CASE("autotuner: a sample is five scores of a fixed number of steps, after the warm-up") {
  Program program({.fusion = true}, options(2, 3, 1));
  program.run(1000, [](const Parameters&) { return 500.0; });
  // The first tensor starts the clock; then (2 + 1) samples of 5 scores of 3 steps.
  CHECK(program.steps >= 3 * 5 * 3);
  CHECK(program.steps <= 3 * 5 * 3 + 1);
  REQUIRE(program.trials.size() == 1);
  CHECK(program.trials[0].score == Approx(500));
  CHECK(program.tuner.result()->parameters == Parameters{});
}

TEST_CASE("autotuner: finds the fast parameters, and keeps the start where nothing is faster") {
  Program program({true, true, true, false}, options(0, 1, 30));
  program.run(5000, [&](const Parameters& now) {
    program.change();
    const double log = std::log2(static_cast<double>(now.fusion_threshold_bytes));
    return 1000.0 /
           (1 + (log - 21) * (log - 21) / 10 + static_cast<double>(now.cycle_time_us) / 500) *
           (now.hierarchical_allreduce ? 0.5 : 1);
  });
  REQUIRE(program.tuner.result());
  const Autotuner::Trial best = *program.tuner.result();
  CHECK(program.trials.size() == 30);
  CHECK(program.used == best.parameters);
  CHECK(!best.parameters.hierarchical_allreduce);
  CHECK(best.parameters.cycle_time_us <= 200);
  CHECK(std::abs(std::log2(static_cast<double>(best.parameters.fusion_threshold_bytes)) - 21) <= 1);

  Program content({.cycle_time = true}, options(0, 1, 12));
  content.run(5000, [&](const Parameters& now) {
    content.change();
    return 1000.0 / (1 + static_cast<double>(now.cycle_time_us));
  });
  CHECK(content.tuner.result()->parameters == Parameters{});
}

// A machine that gets faster for all while the search goes on.
TEST_CASE("autotuner: at the end the start and the best are measured in turns") {
  Program program({.fusion = true, .cycle_time = true}, options(0, 1, 20));
  double speed = 100;
  program.run(5000, [&](const Parameters& now) {
    program.change();
    speed *= 1.001;  // what is tried late seems better than the start
    return speed * (now == Parameters{} ? 1.3 : 1);
  });
  REQUIRE(program.tuner.result());
  CHECK(program.tuner.result()->parameters == Parameters{});
  CHECK(program.used == Parameters{});
  CHECK(program.trials.size() <= 20);
}

TEST_CASE("autotuner: of few samples, too, the last ones are measured in turns") {
  for (const int samples : {4, 6, 11}) {
    Program program({.fusion = true, .cycle_time = true}, options(0, 1, samples));
    int before = 0;
    program.run(5000, [&](const Parameters& now) {
      program.change();
      // While the start was measured first, something else kept the machine busy.
      return ++before <= 45 ? 10.0 : now == Parameters{} ? 100.0 : 70.0;
    });
    REQUIRE(program.tuner.result());
    CHECK(program.tuner.result()->parameters == Parameters{});
    CHECK(program.trials.size() == static_cast<std::size_t>(samples));
  }
}

TEST_CASE(
    "autotuner: a candidate that loses one of three trials does not replace the initial "
    "parameters") {
  for (const std::size_t lost : {0, 15, 17, 19}) {
    Program program({.fusion = true}, options(0, 1, 20));
    program.run(5000, [&](const Parameters& now) {
      program.change();
      const bool slow = now == Parameters{} || (lost > 0 && program.trials.size() == lost);
      return slow ? 100.0 : 110.0;
    });
    REQUIRE(program.tuner.result());
    CHECK((program.tuner.result()->parameters == Parameters{}) == (lost > 0));
  }
}

TEST_CASE("autotuner: a candidate that is hardly faster does not replace the initial parameters") {
  for (const double faster : {1.01, 1.04}) {
    Program program({.fusion = true}, options(0, 1, 12));
    program.run(5000, [&](const Parameters& now) {
      program.change();
      return now == Parameters{} ? 100.0 : 100.0 * faster;
    });
    REQUIRE(program.tuner.result());
    CHECK((program.tuner.result()->parameters == Parameters{}) == (faster < 1.02));
  }
}

TEST_CASE("autotuner: names that never return are steps as well") {
  Autotuner tuner(Parameters{}, {.fusion = true}, options(0, 1, 1));
  Autotuner::TimePoint now{};
  int reductions = 0;
  while (!tuner.result() && reductions < 100'000) {
    tuner.ran("unique." + std::to_string(++reductions), 8, now += microseconds(1));
  }
  CHECK(tuner.result());
  CHECK(reductions < 2000);
}
