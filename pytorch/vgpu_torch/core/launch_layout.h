// Which thread of a kernel draws the random number of which element, as in torch's launches on a GPU.
#pragma once
#include "philox.h"
#include "random.h"
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <algorithm>

namespace vgpu_torch {

class Draws {
public:
  // A grid-stride loop of 256-thread blocks, as many as fit on the device; each call gives `unroll` numbers. Advances
  // the generator as torch does.
  static Draws of_distribution(const at::Tensor &self, int unroll, const std::optional<at::Generator> &generator);
  // bernoulli_ with a probability for each element: thread i has elements 4i to 4i+3.
  static Draws of_bernoulli(const at::Tensor &self, const std::optional<at::Generator> &generator);

  // Read the generator's state. To be called before the functions below.
  void resolve() { state_ = random_.read(); }

  Philox4 at(uint64_t thread, uint64_t call) const { return philox(state_.seed, thread, state_.offset, call); }

  // Calls `element(index, numbers, k)` for each element: its random number is the k-th that one call gives.
  template <int UNROLL, typename F> void for_each(F &&element) const {
    for (int64_t thread = 0; thread < std::min(threads_, numel_); thread++)
      for (int64_t base = thread, call = 0; base < numel_; base += threads_ * UNROLL, call++) {
        const Philox4 numbers = at(thread, call);
        for (int k = 0; k < UNROLL && base + threads_ * k < numel_; k++)
          element(base + threads_ * k, numbers, k);
      }
  }

  // As for_each, with `vector` consecutive elements per thread; a thread draws four numbers at a time.
  template <typename F> void for_each_vector(int vector, F &&element) const {
    const int calls = (vector + 3) / 4;
    for (int64_t thread = 0; thread * vector < numel_ && thread < threads_; thread++)
      for (int64_t base = thread * vector, call = 0; base < numel_; base += threads_ * vector, call += calls)
        for (int i = 0; i < vector; i++)
          element(base + i, at(thread, call + i / 4), i % 4);
  }

private:
  Draws(const at::Tensor &self, const std::optional<at::Generator> &generator, int64_t threads, uint64_t increment);
  RandomState random_;
  RandomState::Values state_ = {0, 0};
  int64_t numel_, threads_;
};

// The number of consecutive elements that a thread of the dropout kernel processes at a time.
int dropout_vector_size(const at::Tensor &self);

} // namespace vgpu_torch
