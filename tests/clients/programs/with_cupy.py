"""CuPy on a GPU newer than any machine code: NVRTC's kernels, and the PTX of CUB and cuRAND, compared with numpy.

Nothing here needs cuBLAS, which is half a gigabyte.
"""

import cupy as cp
import numpy as np

SEED = 20260128
CUDA = r"""
extern "C" __global__ void smooth(const float *in, float *out, int n)
{
  __shared__ float tile[130];
  int i = blockIdx.x * 128 + threadIdx.x;
  tile[threadIdx.x + 1] = i < n ? in[i] : 0;
  if (threadIdx.x == 0)
    tile[0] = i > 0 ? in[i - 1] : 0;
  if (threadIdx.x == 127)
    tile[129] = i + 1 < n ? in[i + 1] : 0;
  __syncthreads();
  if (i < n)
    out[i] = (tile[threadIdx.x] + tile[threadIdx.x + 1] + tile[threadIdx.x + 2]) / 3;
}
"""


def compare(name, got, expected, tolerance=1e-4):
    got, expected = cp.asnumpy(got), np.asarray(expected)
    assert got.shape == expected.shape, f"{name}: shape {got.shape} instead of {expected.shape}"
    error = float(np.abs(got - expected).max())
    print(f"{name}: largest difference from the CPU {error:.2e}", flush=True)
    assert np.allclose(got, expected, rtol=tolerance, atol=tolerance), name


rng = np.random.default_rng(SEED)
name = cp.cuda.runtime.getDeviceProperties(0)["name"].decode()
print(f"device: {name}, compute capability {cp.cuda.Device().compute_capability}; CuPy {cp.__version__}")

x = rng.standard_normal(1000, dtype=np.float32)
device = cp.asarray(x)
compare("sin(2x) + 1", cp.sin(device * 2) + 1, np.sin(x * 2) + 1)
compare("sum", device.sum(), x.sum())
compare("sort", cp.sort(device), np.sort(x))

smoothed = cp.empty_like(device)
cp.RawKernel(CUDA, "smooth")((8,), (128,), (device, smoothed, 1000))
padded = np.pad(x, 1)
compare("a kernel in CUDA C++", smoothed, (padded[:-2] + padded[1:-1] + padded[2:]) / 3)

# Fit a linear model by gradient descent; each step is one kernel that sums over the points.
points = rng.standard_normal((500, 4), dtype=np.float32)
labels = points @ np.array([1, -2, 3, 0.5], np.float32)
sums = cp.ReductionKernel("T error, T x", "T y", "error * x", "a + b", "y = a / 250", "0", "gradient")
on_device, wanted, weights = cp.asarray(points), cp.asarray(labels), cp.zeros(4, "f4")
by_numpy = np.zeros(4, np.float32)
for _ in range(20):
    error = (on_device * weights).sum(1) - wanted
    weights = weights - 0.2 * sums(error[:, None], on_device, axis=0)
    by_numpy = by_numpy - 0.2 * ((points @ by_numpy - labels)[:, None] * points).sum(0) / 250
compare("weights after 20 steps", weights, by_numpy, 1e-3)

compare("mean of 10,000 random numbers (cuRAND)", cp.random.rand(10000).mean(), 0.5, 0.02)
print("ok cupy")
