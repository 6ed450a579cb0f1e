// Routes as the indices of PyTorch, TensorFlow or ONNX: an output to a thread.
#include <string>

#include "cuda/common/device.cuh"
#include "cuda/cuda.h"
#include "cuda/generic/generic.cuh"

namespace poolgrad {
namespace cuda {
namespace {

template <class I>
__global__ void IndexKernel(const __grid_constant__ ListedGeo<I> listed, const uint8_t* routes, int numbering,
                            int64_t* indices, int64_t outputs) {
  const Geo<I>& g = listed;
  const int64_t o = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (o >= outputs) return;
  const I line = static_cast<I>(o / g.line), at = static_cast<I>(o % g.line);
  const OutPlace<I> place = PlaceOfLine(g, line, at);
  const int64_t tap = CodeAt(g.bits, routes + static_cast<int64_t>(line) * g.line_bytes, at);
  const int64_t kernel[] = {g.axis[0].kernel, g.axis[1].kernel, g.axis[2].kernel};
  const int64_t k[] = {tap / kernel[2] / kernel[1], tap / kernel[2] % kernel[1], tap % kernel[2]};
  int64_t in[3];
  bool routed = true;
  for (int i = 0; i < 3; ++i) {
    in[i] = g.axis[i].start(place.at[i]) + k[i] * g.axis[i].dilation;
    routed = routed && k[i] < g.axis[i].size(place.at[i]) && in[i] >= 0 && in[i] < g.axis[i].in;
  }
  const int64_t size[] = {g.axis[0].in, g.axis[1].in, g.axis[2].in};
  const int64_t plane = size[0] * size[1] * size[2];
  const int64_t flat = (in[0] * size[1] + in[1]) * size[2] + in[2];
  const int64_t channels = g.channels, n = place.n, c = place.c;
  int64_t index = flat;
  switch (numbering) {
    case POOLGRAD_INDEX_TENSORFLOW:
      index = flat * channels + c;
      break;
    case POOLGRAD_INDEX_TENSORFLOW_BATCH:
      index = (n * plane + flat) * channels + c;
      break;
    case POOLGRAD_INDEX_ONNX:
      index = (n * channels + c) * plane + flat;
      break;
    case POOLGRAD_INDEX_ONNX_COLUMN:
      index = (n * channels + c) * plane + (in[2] * size[1] + in[1]) * size[0] + in[0];
      break;
  }
  indices[o] = routed ? index : -1;
}

template <class I>
cudaError_t RunIndices(const Problem& p, const uint8_t* routes, poolgrad_numbering numbering, int64_t* indices,
                       void* stream) {
  return Launch(IndexKernel<I>, CeilDiv(p.y_elements(), kGenericThreads), kGenericThreads, 0, stream,
                MakeListedGeo<I>(p), routes, static_cast<int>(numbering), indices, p.y_elements());
}

}  // namespace
}  // namespace cuda

Status CudaRoutesToIndices(const Problem& problem, const uint8_t* routes, poolgrad_numbering numbering,
                           int64_t* indices, void* stream) {
  const cuda::DeviceScope scope(problem.device_index);
  if (scope.status() != cudaSuccess) {
    return cuda::ErrorStatus(scope.status(), "to use device " + std::to_string(problem.device_index));
  }
  const cudaError_t error = cuda::FitsInt32(problem)
                                ? cuda::RunIndices<int32_t>(problem, routes, numbering, indices, stream)
                                : cuda::RunIndices<int64_t>(problem, routes, numbering, indices, stream);
  return error == cudaSuccess ? Status{} : cuda::ErrorStatus(error, "to launch routes_to_indices");
}

}  // namespace poolgrad
