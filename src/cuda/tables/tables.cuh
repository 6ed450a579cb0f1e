// Windows by table (adaptive and fractional pooling, a user's own starts), and averages of any window.
//
// Windows of different sizes leave nothing to unroll, so these kernels are short loops over what each window has; what
// makes them fast is how memory is touched. This is what both layouts share. Channels last (tables_last.cuh): a thread
// has 16 bytes of channels of one output (forward) or of one input (backward), and goes through the taps, or the
// outputs over that input, in row-major order. Channels first (tables_first.cuh): a block holds a piece of x in shared
// memory (forward), or for every output that reaches a piece of dx what it adds and where (backward); everything that
// is read or written is a run. Where windows have hundreds of inputs, dx is cleared and few gradients are put in,
// either layout (tables_cleared.cuh).
//
// A winner is found by every rule at once: `nan_wins` says who wins where a NaN takes part, so that no window has to be
// done again.
#pragma once

#include "cuda/common/packs.cuh"
#include "cuda/common/staging.cuh"
#include "cuda/common/tuning.h"
#include "cuda/tables/tables_form.h"

namespace poolgrad::cuda {

inline constexpr int kTableAhead = 4;  // taps along a row that a thread asks for at once
// Where too few threads would keep memory busy, a block fetches 128 bytes of so many places, so many stages ahead.
inline constexpr int kTableRunBytes = 128, kTablePlaces = 32, kTableStages = 4;
static_assert(kTableThreads == kTablePlaces * kTableRunBytes / 16);

// What a window has of an axis: tap 0 lies at `start`, and [begin, end) of the input is in it. An average counts
// `counted`.
struct alignas(16) Span {
  int start, begin, end, counted;
};

// Windows without dilation, in numbers of 32 bits. For host and device, so that pieces are cut by what kernels will do.
struct TableAxis {
  int in, out, kernel, stride, pad_lo, pad_hi;
  int32_t form, list;
  bool sized;
  FastDiv by_out, by_in;  // of kAdaptive; else by_in divides by the stride

  __host__ __device__ static int Over(const FastDiv& by, int n) {
    uint32_t rest = static_cast<uint32_t>(n);
    return static_cast<int>(by.take(&rest));
  }
  __host__ __device__ const uint16_t* entries() const {
    return reinterpret_cast<const uint16_t*>(reinterpret_cast<const char*>(this) + list);
  }
  __host__ __device__ int start(int o) const {
    if (form == kRegular) return o * stride - pad_lo;
    return form == kAdaptive ? Over(by_out, o * in) : entries()[o];
  }
  __host__ __device__ int end(int o) const {
    if (form == kAdaptive) return Over(by_out, (o + 1) * in + out - 1);
    return start(o) + (sized ? entries()[out + o] : kernel);
  }
  __host__ __device__ Span span(int o) const {
    Span s{start(o), 0, end(o), 0};
    s.begin = s.start > 0 ? s.start : 0;
    if (s.end > in) s.end = in;
    return s;
  }
  // [*begin, *end) of the input is all that outputs [first, last] reach.
  __host__ __device__ void reach(int first, int last, int* begin, int* end_of_all) const {
    *begin = span(first).begin;
    int most = span(last).end;
    for (int o = first; sized && o < last; ++o) most = end(o) > most ? end(o) : most;
    *end_of_all = most > *begin ? most : *begin;
  }
  // Outputs from the first to the last with a tap on input i; with sizes, some between them may have none.
  __host__ __device__ void covering(int i, int* begin, int* end_of_all) const {
    if (form == kAdaptive) {
      *begin = Over(by_in, i * out);
      *end_of_all = Over(by_in, (i + 1) * out + in - 1);
    } else if (form == kListed) {
      *begin = FirstFrom(entries(), out, i - kernel + 1);
      *end_of_all = FirstFrom(entries(), out, i + 1);
    } else {
      const int over = i + pad_lo, low = over - kernel + 1;
      *begin = low > 0 ? Over(by_in, low + stride - 1) : 0;
      const int high = over < 0 ? 0 : Over(by_in, over) + 1;
      *end_of_all = high < out ? high : out;
    }
  }
  // What an average counts.
  __device__ int counted(int o, bool padding) const {
    if (form != kRegular) return end(o) - start(o);
    const int low = max(start(o), padding ? -pad_lo : 0), high = min(end(o), padding ? in + pad_hi : in);
    return max(0, high - low);
  }
  __device__ Span window(int o, bool padding) const {
    Span s = span(o);
    s.counted = counted(o, padding);
    return s;
  }
};

template <class T>
struct TableParams {
  const T* source;
  T* result;
  uint8_t* routes;
  TableAxis axis[3];
  FastDiv out[3], in[3];  // divide by the sizes
  FastDiv out_plane;      // and by that of all outputs of a plane
  FastDiv across;         // channels last: groups of channels at a place
  FastDiv by_channels;
  int channels;
  uint32_t threads;
  FastDiv kernel[2];  // of height and width
  FastDiv dilation[3];
  uint32_t taps;
  int bits;
  uint32_t none;
  int64_t line_bytes;
  int divisor, gradient_divisor;  // 0: the taps that count
  uint32_t nan_wins;              // see Contest
  bool last_wins, relu, count_padding, ignore_nan;
  bool exact;  // the fast comparison never holds
  // Channels last, backward: inputs of a run, and runs of a row.
  int run;
  FastDiv runs;
  // Channels first, and scattered.
  Pieces cut;
  FastDiv padded;    // outputs of a line, rounded up to whole bytes of routes
  int rows_at_once;  // backward: rows of inputs that the threads of a block do at once
  FastDiv half;      // and columns of a row, of which a thread has two
  bool tall;         // and it does rows one below the other
  int rows_place;    // backward: where the table of rows lies
  int spans_place;   // and those of windows
  bool two;          // backward: at most two outputs along the width, and the height, lie over an input
  int strip;         // forward: rows of outputs that a thread does one below the other
  FastDiv strips;
  int few;  // forward: taps along the width at most, where they are unrolled; 0: any number
  int log_sharers;
  bool wide;  // forward: rows are read four at a time
  uint16_t lists[kListEntries];
};

// ---- who wins ----

// nan_wins has a bit for each way a comparison can have a NaN: the challenger only, the best so far only, both.
template <class T>
struct Contest {
  using V = Wide<T>;
  V best;
  T winner;  // its bits
  uint32_t code;

  // Nothing has won: the start of rule `ignore`, and windows without a tap.
  __device__ void Clear(uint32_t none) { winner = LowestOf<T>(), best = Widened(winner), code = none; }
  __device__ void Take(T bits, V v, uint32_t tap) { winner = bits, best = v, code = tap; }
  __device__ void Meet(const TableParams<T>& p, T bits, uint32_t tap) {
    const V v = Widened(bits);
    bool wins = p.last_wins ? v >= best : v > best;
    if (!(v <= best) && !wins) wins = p.nan_wins >> ((v != v ? 1 : 0) + (best != best ? 2 : 0)) & 1u;
    if (wins) Take(bits, v, tap);
  }
  __device__ void Rectify(const TableParams<T>& p) {
    if (p.relu && !(best > V{0}) && best == best) winner = Narrowed<T>(V{0}), code = p.none;
  }
};

// One output by every rule, from global memory: where there is a NaN, or nothing above -inf, or a rule that the fast
// comparison (`>`, the first tap wins a tie) does not know. `step`: elements from a place of the plane to the next.
template <class T>
__device__ __noinline__ uint32_t ExactOutput(const TableParams<T>& p, const T* plane, int step, int od, int oh, int ow,
                                             T* y) {
  const TableAxis* a = p.axis;
  const Span d = a[0].span(od), h = a[1].span(oh), w = a[2].span(ow);
  Contest<T> contest;
  contest.Clear(p.none);
  bool started = p.ignore_nan;
  // Where the first tap is that is inside.
  const auto first = [&](int i, const Span& span) {
    const int step = static_cast<int>(p.dilation[i].divisor);
    return span.start + (span.begin - span.start + step - 1) / step * step;
  };
#pragma unroll 1
  for (int at_d = first(0, d); at_d < d.end; at_d += p.dilation[0].divisor) {
#pragma unroll 1
    for (int at_h = first(1, h); at_h < h.end; at_h += p.dilation[1].divisor) {
      const T* row = plane + (static_cast<int64_t>(at_d) * a[1].in + at_h) * a[2].in * step;
      int at_w = first(2, w);
      uint32_t tap = (p.dilation[0].of(at_d - d.start) * p.kernel[0].divisor + p.dilation[1].of(at_h - h.start)) *
                         p.kernel[1].divisor +
                     p.dilation[2].of(at_w - w.start);
#pragma unroll 1
      for (; at_w < w.end; at_w += p.dilation[2].divisor, ++tap) {
        const T bits = row[static_cast<int64_t>(at_w) * step];
        if (!started) contest.Take(bits, Widened(bits), tap);
        started = true;
        contest.Meet(p, bits, tap);
      }
    }
  }
  contest.Rectify(p);
  *y = contest.winner;
  return contest.code & p.none;
}

// The fast comparison of one output.
struct Duel {
  float best = LowestOf<float>(), watched = 0;
  uint32_t tap = 0;
  __device__ void Meet(float v, uint32_t number) {
    watched = Pack<float>::Watch(watched, v);
    if (v > best) best = v, tap = number;
  }
  __device__ bool Exceptional() const { return Pack<float>::Exceptional(watched, best); }
};

// What a block that writes a piece of dx has found of the axes: the windows of the outputs that reach it, and which of
// them lie over its inputs. Both are numbered from the block's first.
struct Interval {
  int begin, end;
};
// Its inputs, and the outputs that reach them, by axis.
struct BlockOutputs {
  int first_in[3], ins[3], first_out[3], outs[3];

  template <class T>
  __device__ BlockOutputs(const TableParams<T>& p, const Piece& piece)
      : first_in{piece.depth, piece.row, 0}, ins{piece.depths, piece.rows, p.axis[2].in} {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const TableAxis& a = p.axis[i];
      first_out[i] = 0, outs[i] = a.out;  // of a whole axis also those that reach nothing
      if (ins[i] < a.in) {
        int unused, end;
        a.covering(first_in[i], &first_out[i], &unused);
        a.covering(first_in[i] + ins[i] - 1, &unused, &end);
        outs[i] = max(0, end - first_out[i]);
      }
    }
  }
};
struct BlockAxes : BlockOutputs {
  Span* window[3];
  Interval* over[3];

  // After the block has waited, the tables are at `memory`, which is aligned to 16 bytes. `width`: also of that axis.
  template <class T>
  __device__ BlockAxes(const TableParams<T>& p, const Piece& piece, unsigned char* memory, bool width)
      : BlockOutputs(p, piece) {
    Span* spans = reinterpret_cast<Span*>(memory);
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      window[i] = spans;
      if (i < 2 || width) spans += outs[i];
    }
    Interval* overs = reinterpret_cast<Interval*>(spans);
#pragma unroll
    for (int i = 0; i < (width ? 3 : 2); ++i) {
      over[i] = overs, overs += ins[i];
      for (int k = threadIdx.x; k < max(ins[i], outs[i]); k += blockDim.x) {
        if (k < outs[i]) window[i][k] = p.axis[i].window(first_out[i] + k, p.count_padding);
        if (k < ins[i]) {
          Interval o;
          p.axis[i].covering(first_in[i] + k, &o.begin, &o.end);
          over[i][k] = {o.begin - first_out[i], o.end - first_out[i]};
        }
      }
    }
  }
  // All outputs of a plane are there: pieces of several planes have them.
  template <class T>
  __device__ bool Whole(const TableParams<T>& p) const {
    return outs[0] == p.axis[0].out && outs[1] == p.axis[1].out;
  }
};

template <class T>
__device__ int Counted(const TableParams<T>& p, int divisor, int od, int oh, int ow) {
  if (divisor != 0) return divisor;
  return p.axis[0].counted(od, p.count_padding) * p.axis[1].counted(oh, p.count_padding) *
         p.axis[2].counted(ow, p.count_padding);
}

}  // namespace poolgrad::cuda
