// A host in C++: J of a policy on a model that Python hands over, on threads of its own, each with its own stream.
//
//   c++ -std=c++17 -O2 -shared -fPIC -pthread -o libestimate.so estimate.cpp        (fastcmdp.h: see run.py)
#include <cstdint>
#include <thread>
#include <vector>

#include "fastcmdp.h"

namespace {

// Sums of the signals over `n` rollouts on stream (seed, thread).
std::vector<double> rollouts(const fcmdp_api &f, const fcmdp_model &model, const std::vector<std::uint32_t> &entry,
                             std::uint64_t seed, std::uint64_t thread, std::int64_t n) {
  std::vector<double> sum(model.n_signals), one(model.n_signals);
  std::uint64_t rng[4];
  f.stream(seed, thread, 0, rng);
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t last;
    f.rollout(&model, entry.data(), rng, -1, one.data(), &last);
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += one[k];
  }
  return sum;
}

}  // namespace

// Estimates of J of all signals, value[1+m], from `threads` times `n` rollouts: status.
extern "C" std::int64_t estimate(const fcmdp_api *f, const fcmdp_model *model, const double *prob, std::uint64_t seed,
                                 std::int64_t threads, std::int64_t n, double *value) {
  if (!fcmdp_fits(f)) return FCMDP_BAD_SIZE;
  std::vector<std::uint32_t> entry(3 * model->n_entries);
  if (const auto status = f->policy(model, prob, entry.data()); status != FCMDP_OK) return status;

  std::vector<std::vector<double>> sums(threads);
  std::vector<std::thread> workers;
  for (std::int64_t t = 0; t < threads; ++t)
    workers.emplace_back([&, t] { sums[t] = rollouts(*f, *model, entry, seed, t, n); });
  for (auto &worker : workers) worker.join();

  for (std::int64_t k = 0; k < model->n_signals; ++k) {
    value[k] = 0.0;
    for (const auto &sum : sums) value[k] += sum[k];
    value[k] /= static_cast<double>(threads * n);
  }
  return FCMDP_OK;
}
