// Tiles of several warps: the warps wait for each other in memory, from sm_80 on in reserved shared memory.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
extern "C" __global__ void wide_tiles(const int *x, int *out) {
  __shared__ cg::block_tile_memory<256> memory;
  auto block = cg::this_thread_block(memory);
  auto tile = cg::tiled_partition<128>(block);
  int v = x[block.thread_rank()];
  int sum = cg::reduce(tile, v, cg::plus<int>());
  int other = tile.shfl(v, 77);
  out[block.thread_rank()] = sum * 1000 + other + (tile.any(v == 99) ? 500 : 0);
}
