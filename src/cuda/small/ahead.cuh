// The kernels of the commonest small windows, compiled ahead: their forms, and finding one. Included by one file per
// element type and direction. Other windows' kernels are compiled when a plan is made (compiled.h); these are for
// machines where that cannot be done.
#pragma once

#include <utility>

#include "cuda/common/runtime.h"
#include "cuda/small/cell_blocks.cuh"
#include "cuda/small/small_window.h"
#include "cuda/small/strip_blocks.cuh"

namespace poolgrad::cuda {

// Depth, height, width, stride of the axes that have more than one tap.
#ifdef POOLGRAD_CUDA_FEW_AHEAD  // a plane and a volume, where they are only compiled to see that they can be
inline constexpr int kCommon[][4] = {{1, 3, 3, 2}, {3, 3, 3, 2}};
#else
inline constexpr int kCommon[][4] = {{1, 2, 2, 2}, {1, 3, 3, 2}, {1, 3, 3, 1}, {2, 2, 2, 2},
                                     {3, 3, 3, 2}, {1, 1, 2, 2}, {1, 1, 4, 4}};
#endif
inline constexpr int kCommonBackward[] = {1, 5, 5, 1};

struct Forms {
  static constexpr size_t kMost = 56;
  Form form[kMost] = {};
  size_t count = 0;
  constexpr void Add(Form f, Mode mode, int pad, int vector) {
    f.mode = mode, f.pad = pad, f.vector = vector;
    form[count++] = f;
  }
};

constexpr Form CommonForm(const int (&window)[4], int size, bool routes) {
  Form f{};
  for (int i = 0; i < 3; ++i) {
    f.kernel[i] = window[i], f.stride[i] = window[i] == 1 ? 1 : window[3], f.dilation[i] = 1;
  }
  f.bits = f.codes = f.taps() <= 4 ? 2 : f.taps() <= 16 ? 4 : 8;
  f.size = size, f.deep = 1, f.routes = routes;
  return f;
}

// Channels last: signals run down.
constexpr void AddLast(Forms* forms, Form f, int vector) {
  if (f.kernel[1] == 1) {
    std::swap(f.kernel[1], f.kernel[2]);
    std::swap(f.stride[1], f.stride[2]);
  }
  forms->Add(f, Mode::kLast, 0, vector);
}

constexpr void AddRows(Forms* forms, const Form& f, bool backward) {
  if (f.stride[2] > 1) forms->Add(f, Mode::kFirst, 0, 1);
  if (f.kernel[2] > f.stride[2] && (f.stride[2] > 1 || backward)) forms->Add(f, Mode::kFirst, f.kernel[2] / 2, 1);
  forms->Add(f, Mode::kFirstStaged, 0, 1);
}

constexpr Forms StripForms(int size) {
  Forms forms;
  for (const auto& window : kCommon) {
    for (const bool routes : {false, true}) {
      const Form f = CommonForm(window, size, routes);
      AddLast(&forms, f, 16 / size);
      AddRows(&forms, f, false);
    }
  }
  return forms;
}

constexpr Forms CellForms(int size) {
  Forms forms;
  for (const auto& window : kCommon) {
    const Form f = CommonForm(window, size, true);
    AddLast(&forms, f, size == 4 || f.taps() > 9 || f.stride[2] == 1 ? 4 : 8);
    AddRows(&forms, f, true);
  }
  const Form f = CommonForm(kCommonBackward, size, true);
  forms.Add(f, Mode::kLast, 0, 4);
  forms.Add(f, Mode::kFirst, 2, 1);
  return forms;
}

inline constexpr Forms kStripForms[] = {StripForms(2), StripForms(4)};
inline constexpr Forms kCellForms[] = {CellForms(2), CellForms(4)};

// A kernel's parameter is a form's number: the compiler's stubs know no others.
template <class T, size_t kIndex>
struct Ahead {
  static constexpr Form kStrip = kStripForms[sizeof(T) / 4].form[kIndex];
  static constexpr Form kCells = kCellForms[sizeof(T) / 4].form[kIndex];
};

template <class T, size_t kIndex>
__global__ void __launch_bounds__(kStripThreads, ForwardTuning(Ahead<T, kIndex>::kStrip).blocks)
    StripKernel(const __grid_constant__ StripParams p) {
  RunStripForm<T, Ahead<T, kIndex>::kStrip>(p);
}
template <class T, size_t kIndex>
__global__ void __launch_bounds__(kCellThreads, BackwardTuning(Ahead<T, kIndex>::kCells).blocks)
    CellKernel(const __grid_constant__ CellParams p) {
  RunCellsForm<T, Ahead<T, kIndex>::kCells>(p);
}

template <class T, size_t... kIndex>
const void* FindStrip(const Form& wanted, std::index_sequence<kIndex...>) {
  const void* found = nullptr;
  ((wanted == Ahead<T, kIndex>::kStrip ? void(found = AddressOf(StripKernel<T, kIndex>)) : void()), ...);
  return found;
}
template <class T, size_t... kIndex>
const void* FindCells(const Form& wanted, std::index_sequence<kIndex...>) {
  const void* found = nullptr;
  ((wanted == Ahead<T, kIndex>::kCells ? void(found = AddressOf(CellKernel<T, kIndex>)) : void()), ...);
  return found;
}

template <class T>
const void* FindStrip(const Form& wanted) {
  return FindStrip<T>(wanted, std::make_index_sequence<kStripForms[sizeof(T) / 4].count>());
}
template <class T>
const void* FindCells(const Form& wanted) {
  return FindCells<T>(wanted, std::make_index_sequence<kCellForms[sizeof(T) / 4].count>());
}

}  // namespace poolgrad::cuda
