#include "spec/geometry.h"

namespace poolgrad {
namespace {

// The inverse: for every input the outputs from the first to the last window over it.
std::shared_ptr<const AxisTable> TableOf(int64_t in, std::vector<int64_t> starts, std::vector<int64_t> sizes) {
  auto table = std::make_shared<AxisTable>();
  table->starts = std::move(starts);
  table->sizes = std::move(sizes);
  table->first_over.assign(static_cast<size_t>(in), 0);
  table->end_over.assign(static_cast<size_t>(in), 0);
  const size_t out = table->starts.size();
  size_t first = 0;  // windows before it end at or before i, and stay so
  size_t end = 0;    // windows from it on start after i
  for (int64_t i = 0; i < in; ++i) {
    while (first < out && table->starts[first] + table->sizes[first] <= i) ++first;
    while (end < out && table->starts[end] <= i) ++end;
    table->first_over[static_cast<size_t>(i)] = static_cast<int64_t>(std::min(first, end));
    table->end_over[static_cast<size_t>(i)] = static_cast<int64_t>(end);
  }
  return table;
}

}  // namespace

Axis Axis::ByTable(int64_t in, std::vector<int64_t> starts, std::vector<int64_t> sizes) {
  Axis a;
  a.in = in;
  a.out = static_cast<int64_t>(starts.size());
  a.kernel = *std::max_element(sizes.begin(), sizes.end());
  a.stride = starts.size() > 1 ? starts[1] - starts[0] : a.kernel;
  bool regular = a.stride > 0;
  for (size_t o = 0; o < starts.size() && regular; ++o) {
    regular = sizes[o] == a.kernel && starts[o] == starts[0] + static_cast<int64_t>(o) * a.stride;
  }
  a.pad_lo = -starts.front();
  a.pad_hi = std::max<int64_t>(0, starts.back() + sizes.back() - in);
  if (regular) return a;
  a.stride = 1;
  a.pad_lo = a.pad_hi = 0;
  a.table = TableOf(in, std::move(starts), std::move(sizes));
  return a;
}

bool Axis::FindsEmptyWindow() const {
  if (!table && out > 4096) return true;
  for (int64_t o = 0; o < out; ++o) {
    if (valid_taps(o).size() == 0) return true;
  }
  return false;
}

Axis Axis::PartOfTable(Range outputs, Range inputs) const {
  std::vector<int64_t> starts, sizes;
  for (int64_t o = outputs.begin; o < outputs.end; ++o) {
    starts.push_back(start(o) - inputs.begin);
    sizes.push_back(size(o));
  }
  Axis part = *this;  // taps keep the numbers of the whole axis
  part.in = inputs.size();
  part.out = outputs.size();
  part.table = TableOf(part.in, std::move(starts), std::move(sizes));
  return part;
}

}  // namespace poolgrad
