// Memory sets, pitched memory, two-dimensional and three-dimensional copies, copies at unaligned offsets and inside one
// allocation.
#include <cstring>

#include "vgt_check.h"

int main(int argc, char **argv) {
  vgt_args args = vgt_parse(argc, argv, 61);
  std::mt19937 random(args.seed);
  size_t width = args.size * 3 + 1, height = args.size; // bytes, rows
  std::vector<unsigned char> image(width * height);
  for (unsigned char &byte : image)
    byte = (unsigned char)random();

  unsigned char *pitched = nullptr, *linear = nullptr;
  size_t pitch = 0;
  CUDA(cudaMallocPitch(&pitched, &pitch, width, height));
  EXPECT(pitch >= width && pitch % 32 == 0, "copies: pitch %zu for width %zu", pitch, width);
  CUDA(cudaMalloc(&linear, width * height));
  CUDA(cudaMemset2D(pitched, pitch, 0xa5, width, height));
  CUDA(cudaMemcpy2D(pitched, pitch, image.data(), width, width, height, cudaMemcpyHostToDevice));
  CUDA(cudaMemcpy2D(linear, width, pitched, pitch, width, height, cudaMemcpyDeviceToDevice));
  EXPECT(vgt_download(linear, width * height) == image, "copies: a pitched image did not come back");

  // A copy of a window from the middle of the pitched image into a host image.
  size_t x = width / 3, y = height / 4, w = width / 2, h = height / 2;
  std::vector<unsigned char> window(width * height, 0x11), expected = window;
  for (size_t row = 0; row < h; row++)
    memcpy(&expected[(row + 1) * width + 2], &image[(y + row) * width + x], w);
  CUDA(cudaMemcpy2D(&window[width + 2], width, pitched + y * pitch + x, pitch, w, h, cudaMemcpyDeviceToHost));
  EXPECT(window == expected, "copies: a window came back wrong");

  // A memset of a window leaves its surroundings alone.
  CUDA(cudaMemset2D(pitched + y * pitch + x, pitch, 0x3c, w, h));
  CUDA(cudaMemcpy2D(linear, width, pitched, pitch, width, height, cudaMemcpyDeviceToDevice));
  expected = image;
  for (size_t row = 0; row < h; row++)
    memset(&expected[(y + row) * width + x], 0x3c, w);
  EXPECT(vgt_download(linear, width * height) == expected, "copies: a two-dimensional memset is wrong");

  // A three-dimensional copy of a box of a pitched volume.
  cudaExtent extent = make_cudaExtent(40, 7, 5);
  cudaPitchedPtr volume;
  CUDA(cudaMalloc3D(&volume, extent));
  CUDA(cudaMemset3D(volume, 0x5a, extent));
  std::vector<unsigned char> box(8 * 3 * 2), back(40 * 7 * 5), wanted(40 * 7 * 5, 0x5a);
  for (unsigned char &byte : box)
    byte = (unsigned char)random();
  cudaMemcpy3DParms in = {};
  in.srcPtr = make_cudaPitchedPtr(box.data(), 8, 8, 3);
  in.dstPtr = volume;
  in.dstPos = make_cudaPos(16, 2, 3);
  in.extent = make_cudaExtent(8, 3, 2);
  in.kind = cudaMemcpyHostToDevice;
  CUDA(cudaMemcpy3D(&in));
  cudaMemcpy3DParms out = {};
  out.srcPtr = volume;
  out.dstPtr = make_cudaPitchedPtr(back.data(), 40, 40, 7);
  out.extent = extent;
  out.kind = cudaMemcpyDeviceToHost;
  CUDA(cudaMemcpy3D(&out));
  for (int z = 0; z < 2; z++)
    for (int row = 0; row < 3; row++)
      memcpy(&wanted[((z + 3) * 7 + row + 2) * 40 + 16], &box[(z * 3 + row) * 8], 8);
  EXPECT(back == wanted, "copies: a box of a volume is wrong");

  // Offsets inside an allocation, cudaMemcpyDefault, asynchronous memset, unaligned lengths.
  std::vector<unsigned char> bytes(1001), mirror(1001, 0);
  CUDA(cudaMemset(linear, 0, 1001 < width * height ? 1001 : width * height));
  if (width * height >= 1001) {
    CUDA(cudaMemcpy(linear + 13, image.data(), 517, cudaMemcpyDefault));
    memcpy(&mirror[13], image.data(), 517);
    CUDA(cudaMemsetAsync(linear + 101, 0xee, 99, 0));
    memset(&mirror[101], 0xee, 99);
    CUDA(cudaMemcpy(linear + 700, linear + 20, 300, cudaMemcpyDeviceToDevice));
    memcpy(&mirror[700], &mirror[20], 300);
    CUDA(cudaMemcpy(bytes.data(), linear, 1001, cudaMemcpyDefault));
    EXPECT(bytes == mirror, "copies: copies inside an allocation are wrong");
  }
  CUDA(cudaFree(pitched));
  CUDA(cudaFree(linear));
  CUDA(cudaFree(volume.ptr));
  printf("ok copies %zux%zu\n", width, height);
  return 0;
}
