// bwd_average_apart: the gradient of averages whose windows share no input. Every input has one share or none, so that
// nothing is added up: the shares of a row of outputs are spread over the first row of inputs under them, which is
// copied to the others.
//
// Tried and left: covers found anew for every row (50 lines; 0.5 to 0.9 times as fast).
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "cpu/backward/backward.h"
#include "cpu/scratch.h"

namespace poolgrad {
namespace {

// What an output covers along an axis, and how much of it an average counts: divisions take longer than a short row.
struct Cover {
  Range inputs;
  int64_t counted;
};

struct ApartLayout {
  std::vector<Cover> along[3];
  std::vector<int64_t> over;  // the output over every depth of the input, or -1
  Range alike = {};           // outputs along the width that all have all of their taps, if there are several

  explicit ApartLayout(const Problem& p) {
    for (int i = 0; i < 3; ++i) {
      const Axis& a = p.axis[i];
      along[i].reserve(static_cast<size_t>(a.out));
      for (int64_t o = 0, behind = 0; o < a.out; ++o) {
        const int64_t from = std::clamp(a.start(o), behind, a.in);
        behind = std::clamp(a.start(o) + a.size(o), from, a.in);
        const bool counts = p.divisor == 0 && !p.whole_window_gradient;
        along[i].push_back({{from, behind}, counts ? a.counted_taps(o, p.count_padding).size() : 1});
      }
    }
    over.assign(static_cast<size_t>(p.depth().in), -1);
    for (size_t o = 0; o < along[0].size(); ++o) {
      const Range depths = along[0][o].inputs;
      std::fill(over.begin() + depths.begin, over.begin() + depths.end, static_cast<int64_t>(o));
    }
    const Range interior = p.width().interior();
    if (!p.channels_last() && interior.size() > 1) alike = interior;
  }
};

// The first `each` elements n times.
template <class T>
void Repeat(T* first, int64_t each, int64_t n) {
  if (each == 1) {
    constexpr int64_t kBlock = 512 / sizeof(T);
    const T value = *first;
    for (; n > 0; n -= kBlock, first += kBlock) {
      const int64_t some = std::min(n, kBlock);
      AskFor(first, kBytesAhead, some * static_cast<int64_t>(sizeof(T)));
      std::fill_n(first, some, value);
    }
    return;
  }
  constexpr int64_t kNear = 4096;  // elements that are read again while they are in the cache
  for (int64_t done = 1; done < n;) {
    const int64_t more = std::min({done, n - done, std::max<int64_t>(1, kNear / each)});
    std::copy_n(first, more * each, first + done * each);
    done += more;
  }
}

template <class T>
class AverageApart {
 public:
  AverageApart(const Problem& p, const Args& args, ScratchTaker&) : p_(p), args_(args) {}

  // Units are rows of outputs at each depth of the input; theirs are the inputs up to where the next row begins.
  void Run(int64_t begin, int64_t end) const {
    const int64_t rows_in = p_.height().in, rows_out = p_.height().out, depths = p_.depth().in;
    int64_t oh = begin % rows_out, slice = begin / rows_out;  // images' depths
    int64_t id = slice % depths, image = slice / depths;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t od = l_.over[static_cast<size_t>(id)];
      const Cover& cover = Along(1, oh);
      const int64_t first = oh == 0 ? 0 : cover.inputs.begin;
      const int64_t past = oh + 1 == rows_out ? rows_in : Along(1, oh + 1).inputs.begin;
      const Range rows = od < 0 ? Range{first, first} : cover.inputs;
      T* to = dx_ + slice * rows_in * row_;
      const int64_t bytes = (past - first) * row_ * static_cast<int64_t>(sizeof(T));
      AskFor(to + first * row_, kBytesAhead, std::min(bytes, kBytesAhead));
      std::fill(to + first * row_, to + rows.begin * row_, T{});
      if (rows.size() > 0) {
        const T* dy = dy_ + ((image * p_.depth().out + od) * rows_out + oh) * p_.width().out * each_;
        Spread(dy, Along(0, od).counted * cover.counted, rows.size(), to + rows.begin * row_);
      }
      std::fill(to + rows.end * row_, to + past * row_, T{});
      if (++oh < rows_out) continue;
      oh = 0, ++slice;
      if (++id == depths) id = 0, ++image;
    }
  }

 private:
  const Cover& Along(int axis, int64_t o) const { return l_.along[axis][static_cast<size_t>(o)]; }

  // The shares of a row of outputs, over so many rows of inputs.
  void Spread(const T* dy, int64_t counted, int64_t rows, T* to) const {
    const Axis& w = p_.width();
    int64_t at = 0;
    for (int64_t ow = 0; ow < w.out; ++ow) {
      const auto& [columns, of_width] = Along(2, ow);
      const Wide<T> count = static_cast<Wide<T>>(counted * of_width) * all_;
      T* share = to + columns.begin * each_;
      if (columns.size() == 0) continue;
      std::fill(to + at * each_, share, T{});
      if (ow == l_.alike.begin && l_.alike.size() > 0) {
        SpreadAlike(dy + ow, l_.alike.size(), count, share);
        ow = l_.alike.end - 1, at = Along(2, ow).inputs.end;
        continue;
      }
      for (int64_t c = 0; c < each_; ++c) share[c] = Share(dy[ow * each_ + c], count);
      if (columns.size() == w.in) return Repeat(share, each_, rows * w.in);
      Repeat(share, each_, columns.size());
      at = columns.end;
    }
    std::fill(to + at * each_, to + row_, T{});
    for (int64_t r = 1; r < rows; ++r) std::copy_n(to, row_, to + r * row_);
  }

  // n outputs one beside the other, channels first, which all have all of their taps.
  void SpreadAlike(const T* dy, int64_t n, Wide<T> count, T* to) const {
    constexpr int64_t kMost = 256;
    T shares[kMost];
    const int64_t kernel = p_.width().kernel;
    for (; n > 0; n -= kMost, dy += kMost) {
      const int64_t some = std::min(n, kMost);
      for (int64_t i = 0; i < some; ++i) shares[i] = Share(dy[i], count);
      if (kernel == 2) {
        for (int64_t i = 0; i < some; ++i) to[2 * i] = to[2 * i + 1] = shares[i];
        to += 2 * some;
        continue;
      }
      for (int64_t i = 0; i < some; ++i) {
        for (int64_t k = 0; k < kernel; ++k) *to++ = shares[i];
      }
    }
  }

  static T Share(T dy, Wide<T> count) { return Narrow<T>(Wide<T>{0} + Widen(dy) / count); }

  const Problem& p_;
  const Args& args_;
  const ApartLayout& l_ = *static_cast<const ApartLayout*>(args_.layout);
  const int64_t each_ = p_.channels_last() ? p_.channels : 1;  // elements of a place
  const int64_t row_ = p_.width().in * each_;                  // and of a row of dx
  // What every window counts, or 1 where its taps are counted.
  const Wide<T> all_ = static_cast<Wide<T>>(p_.whole_window_gradient ? p_.taps() : std::max<int64_t>(1, p_.divisor));
  const T* const dy_ = static_cast<const T*>(args_.source);
  T* const dx_ = static_cast<T*>(args_.result);
};

}  // namespace

const char* MakeAverageApart(const Problem& p, poolgrad_op, const Host&, Kernel* kernel) {
  constexpr int64_t kExact = 1 << 24;  // counts that f32 holds
  if (p.taps() > kExact || p.divisor > kExact || p.divisor < 0) return "a window has too many taps";
  constexpr int64_t kLongest = 4096;  // what a plan may list
  for (const Axis& a : p.axis) {
    if (a.out > kLongest) return "an axis has too many outputs to list";
    if (!a.disjoint()) return "the windows overlap";
    if (a.dilation > 1) return "the windows are dilated";
  }
  if (p.depth().in > kLongest) return "the input is too deep to list";
  const Axis& w = p.width();
  if (!p.channels_last() && w.out > 1 && w.stride > w.kernel) return "the windows leave gaps";
  kernel->units = (p.channels_last() ? p.batch : p.batch * p.channels) * p.depth().in * p.height().out;
  if (p.dtype == POOLGRAD_F32) kernel->run = RunAs<AverageApart<float>>;
  if (p.dtype == POOLGRAD_F64) kernel->run = RunAs<AverageApart<double>>;
  if (p.dtype == POOLGRAD_F16) kernel->run = RunAs<AverageApart<F16>>;
  if (p.dtype == POOLGRAD_BF16) kernel->run = RunAs<AverageApart<BF16>>;
  if (!kernel->run) return "it is not built for this type";
  kernel->layout = std::make_shared<const ApartLayout>(p);
  return nullptr;
}

}  // namespace poolgrad
