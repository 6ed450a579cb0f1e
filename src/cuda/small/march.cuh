// Both directions for windows that move by one along height and depth, dilated or not: a thread marches along the
// depth.
//
// Neighbouring lanes have neighbouring columns, or channels where those are last: whatever a thread reads, its warp
// reads side by side. A thread has some rows, as far apart as the window is dilated, and goes along the depth in steps
// of the dilation, so that dilated windows cost as much as dense ones. Forward it finds the maxima of each depth once
// and adds them to the KD outputs that the depth reaches; backward it loads the outputs of each depth once and adds
// them to the KD depths of inputs that they reach. Where windows have no depth the height is marched along
// (MarchProblem).
#pragma once

#include "cuda/common/exact.cuh"
#include "cuda/common/packs.cuh"
#include "cuda/common/staging.cuh"
#include "cuda/common/tuning.h"
#include "cuda/common/words.cuh"

namespace poolgrad::cuda {

struct MarchParams {
  Geo<int64_t> g;  // for the exact path
  const void* source;
  void* result;  // forward: null where only routes are wanted
  uint8_t* routes;
  uint32_t threads;
  // Columns, or channel vectors; columns where channels are last; groups of rows, phases among them; segments of the
  // depth, phases among them.
  FastDiv lanes, columns, groups, segments;
  int in[3], out[3], pad[3];
  int channels;
  int row_groups;   // of a phase
  int depths;       // of a thread
  int depth_parts;  // of a phase
  int64_t x_plane, x_depth, x_row, x_column;
  int64_t y_plane, y_depth, y_row, y_column;
  int64_t route_plane, route_depth, route_row, line_bytes;
};

template <class T, Form F>
struct March {
  static constexpr int KD = F.kernel[0], KH = F.kernel[1], KW = F.kernel[2], SW = F.stride[2], DD = F.dilation[0],
                       DH = F.dilation[1], DW = F.dilation[2];
  static constexpr int kBits = F.bits, kSize = F.size;
  static constexpr bool kLast = F.mode == Mode::kLastMarch;
  static constexpr int R = F.run;  // rows of a thread
  // Its elements in a row: two channels side by side, in whole words, or one or two columns.
  static constexpr bool kWords = F.even;
  static constexpr int V = F.vector, kColumns = kWords ? 1 : V;
  static_assert(V == 2 || (V == 1 && !kWords));
  static constexpr int kRows = R + KH - 1;                   // that its windows, or the outputs over its inputs, lie in
  static constexpr int kNext = SW == 1 ? DW : 1;             // from its first column to the second
  static constexpr int kWidth = kWords ? V * kSize / 4 : 1;  // words of a place
  // Codes of its two elements are neighbours.
  static constexpr bool kCodesMeet = V == 2 && (kWords || (!kLast && kNext == 1));

  // What a thread makes: `number` its plane or sample, `at` its first depth, its first row and its column.
  struct Place {
    int64_t number;
    int channel, at[3];
    int depths, rows;   // that there are of its own
    bool live, second;  // whether it has an element, and a second one
    // sizes: of the result.
    __device__ Place(const MarchParams& p, uint32_t thread, const int (&sizes)[3]) {
      uint32_t lane = thread, column = 0;
      uint32_t rest = p.lanes.take(&lane);
      if constexpr (kLast) {
        column = rest;
        rest = p.columns.take(&column);
      }
      uint32_t group = rest;
      rest = p.groups.take(&group);
      uint32_t segment = rest;
      rest = p.segments.take(&segment);
      number = rest;
      channel = kLast ? static_cast<int>(lane) * (kWords ? V : 1) : 0;
      const uint32_t phase = DD == 1 ? 0 : segment / static_cast<uint32_t>(p.depth_parts),
                     row_phase = DH == 1 ? 0 : group / static_cast<uint32_t>(p.row_groups);
      at[0] = static_cast<int>(phase + (segment - phase * p.depth_parts) * p.depths * DD);
      at[1] = static_cast<int>(row_phase + (group - row_phase * p.row_groups) * R * DH);
      const uint32_t unit = kLast ? column : lane;
      at[2] = static_cast<int>(kColumns == 1 ? unit : unit / kNext * (2 * kNext) + unit % kNext);
      depths = min(p.depths, (sizes[0] - at[0] + DD - 1) / DD);
      rows = min(R, (sizes[1] - at[1] + DH - 1) / DH);
      live = channel < p.channels && at[2] < sizes[2];
      second = V == 2 && live && (kWords || at[2] + kNext < sizes[2]);
    }
  };

  // A place's words, where `valid`.
  __device__ static void Load(bool valid, const T* at, uint32_t* words) {
    LoadWordsIf<kWords ? V * kSize : kSize>(valid, at, words);
  }
};

// ---- forward ----

template <class T, Form F>
struct MarchForward : March<T, F> {
  using M = March<T, F>;
  using M::DD, M::DH, M::DW, M::KD, M::KH, M::KW, M::SW, M::R, M::V, M::kBits, M::kCodesMeet, M::kColumns, M::kLast,
      M::kNext, M::kRows, M::kSize, M::kWidth, M::kWords;
  using P = Pack<T>;
  using Reg = typename P::Reg;
  static constexpr bool kRoutes = F.routes, kMaxima = F.relu && !F.routes;
  static constexpr int kPacks = (V + P::kElements - 1) / P::kElements;
  static_assert(kColumns == 1 || SW == 1 || DW == 1);
  // Places of a row that its windows have, each kUnit columns from the next.
  static constexpr int kUnit = SW == 1 || kColumns == 1 ? DW : 1, kStep = SW == 1 ? 1 : SW;
  static constexpr int kPlaces = KW + (kColumns - 1) * kStep;
  static_assert(kPlaces <= kMarchPlacesMost);
  // Lanes whose codes share a byte.
  static constexpr int kOwnBits = kBits * (kCodesMeet ? 2 : 1), kShare = kOwnBits >= 8 ? 1 : 8 / kOwnBits;
  static_assert(!kRoutes || kShare == 1 || kLast || kNext == 1 || kColumns == 1);

  __device__ static constexpr bool Needed(int place) {
    return place < KW || (kColumns > 1 && place >= kStep && place < kStep + KW);
  }

  // Maxima, and where they were found, counted from the first depth and row that the thread has seen.
  struct Best {
    Reg value[kPacks];
    uint32_t at[kPacks];

    // What lies behind it wins if it is greater.
    __device__ void BehindAt(int i, Reg v, uint32_t tap) {
      if constexpr (kMaxima) {
        value[i] = P::Max(v, value[i]);
      } else {
        const auto m = P::Greater(v, value[i]);
        value[i] = P::Choose(m, v, value[i]);
        if constexpr (kRoutes) at[i] = P::ChooseTap(m, tap, at[i]);
      }
    }
    __device__ void Behind(const Best& other) {
#pragma unroll
      for (int i = 0; i < kPacks; ++i) BehindAt(i, other.value[i], other.at[i]);
    }
    __device__ void Add(uint32_t taps) {
#pragma unroll
      for (int i = 0; i < (kRoutes ? kPacks : 0); ++i) at[i] += taps;
    }
  };

  // Inputs of a row as they were loaded: -inf where there is none.
  struct Raw {
    uint32_t words[kPlaces][kWidth];
  };

  // Tap k of the thread's windows.
  __device__ static Best TapOf(const Raw& raw, int k, int at) {
    Best out;
    if constexpr (kWords || V == 1) {
#pragma unroll
      for (int i = 0; i < kPacks; ++i) out.value[i] = P::FromBits(raw.words[k][i]);
    } else if constexpr (P::kElements == 1) {
      out.value[0] = P::FromBits(raw.words[k][0]), out.value[kPacks - 1] = P::FromBits(raw.words[k + kStep][0]);
    } else {
      out.value[0] = P::FromBits(__byte_perm(raw.words[k][0], raw.words[k + kStep][0], 0x5410));
    }
#pragma unroll
    for (int i = 0; i < kPacks; ++i) out.at[i] = P::Tap(at);
    return out;
  }

  // A row's maxima, its first tap being number `first`.
  __device__ static Best Reduce(const Raw& raw, int first, Reg* watched) {
    if constexpr (kPacks == 2 && !kWords) {
#pragma unroll
      for (int k = 0; k < kPlaces; ++k) {
        if (Needed(k)) *watched = P::Watch(*watched, P::FromBits(raw.words[k][0]));
      }
    }
    if constexpr (kPacks == 2 && !kWords && kStep == 1 && KW > 2) {  // what both windows have is compared once
      Best best, both;
      both.value[0] = P::FromBits(raw.words[1][0]), both.at[0] = P::Tap(first + 1);
      both.value[1] = both.value[0], both.at[1] = both.at[0];
#pragma unroll
      for (int k = 2; k < KW; ++k) both.BehindAt(0, P::FromBits(raw.words[k][0]), P::Tap(first + k));
      best.value[0] = P::FromBits(raw.words[0][0]), best.at[0] = P::Tap(first);
      best.BehindAt(0, both.value[0], both.at[0]);
      best.value[1] = both.value[0], best.at[1] = both.at[0] - P::Tap(1);
      best.BehindAt(1, P::FromBits(raw.words[KW][0]), P::Tap(first + KW - 1));
      return best;
    }
    Best best = TapOf(raw, 0, first);
#pragma unroll
    for (int k = 0; k < KW; ++k) {
      const Best tap = TapOf(raw, k, first + k);
      if constexpr (kPacks == 1 || kWords) {
#pragma unroll
        for (int c = 0; c < kPacks; ++c) *watched = P::Watch(*watched, tap.value[c]);
      }
      if (k > 0) best.Behind(tap);
    }
    return best;
  }

  // From the first element's code to the second one's, in bytes, where they do not meet.
  __device__ static int64_t SecondCode(const MarchParams& p) {
    return kLast ? kNext * p.line_bytes : kNext * kBits / 8;
  }

  // All lanes whose codes share a byte come here.
  __device__ static void StoreCodes(const MarchParams& p, uint8_t* routes, bool live, bool second, uint32_t first_code,
                                    uint32_t second_code) {
    if constexpr (kBits == 8) {
      if constexpr (kWords) {
        if (live) *reinterpret_cast<uint16_t*>(routes) = static_cast<uint16_t>(first_code | second_code << 8);
      } else {
        if (live) *routes = static_cast<uint8_t>(first_code);
        if (V == 2 && second) routes[SecondCode(p)] = static_cast<uint8_t>(second_code);
      }
    } else {
      uint32_t codes = (live ? first_code : 0u) | (second ? second_code << (kCodesMeet ? kBits : 16) : 0u);
      const uint32_t lane = threadIdx.x & 31u;
      const uint32_t group = ((1u << kShare) - 1u) << (lane & ~(kShare - 1u));
#pragma unroll
      for (int i = 1; i < kShare; i *= 2) codes |= __shfl_down_sync(group, codes, i, kShare) << (i * kOwnBits);
      if (live && (lane & (kShare - 1u)) == 0) {
        *routes = static_cast<uint8_t>(codes);
        if (V == 2 && !kCodesMeet && second) routes[SecondCode(p)] = static_cast<uint8_t>(codes >> 16);
      }
    }
  }

  __device__ static void Store(const MarchParams& p, T* y, uint8_t* routes, bool values, bool live, bool second,
                               const Best& best) {
    if constexpr (kWords) {
      uint32_t words[kPacks];
#pragma unroll
      for (int i = 0; i < kPacks; ++i) words[i] = P::ToBits(best.value[i]);
      if (values && live) StoreWords<V * kSize>(y, words);
    } else {
      if (values && live) StoreElement(y, P::ToBits(best.value[0]));
      if constexpr (V == 2) {
        const uint32_t bits = P::ToBits(best.value[kPacks - 1]);
        if (values && second) StoreElement(y + kNext * (kLast ? p.y_column : 1), P::kElements == 2 ? bits >> 16 : bits);
      }
    }
    if constexpr (kRoutes) {
      const uint32_t later = V == 1 ? 0u : P::kElements == 2 ? best.at[0] >> 16 : best.at[kPacks - 1];
      StoreCodes(p, routes, live, second, P::kElements == 2 ? best.at[0] & 0xFFFFu : best.at[0], later);
    }
  }

  // The same outputs again, by the exact rules.
  __device__ __noinline__ static void Exact(const MarchParams& p) {
    const typename M::Place place(p, blockIdx.x * kMarchThreads + threadIdx.x, p.out);
    const T* plane = static_cast<const T*>(p.source) + place.number * p.x_plane + place.channel;
    T* const first_y = FirstValue(p, place);
    uint8_t* const first_routes = FirstCode(p, place);
#pragma unroll 1
    for (int s = 0; s < place.depths; ++s) {
#pragma unroll 1
      for (int r = 0; r < place.rows; ++r) {
        uint32_t first = 0, later = 0;
        T* y = first_y + s * DD * p.y_depth + r * DH * p.y_row;
#pragma unroll 1
        for (int v = 0; v < V; ++v) {
          if (v == 0 ? !place.live : !place.second) continue;
          const int column = place.at[2] + (kWords ? 0 : v * kNext);
          T* value = y + v * (kWords ? 1 : kNext * (kLast ? p.y_column : 1));
          const uint32_t code = SelectAlone(p.g, plane + (kWords ? v : 0), place.at[0] + s * DD, place.at[1] + r * DH,
                                            column, p.result ? value : nullptr);
          (v == 0 ? first : later) = code;
        }
        if constexpr (kRoutes) {
          StoreCodes(p, first_routes + s * DD * p.route_depth + r * DH * p.route_row, place.live, place.second, first,
                     later);
        }
      }
    }
  }

  // Where the thread's first output goes.
  __device__ static T* FirstValue(const MarchParams& p, const typename M::Place& place) {
    return static_cast<T*>(p.result) + place.number * p.y_plane + place.at[0] * p.y_depth + place.at[1] * p.y_row +
           place.at[2] * (kLast ? p.y_column : 1) + place.channel;
  }
  __device__ static uint8_t* FirstCode(const MarchParams& p, const typename M::Place& place) {
    return p.routes + place.number * p.route_plane + place.at[0] * p.route_depth + place.at[1] * p.route_row +
           (kLast ? place.at[2] * p.line_bytes + place.channel * kBits / 8 : place.at[2] * kBits / 8);
  }

  __device__ static void Run(const MarchParams& p) {
    const uint32_t thread = blockIdx.x * kMarchThreads + threadIdx.x;
    if (thread >= p.threads) return;
    const typename M::Place place(p, thread, p.out);
    if (place.depths <= 0 || place.rows <= 0) return;
    const int column = place.at[2] * SW - p.pad[2], row = place.at[1] - p.pad[1];
    int depth = place.at[0] - p.pad[0];
    const int64_t column_step = kLast ? p.x_column : 1;
    const T* next = static_cast<const T*>(p.source) + place.number * p.x_plane + place.channel + depth * p.x_depth +
                    row * p.x_row + column * column_step;
    uint32_t inside = 0;  // which places there are: bits, since predicates are few
#pragma unroll
    for (int k = 0; k < kPlaces; ++k) {
      inside |= uint32_t{place.live && static_cast<unsigned>(column + k * kUnit) < static_cast<unsigned>(p.in[2])} << k;
    }
    const auto load = [&](int i, bool wanted, Raw* raw) {
      const bool valid = wanted && static_cast<unsigned>(row + i * DH) < static_cast<unsigned>(p.in[1]);
      const uint32_t there = Kept(valid ? inside : 0u);
      const T* from = next + i * DH * p.x_row;
#pragma unroll
      for (int k = 0; k < kPlaces; ++k) {
        if (!Needed(k)) continue;
#pragma unroll
        for (int w = 0; w < kWidth; ++w) raw->words[k][w] = P::ToBits(P::Fill());
        M::Load(there >> k & 1, from + k * kUnit * column_step, raw->words[k]);
      }
    };
    T* y = FirstValue(p, place);
    uint8_t* routes = kRoutes ? FirstCode(p, place) : nullptr;
    uint32_t there[kPacks];  // the bits of outputs that are not there, and may see no input at all, are 0
#pragma unroll
    for (int c = 0; c < kPacks; ++c) {
      there[c] = P::kElements == 2 ? (place.live ? 0xFFFFu : 0u) | (place.second ? 0xFFFF0000u : 0u)
                 : c == 0          ? (place.live ? ~0u : 0u)
                                   : (place.second ? ~0u : 0u);
    }
    Reg watched = P::FromBits(0), lowest = P::FromBits(0);
    Best pending[KD][R] = {};  // of the outputs that the last depth reached, from the one that is made next on
    Raw raw[kRows];
    const bool first = static_cast<unsigned>(depth) < static_cast<unsigned>(p.in[0]);
#pragma unroll
    for (int i = 0; i < kRows; ++i) load(i, first, &raw[i]);
    const int steps = place.depths + KD - 1;
#pragma unroll 1
    for (int t = 0; t < steps; ++t) {
      depth += DD, next += DD * p.x_depth;
      const bool wanted = t + 1 < steps && static_cast<unsigned>(depth) < static_cast<unsigned>(p.in[0]);
      Best plane[R];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const Best best = Reduce(raw[i], i * KW, &watched);
        load(i, wanted, &raw[i]);
#pragma unroll
        for (int r = 0; r < R; ++r) {
          if (i == r) plane[r] = best;
          if (i > r && i < r + KH) plane[r].Behind(best);
        }
      }
      const uint32_t seen = static_cast<uint32_t>(t) * P::Tap(KH * KW);
#pragma unroll
      for (int r = 0; r < R; ++r) {
        if constexpr (KD > 1) plane[r].Add(seen);
        Best made = KD > 1 ? pending[0][r] : plane[r];
        if constexpr (KD > 1) {
          made.Behind(plane[r]);
#pragma unroll
          for (int j = 1; j < KD - 1; ++j) {
            pending[j - 1][r] = pending[j][r];
            pending[j - 1][r].Behind(plane[r]);
          }
          pending[KD - 2][r] = plane[r];
        }
        made.Add((KD > 1 ? (KD - 1) * P::Tap(KH * KW) - seen : 0u) - r * P::Tap(KW));
        if constexpr (F.relu) {
          Rectify<P, kRoutes>(made.value, made.at, p.g.none);
        } else if (t >= KD - 1 && r < place.rows) {
#pragma unroll
          for (int c = 0; c < kPacks; ++c) {
            lowest = P::Lower(lowest, P::FromBits(P::ToBits(made.value[c]) & there[c]));
          }
        }
        if (t >= KD - 1 && r < place.rows) {
          Store(p, y + r * DH * p.y_row, routes + r * DH * p.route_row, p.result, place.live, place.second, made);
        }
      }
      if (t >= KD - 1) y += DD * p.y_depth, routes += DD * p.route_depth;
    }
    bool again = P::Exceptional(watched, lowest);
    if constexpr (kRoutes && kShare > 1) {  // together with those that share a byte
      const uint32_t group = ((1u << kShare) - 1u) << (threadIdx.x & 31u & ~(kShare - 1u));
      again = __any_sync(group, again);
    }
    if (again) Exact(p);
  }
};

// ---- backward ----

template <class T, Form F>
struct MarchBackward : March<T, F> {
  using M = March<T, F>;
  using M::DD, M::DH, M::DW, M::KD, M::KH, M::KW, M::SW, M::R, M::V, M::kBits, M::kColumns, M::kLast, M::kNext,
      M::kRows, M::kSize, M::kWidth, M::kWords;
  static constexpr int kOver = SW == 1 ? KW : (KW + SW - 1) / SW;  // outputs over an input along the width
  static constexpr int kPlaces = kOver + kColumns - 1;             // of outputs over the thread's columns
  static constexpr int kPerWord = 4 / kSize;
  static constexpr int kMask = (1 << F.codes) - 1;
  static_assert((SW == 1 || (DW == 1 && kColumns == 1)) && kPlaces <= kMarchPlacesMost);

  // A row of outputs, from the leftmost on: nothing, which adds nothing, where there is none.
  struct Raw {
    uint32_t dy[kPlaces][kWidth], code[kPlaces];
  };

  __device__ static void Run(const MarchParams& p) {
    const uint32_t thread = blockIdx.x * kMarchThreads + threadIdx.x;
    if (thread >= p.threads) return;
    const typename M::Place place(p, thread, p.in);
    if (!place.live || place.depths <= 0 || place.rows <= 0) return;
    int depth = place.at[0] + p.pad[0] - (KD - 1) * DD;
    const int row = place.at[1] + p.pad[1] - (KH - 1) * DH;
    // Along the width: the leftmost output over the first column, and what its tap is beyond a multiple of the stride.
    const int from_start = place.at[2] + p.pad[2], beyond = SW == 1 ? 0 : from_start % SW;
    const int column = SW == 1 ? from_start - (KW - 1) * DW : from_start / SW - (kOver - 1);
    const int64_t y_step = kLast ? p.y_column : 1;
    const T* dy = static_cast<const T*>(p.source) + place.number * p.y_plane + place.channel + depth * p.y_depth +
                  row * p.y_row + column * y_step;
    const uint8_t* routes = p.routes + place.number * p.route_plane + depth * p.route_depth + row * p.route_row;
    if (kLast) routes += column * p.line_bytes + place.channel * kBits / 8;
    if (!kLast && kBits == 8) routes += column;
    uint32_t inside = 0;
    int offset[kPlaces];  // of the byte with its code, where several share one
    uint32_t shift[kPlaces];
#pragma unroll
    for (int k = 0; k < kPlaces; ++k) {
      inside |= uint32_t{static_cast<unsigned>(column + k * kNext) < static_cast<unsigned>(p.out[2]) &&
                         (SW == 1 || beyond + (kOver - 1 - k) * SW < KW)}
                << k;
      const int bit = kLast ? place.channel * kBits : (column + k * kNext) * kBits;
      offset[k] = bit >> 3, shift[k] = static_cast<uint32_t>(bit & 7);
    }
    const auto load = [&](int i, bool wanted, Raw* raw) {
      const bool valid = wanted && static_cast<unsigned>(row + i * DH) < static_cast<unsigned>(p.out[1]);
      const uint32_t all = Kept(valid ? inside : 0u);
      const T* from = dy + i * DH * p.y_row;
      const uint8_t* codes = routes + i * DH * p.route_row;
#pragma unroll
      for (int k = 0; k < kPlaces; ++k) {
#pragma unroll
        for (int w = 0; w < kWidth; ++w) raw->dy[k][w] = 0;
        raw->code[k] = 0;
        const bool there = all >> k & 1;
        M::Load(there, from + k * kNext * y_step, raw->dy[k]);
        const uint8_t* code = codes + (kLast ? k * kNext * p.line_bytes : kBits == 8 ? k * kNext : offset[k]);
        LoadWordsIf<kWords && kBits == 8 ? 2 : 1>(there, code, &raw->code[k]);
      }
    };
    T* dx = static_cast<T*>(p.result) + place.number * p.x_plane + place.channel + place.at[0] * p.x_depth +
            place.at[1] * p.x_row + place.at[2] * (kLast ? p.x_column : 1);
    float sum[KD][R][V] = {};  // of the depths that the outputs reach
    Raw raw[kRows];
    const bool first = static_cast<unsigned>(depth) < static_cast<unsigned>(p.out[0]);
#pragma unroll
    for (int i = 0; i < kRows; ++i) load(i, first, &raw[i]);
    const int steps = place.depths + KD - 1;
#pragma unroll 1
    for (int t = 0; t < steps; ++t) {
      depth += DD, dy += DD * p.y_depth, routes += DD * p.route_depth;
      const bool wanted = t + 1 < steps && static_cast<unsigned>(depth) < static_cast<unsigned>(p.out[0]);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        float value[kPlaces][2];
        uint32_t code[kPlaces];
#pragma unroll
        for (int k = 0; k < kPlaces; ++k) {
          WidenWord<T>(raw[i].dy[k][0], value[k]);
          if constexpr (kWords && kPerWord == 1) value[k][1] = __uint_as_float(raw[i].dy[k][kWidth - 1]);
          const uint32_t codes = kBits == 8 ? raw[i].code[k] : raw[i].code[k] >> shift[k];
          if constexpr (kWords) {
            code[k] = (codes & kMask) | (codes << (16 - kBits) & kMask << 16) | kCodeBias;
            code[k] -= static_cast<uint32_t>(beyond) * 0x10001u;
          } else {
            code[k] = kBits == 8 && F.codes == 8 ? codes : codes & kMask;
            if (SW > 1) code[k] -= static_cast<uint32_t>(beyond);
          }
        }
        load(i, wanted, &raw[i]);
#pragma unroll
        for (int k = 0; k < kOver; ++k) {
          const int kw = SW == 1 ? KW - 1 - k : (kOver - 1 - k) * SW;  // and `beyond`
          const uint32_t pair =
              kColumns == 2 ? __byte_perm(code[k], code[k + kColumns - 1], 0x5410) | kCodeBias : code[k];
#pragma unroll
          for (int r = 0; r < R; ++r) {
            const int kh = r + KH - 1 - i;
            if (kh < 0 || kh >= KH) continue;
#pragma unroll
            for (int kd = 0; kd < KD; ++kd) {
              const uint32_t tap = (kd * KH + kh) * KW + kw;
              if constexpr (V == 1) {
                if (pair == tap) sum[kd][r][0] = __fadd_rn(sum[kd][r][0], value[k][0]);
              } else {
                AddWhere(pair, tap, value[k][0], kWords ? value[k][1] : value[k + kColumns - 1][0], &sum[kd][r][0],
                         &sum[kd][r][V - 1]);
              }
            }
          }
        }
      }
#pragma unroll
      for (int r = 0; r < R; ++r) {
        if (t >= KD - 1 && r < place.rows) {
          T* to = dx + r * DH * p.x_row;
          const float two[2] = {sum[0][r][0], sum[0][r][V - 1]};
          uint32_t words[2] = {NarrowWord<T>(two), 0};
          words[1] = kSize == 4 ? NarrowWord<T>(two + 1) : words[0] >> 16;
          if constexpr (kWords) {
            StoreWords<V * kSize>(to, words);
          } else {
            StoreElement(to, words[0]);
            if (V == 2 && place.second) StoreElement(to + kNext * (kLast ? p.x_column : 1), words[1]);
          }
        }
#pragma unroll
        for (int kd = 0; kd < KD; ++kd) {
#pragma unroll
          for (int v = 0; v < V; ++v) sum[kd][r][v] = kd + 1 < KD ? sum[kd + 1 < KD ? kd + 1 : 0][r][v] : 0.0f;
        }
      }
      if (t >= KD - 1) dx += DD * p.x_depth;
    }
  }
};

// A kernel's body.
template <class T, Form F>
__device__ void RunMarchForward(const MarchParams& p) {
  WaitForEarlier();
  MarchForward<T, F>::Run(p);
}
template <class T, Form F>
__device__ void RunMarchBackward(const MarchParams& p) {
  WaitForEarlier();
  MarchBackward<T, F>::Run(p);
}

}  // namespace poolgrad::cuda
