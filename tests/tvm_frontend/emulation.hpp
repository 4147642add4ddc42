// Just enough of CUDA to run a kernel's source on a CPU: each thread of a block is a thread, blocks run one after the other.
#include <barrier>
#include <cmath>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#define __global__
#define __shared__ static
#define alignas(bytes)  // it stands where C++ does not allow it
#define __launch_bounds__(threads)
#define CUDART_INF_F INFINITY

struct Place {
  unsigned x = 0, y = 0;
};
static thread_local Place threadIdx, blockIdx;
static std::barrier<>* together;
static void __syncthreads() { together->arrive_and_wait(); }

static void launch(unsigned blocks, unsigned rows, unsigned columns, const std::function<void()>& kernel) {
  std::barrier<> all(rows * columns);
  together = &all;
  std::vector<std::thread> threads;
  for (unsigned row = 0; row < rows; ++row)
    for (unsigned column = 0; column < columns; ++column)
      threads.emplace_back([=, &kernel, &all] {
        threadIdx = {column, row};
        for (unsigned block = 0; block < blocks; ++block) {
          blockIdx = {block, 0};
          kernel();
          all.arrive_and_wait();  // the next block has the same shared memory
        }
      });
  for (auto& thread : threads) thread.join();
}
