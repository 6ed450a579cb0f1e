// dx by accumulation: walk the outputs in row-major order and add dy at the winner, in a plane of sums that stays in
// cache. The cost does not depend on the window's size, and every input still gets its sum in row-major order of
// outputs.
//
// The winner's place is computed from the code with vectors, a row at a time; the adds are scalar. Neighbouring windows
// often share a winner, so that one add would wait for the other's store: channels first walks several planes in step,
// channels last has its channels. A code that names no tap adds +0, which changes no sum (sums start from +0 and so are
// never -0); one that names a tap in the padding adds to a place that nobody reads.
#if defined(POOLGRAD_CPU_BACKWARD_SCATTER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POOLGRAD_CPU_BACKWARD_SCATTER_INL_H_
#undef POOLGRAD_CPU_BACKWARD_SCATTER_INL_H_
#else
#define POOLGRAD_CPU_BACKWARD_SCATTER_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cpu/backward_lanes-inl.h"
#include "cpu/backward_scatter.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

template <class T>
class Scatter {
  using V = Wide<T>;
  using D = hn::ScalableTag<V>;
  using D16 = hn::ScalableTag<uint16_t>;

 public:
  Scatter(const Problem& problem, const Args& args, std::byte* scratch)
      : p_(problem),
        args_(args),
        t_(LayOutScatter(problem, sizeof(V))),
        out_(problem.width().out),
        sums_(reinterpret_cast<V*>(scratch + t_.sums_at)),
        bases_(reinterpret_cast<uint16_t*>(scratch + t_.bases_at)),
        row_values_(reinterpret_cast<V*>(scratch + t_.rows_at)),
        row_indices_(reinterpret_cast<uint16_t*>(row_values_ + (t_.interleaved ? 0 : out_ + kScatterSlack))),
        unpacked_(reinterpret_cast<uint8_t*>(scratch + t_.unpacked_at)),
        indices_(reinterpret_cast<uint16_t*>(scratch + t_.indices_at)),
        codes_(scratch + t_.codes_at),
        values_(reinterpret_cast<V*>(scratch + t_.values_at)),
        table_(reinterpret_cast<uint16_t*>(scratch + t_.table_at)) {
    std::fill_n(sums_, t_.together * t_.plane, V{0});
    FindPlaces();
  }

  void Run(int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      if (t_.interleaved) {
        RunChannels(unit / t_.blocks, unit % t_.blocks * t_.block);
      } else {
        const int64_t images = t_.together * t_.block;
        RunPlanes(unit * images, std::min(images, t_.images - unit * images));
      }
    }
  }

 private:
  // Where each tap lies, counted from where its window starts: as a table, and as the coefficients of
  // tap*each + tap/kw*each_row + tap/(kw*kh)*each_slice, all modulo 2^16.
  void FindPlaces() {
    const Axis& d = p_.depth();
    const Axis& h = p_.height();
    const Axis& w = p_.width();
    const int64_t row = t_.span[2] * t_.block;
    const int64_t slice = t_.span[1] * row;
    int64_t tap = 0;
    for (int64_t kd = 0; kd < d.kernel; ++kd) {
      for (int64_t kh = 0; kh < h.kernel; ++kh) {
        for (int64_t kw = 0; kw < w.kernel; ++kw) {
          table_[tap++] =
              static_cast<uint16_t>(kd * d.dilation * slice + kh * h.dilation * row + kw * w.dilation * t_.block);
        }
      }
    }
    table_[tap] = 0;
    int64_t each = w.dilation * t_.block;
    int64_t each_row = h.dilation * row - w.kernel * w.dilation * t_.block;
    int64_t each_slice = d.dilation * slice - h.kernel * h.dilation * row;
    if (w.kernel == 1) {
      each += each_row;
      each_row = 0;
    }
    if (w.kernel * h.kernel == 1) {
      each += each_slice;
      each_slice = 0;
    }
    each_ = static_cast<uint16_t>(each);
    each_row_ = static_cast<uint16_t>(each_row);
    each_slice_ = static_cast<uint16_t>(each_slice);
    per_row_ = each_row == 0 ? 0 : ReciprocalOf(w.kernel);
    per_slice_ = each_slice == 0 ? 0 : ReciprocalOf(w.kernel * h.kernel);
  }

  int64_t StartOf(int64_t od, int64_t oh) const {
    return (od * p_.depth().stride * t_.span[1] + oh * p_.height().stride) * t_.span[2] * t_.block;
  }
  int64_t RowOf(int64_t image, int64_t od, int64_t oh) const {
    return (image * p_.depth().out + od) * p_.height().out + oh;
  }

  // ---- Channels last: one plane of sums, of a block of channels.

  void RunChannels(int64_t image, int64_t c0) {
    const int64_t block = std::min(t_.block, t_.channels - c0);
    if (block != block_) {
      block_ = block;
      for (int64_t ow = 0; ow < out_; ++ow) {
        for (int64_t c = 0; c < block; ++c) {
          bases_[ow * block + c] = static_cast<uint16_t>(ow * p_.width().stride * t_.block + c);
        }
      }
    }
    const int64_t n = out_ * block;
    for (int64_t od = 0; od < p_.depth().out; ++od) {
      for (int64_t oh = 0; oh < p_.height().out; ++oh) {
        const int64_t row = RowOf(image, od, oh);
        const T* source = static_cast<const T*>(args_.source) + row * out_ * t_.channels + c0;
        const bool good = IndexRow(row, c0, n, indices_);
        const V* values = values_;
        if (std::is_same_v<T, V> && good && block == t_.channels) {
          values = reinterpret_cast<const V*>(source);
        } else if (block == t_.channels) {
          SpreadSum<T>(source, n, values_);
        } else {
          const int64_t ahead = kRowsAhead * out_ * t_.channels;
          for (int64_t ow = 0; ow < out_; ++ow) {
            PrefetchRun(source + ow * t_.channels + ahead, block * static_cast<int64_t>(sizeof(T)));
            SpreadSum<T>(source + ow * t_.channels, block, values_ + ow * block);
          }
        }
        if (!good) ClearStrays(n, values_);
        AddRun(sums_ + StartOf(od, oh), indices_, values, n);
      }
    }
    T* to = static_cast<T*>(args_.result) + image * p_.in_plane() * t_.channels + c0;
    EmitRows([&](V* sums, int64_t begin, int64_t end, int64_t row) HWY_ATTR {
      T* at = to + row * p_.width().in * t_.channels;
      if (block == t_.channels) return EmitRun(sums, begin * block, end * block, p_.width().in * block, at);
      for (int64_t i = 0; i < p_.width().in; ++i) {
        const int64_t count = i >= begin && i < end ? block : 0;
        EmitRun(sums + (i - begin) * t_.block, 0, count, block, at + i * t_.channels);
      }
    });
  }

  // Consecutive elements are different channels, so that no add waits for the one before.
  static HWY_INLINE void AddRun(V* HWY_RESTRICT sums, const uint16_t* HWY_RESTRICT indices,
                                const V* HWY_RESTRICT values, int64_t n) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) AddFour(sums, indices + i, values + i);
    for (; i < n; ++i) sums[indices[i]] += values[i];
  }

  static HWY_INLINE void AddFour(V* HWY_RESTRICT sums, const uint16_t* HWY_RESTRICT indices,
                                 const V* HWY_RESTRICT values) {
    uint64_t four;
    std::memcpy(&four, indices, sizeof(four));
    sums[four & 0xFFFF] += values[0];
    sums[four >> 16 & 0xFFFF] += values[1];
    sums[four >> 32 & 0xFFFF] += values[2];
    sums[four >> 48] += values[3];
  }

  // ---- Channels first: planes interleaved by four, several such walked in step.

  void RunPlanes(int64_t first, int64_t images) {
    const int64_t quads = CeilDiv(images, t_.block);
    const int64_t step = t_.row + kScatterSlack;
    if (block_ == 0) {
      block_ = t_.block;
      for (int64_t ow = 0; ow < out_; ++ow) bases_[ow] = static_cast<uint16_t>(ow * p_.width().stride * t_.block);
    }
    if (p_.routes.bits <= 8) UnpackPlanes(first, images);
    const auto add_row = [&](int64_t od, int64_t oh, V* sums) HWY_ATTR {
      for (int64_t quad = 0; quad < quads; ++quad) {
        ReadQuad(first, quad * t_.block, std::min(t_.block, images - quad * t_.block), od * p_.height().out + oh,
                 indices_ + quad * step, values_ + quad * step);
      }
      AddQuads(sums, quads);
    };
    T* const dx = static_cast<T*>(args_.result) + first * p_.in_plane();
    const auto emit_row = [&](V* sums, int64_t begin, int64_t end, int64_t row, int64_t quad) HWY_ATTR {
      const int64_t count = std::min(t_.block, images - quad * t_.block);
      EmitQuad(sums, begin, end, count, dx + quad * t_.block * p_.in_plane() + row * p_.width().in);
    };
    if (t_.banded) return RunBands(quads, add_row, emit_row);
    for (int64_t od = 0; od < p_.depth().out; ++od) {
      for (int64_t oh = 0; oh < p_.height().out; ++oh) add_row(od, oh, sums_ + StartOf(od, oh));
    }
    for (int64_t quad = 0; quad < quads; ++quad) {
      EmitRows([&](V* sums, int64_t begin, int64_t end, int64_t row)
                   HWY_ATTR { emit_row(sums, begin, end, row, quad); },
               quad * t_.plane);
    }
  }

  // Every depth by itself; input rows that no later band reaches are written as soon as a band is done, and the others
  // slide to the top of the plane of sums.
  template <class AddRow, class EmitRow>
  void RunBands(int64_t quads, const AddRow& add_row, const EmitRow& emit_row) {
    const Axis& h = p_.height();
    const Axis& w = p_.width();
    const int64_t row_size = t_.span[2] * t_.block;
    const Range columns = SummedColumns();
    for (int64_t od = 0; od < p_.depth().out; ++od) {
      int64_t next = 0;  // the input row to write
      for (int64_t band = 0; band < h.out; band += t_.band) {
        const int64_t past = std::min(band + t_.band, h.out);
        for (int64_t oh = band; oh < past; ++oh) add_row(od, oh, sums_ + StartOf(0, oh - band));
        const int64_t done = past == h.out ? h.in : std::clamp<int64_t>(h.start(past), next, h.in);
        for (int64_t quad = 0; quad < quads; ++quad) {
          V* const sums = sums_ + quad * t_.plane;
          for (int64_t i = next; i < done; ++i) {
            const int64_t at = i - h.start(band);
            const bool inside = at >= 0 && at < t_.span[1];
            emit_row(inside ? sums + at * row_size + (columns.begin + w.pad_lo) * t_.block : sums,
                     inside ? columns.begin : 0, inside ? columns.end : 0, od * h.in + i, quad);
          }
          const int64_t kept = past == h.out ? 0 : std::max<int64_t>(0, h.extent() - h.stride) * row_size;
          if (kept > 0) std::memmove(sums, sums + t_.band * h.stride * row_size, static_cast<size_t>(kept) * sizeof(V));
          std::memset(static_cast<void*>(sums + kept), 0, static_cast<size_t>(t_.plane - kept) * sizeof(V));
        }
        next = done;
      }
    }
  }

  // Inputs of a row that the plane of sums spans.
  Range SummedColumns() const {
    const Axis& w = p_.width();
    const int64_t begin = std::clamp<int64_t>(-w.pad_lo, 0, w.in);
    return {begin, std::clamp<int64_t>(t_.span[2] - w.pad_lo, begin, w.in)};
  }

  HWY_INLINE void AddQuads(V* HWY_RESTRICT sums, int64_t quads) const {
    const int64_t step = t_.row + kScatterSlack;
    const int64_t plane = t_.plane;
    const int64_t n = t_.row;
    const uint16_t* HWY_RESTRICT indices = indices_;
    const V* HWY_RESTRICT values = values_;
    if (quads == kScatterTogether) {
      for (int64_t i = 0; i < n; i += 4) {
        AddFour(sums, indices + i, values + i);
        AddFour(sums + plane, indices + step + i, values + step + i);
        AddFour(sums + 2 * plane, indices + 2 * step + i, values + 2 * step + i);
        AddFour(sums + 3 * plane, indices + 3 * step + i, values + 3 * step + i);
      }
    } else {
      for (int64_t i = 0; i < n; i += 4) {
        for (int64_t quad = 0; quad < quads; ++quad) {
          AddFour(sums + quad * plane, indices + quad * step + i, values + quad * step + i);
        }
      }
    }
  }

  // The codes of whole planes, a byte each, at unpacked_.
  void UnpackPlanes(int64_t first, int64_t images) {
    const RouteFormat& f = p_.routes;
    const int64_t rows = p_.depth().out * p_.height().out;
    if (f.line != 1 && f.line * f.bits % 8 == 0) {
      return SpreadCodes(f.bits, args_.routes + LineOffset(f, first * rows), images * rows * out_, unpacked_);
    }
    for (int64_t row = 0; row < images * rows; ++row) {
      std::memcpy(unpacked_ + row * out_, ReadCodes<uint8_t>(first * rows + row, 0), static_cast<size_t>(out_));
    }
  }

  // The values and places of one output row of up to four planes, interleaved. Planes that are not there add zeros.
  void ReadQuad(int64_t first, int64_t image, int64_t count, int64_t row, uint16_t* HWY_RESTRICT indices,
                V* HWY_RESTRICT values) {
    const int64_t rows = p_.depth().out * p_.height().out;
    const T* source = static_cast<const T*>(args_.source) + ((first + image) * rows + row) * out_;
    if (count < t_.block || p_.routes.bits > 8) return ReadPartOfQuad(first + image, count, row, indices, values);
    const int64_t apart = rows * out_;
    if (!IndexQuad(unpacked_ + (image * rows + row) * out_, apart, indices)) {
      return ReadPartOfQuad(first + image, count, row, indices, values);
    }
    constexpr int64_t kLanes = 16 / sizeof(V);
    const hn::FixedTag<V, kLanes> d;
    int64_t i = 0;
    for (; i + kLanes <= out_; i += kLanes) {
      hn::StoreInterleaved4(LoadWide(d, source + i), LoadWide(d, source + apart + i),
                            LoadWide(d, source + 2 * apart + i), LoadWide(d, source + 3 * apart + i), d,
                            values + 4 * i);
    }
    for (; i < out_; ++i) {
      for (int64_t k = 0; k < 4; ++k) values[4 * i + k] = Widen(source[k * apart + i]);
    }
  }

  // Places of four rows of codes that lie `apart`; false when some code names no tap.
  HWY_INLINE bool IndexQuad(const uint8_t* HWY_RESTRICT codes, int64_t apart, uint16_t* HWY_RESTRICT to) const {
    const hn::FixedTag<uint16_t, 8> d;
    const hn::FixedTag<uint8_t, 8> d8;
    const auto each = hn::Set(d, each_);
    const auto each_row = hn::Set(d, each_row_);
    const auto each_slice = hn::Set(d, each_slice_);
    const auto per_row = hn::Set(d, per_row_);
    const auto per_slice = hn::Set(d, per_slice_);
    const bool slices = per_slice_ != 0;
    auto most = hn::Zero(d8);
    const uint16_t* HWY_RESTRICT bases = bases_;
    const int64_t out = out_;
    const auto place = [&](int64_t k, int64_t i) HWY_ATTR {
      const auto bytes = hn::LoadU(d8, codes + k * apart + i);
      if (i + 8 <= out) most = hn::Max(most, bytes);
      const auto tap = hn::PromoteTo(d, bytes);
      auto at = hn::Add(hn::LoadU(d, bases + i), hn::Set(d, static_cast<uint16_t>(k)));
      at = hn::Add(at, hn::Mul(tap, each));
      at = hn::Add(at, hn::Mul(hn::MulHigh(tap, per_row), each_row));
      if (slices) at = hn::Add(at, hn::Mul(hn::MulHigh(tap, per_slice), each_slice));
      return at;
    };
    for (int64_t i = 0; i < out; i += 8) {
      hn::StoreInterleaved4(place(0, i), place(1, i), place(2, i), place(3, i), d, to + 4 * i);
    }
    const uint32_t taps = static_cast<uint32_t>(p_.taps());
    bool good = taps > 255 || hn::AllTrue(d8, hn::Lt(most, hn::Set(d8, static_cast<uint8_t>(taps))));
    for (int64_t k = 0; k < 4; ++k) {
      for (int64_t i = out / 8 * 8; i < out; ++i) good = good && codes[k * apart + i] < taps;
    }
    return good;
  }

  // Any routes, any number of planes, slowly.
  void ReadPartOfQuad(int64_t image, int64_t count, int64_t row, uint16_t* indices, V* values) {
    const int64_t rows = p_.depth().out * p_.height().out;
    uint16_t* const row_indices = row_indices_;
    V* const row_values = row_values_;
    std::fill_n(indices, t_.row, uint16_t{0});
    std::fill_n(values, t_.row, V{0});
    for (int64_t k = 0; k < count; ++k) {
      const int64_t at = (image + k) * rows + row;
      SpreadSum<T>(static_cast<const T*>(args_.source) + at * out_, out_, row_values);
      if (!IndexRow(at, 0, out_, row_indices)) ClearStrays(out_, row_values);
      for (int64_t i = 0; i < out_; ++i) {
        indices[4 * i + k] = static_cast<uint16_t>(row_indices[i] + k);
        values[4 * i + k] = row_values[i];
      }
    }
  }

  void EmitQuad(V* HWY_RESTRICT sums, int64_t begin, int64_t end, int64_t count, T* HWY_RESTRICT row) const {
    const int64_t plane = p_.in_plane();
    if (begin > 0 || end < p_.width().in) {
      for (int64_t k = 0; k < count; ++k) {
        std::memset(static_cast<void*>(row + k * plane), 0, static_cast<size_t>(begin) * sizeof(T));
        std::memset(static_cast<void*>(row + k * plane + end), 0, static_cast<size_t>(p_.width().in - end) * sizeof(T));
      }
    }
    constexpr int64_t kLanes = 16 / sizeof(V);
    const hn::FixedTag<V, kLanes> d;
    const auto zero = hn::Zero(d);
    int64_t i = begin;
    if (count == 4) {
      for (; i + kLanes <= end; i += kLanes, sums += 4 * kLanes) {
        hn::Vec<decltype(d)> v0, v1, v2, v3;
        hn::LoadInterleaved4(d, sums, v0, v1, v2, v3);
        hn::StoreU(zero, d, sums);
        hn::StoreU(zero, d, sums + kLanes);
        hn::StoreU(zero, d, sums + 2 * kLanes);
        hn::StoreU(zero, d, sums + 3 * kLanes);
        StoreNarrow(d, v0, row + i);
        StoreNarrow(d, v1, row + plane + i);
        StoreNarrow(d, v2, row + 2 * plane + i);
        StoreNarrow(d, v3, row + 3 * plane + i);
      }
    }
    for (; i < end; ++i, sums += 4) {
      for (int64_t k = 0; k < count; ++k) row[k * plane + i] = Narrow<T>(sums[k]);
      for (int64_t k = 0; k < 4; ++k) sums[k] = V{0};
    }
  }

  // ---- Codes.

  // Codes of one output row (of this block's channels), unpacked at codes_.
  template <class Code>
  Code* ReadCodes(int64_t row, int64_t c0) const {
    const RouteFormat& f = p_.routes;
    Code* codes = reinterpret_cast<Code*>(codes_);
    if (f.line == 1) {
      SpreadCodes(std::max<int>(8, f.bits), args_.routes + LineOffset(f, row * out_), out_, codes);
      for (int64_t i = 0; i < out_; ++i) codes[i] = static_cast<Code>(codes[i] & f.none());
    } else if (!t_.interleaved) {
      SpreadCodes(f.bits, args_.routes + LineOffset(f, row), out_, codes);
    } else {
      const uint8_t* line = args_.routes + LineOffset(f, row * out_) + c0 * f.bits / 8;
      if (block_ == t_.channels && f.line * f.bits % 8 == 0) {
        SpreadCodes(f.bits, line, out_ * block_, codes);
      } else {
        for (int64_t ow = 0; ow < out_; ++ow, line += f.line_bytes) {
          PrefetchRun(line + kRowsAhead * out_ * f.line_bytes, block_ * f.bits / 8);
          SpreadCodes(f.bits, line, block_, codes + ow * block_);
        }
      }
    }
    return codes;
  }

  // Turns the codes of a row into places; false when some code names no tap: its place is then its window's start.
  bool IndexRow(int64_t row, int64_t c0, int64_t n, uint16_t* to) const {
    if (p_.routes.bits > 8) return IndexByTable(ReadCodes<uint32_t>(row, c0), n, to);
    const uint8_t* codes = ReadCodes<uint8_t>(row, c0);
    return IndexByProduct(codes, n, to) || IndexByTable(codes, n, to);
  }

  bool IndexByProduct(const uint8_t* codes, int64_t n, uint16_t* to) const {
    const D16 d;
    const hn::Rebind<uint8_t, D16> d8;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto taps = hn::Set(d, static_cast<uint16_t>(p_.taps()));
    const auto each = hn::Set(d, each_);
    const auto each_row = hn::Set(d, each_row_);
    const auto each_slice = hn::Set(d, each_slice_);
    const auto per_row = hn::Set(d, per_row_);
    const auto per_slice = hn::Set(d, per_slice_);
    std::memset(const_cast<uint8_t*>(codes) + n, 0, static_cast<size_t>(kScatterSlack));
    auto most = hn::Zero(d);
    for (int64_t i = 0; i < n; i += lanes) {
      const auto tap = hn::PromoteTo(d, hn::LoadU(d8, codes + i));
      most = hn::Max(most, tap);
      auto at = hn::Add(hn::LoadU(d, bases_ + i), hn::Mul(tap, each));
      at = hn::Add(at, hn::Mul(hn::MulHigh(tap, per_row), each_row));
      if (per_slice_ != 0) at = hn::Add(at, hn::Mul(hn::MulHigh(tap, per_slice), each_slice));
      hn::StoreU(at, d, to + i);
    }
    return hn::AllTrue(d, hn::Lt(most, taps));
  }

  template <class Code>
  bool IndexByTable(const Code* codes, int64_t n, uint16_t* to) const {
    const uint32_t taps = static_cast<uint32_t>(p_.taps());
    bool good = true;
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t tap = std::min<uint32_t>(codes[i], taps);
      good &= tap < taps;
      to[i] = static_cast<uint16_t>(bases_[i] + table_[tap]);
    }
    return good;
  }

  // Zeroes the values whose codes, still at codes_, name no tap.
  void ClearStrays(int64_t n, V* values) const {
    const uint32_t taps = static_cast<uint32_t>(p_.taps());
    const uint8_t* narrow = reinterpret_cast<const uint8_t*>(codes_);
    const uint32_t* wide = reinterpret_cast<const uint32_t*>(codes_);
    for (int64_t i = 0; i < n; ++i) {
      if ((p_.routes.bits <= 8 ? narrow[i] : wide[i]) >= taps) values[i] = V{0};
    }
  }

  // ---- A finished plane to dx, rounded once; zeros stay behind for the next.

  // Calls emit(sums, begin, end, row) for every input row: inputs [begin, end) of it have sums, the others are 0.
  template <class F>
  void EmitRows(const F& emit, int64_t plane = 0) {
    const Axis& w = p_.width();
    const Range columns = SummedColumns();
    int64_t row = 0;
    for (int64_t d = 0; d < p_.depth().in; ++d) {
      const int64_t at_d = d + p_.depth().pad_lo;
      for (int64_t h = 0; h < p_.height().in; ++h, ++row) {
        const int64_t at_h = h + p_.height().pad_lo;
        const bool inside = at_d >= 0 && at_d < t_.span[0] && at_h >= 0 && at_h < t_.span[1];
        V* sums = sums_ + plane + ((at_d * t_.span[1] + at_h) * t_.span[2] + columns.begin + w.pad_lo) * t_.block;
        emit(inside ? sums : sums_, inside ? columns.begin : 0, inside ? columns.end : 0, row);
      }
    }
  }

  // Elements [0, whole) of `to`, of which [begin, end) come from `sums`.
  static HWY_INLINE void EmitRun(V* HWY_RESTRICT sums, int64_t begin, int64_t end, int64_t whole, T* HWY_RESTRICT to) {
    const D d;
    const int64_t n = static_cast<int64_t>(hn::Lanes(d));
    if (begin > 0) std::memset(static_cast<void*>(to), 0, static_cast<size_t>(begin) * sizeof(T));
    if (end < whole) std::memset(static_cast<void*>(to + end), 0, static_cast<size_t>(whole - end) * sizeof(T));
    int64_t i = begin;
    for (; i + n <= end; i += n, sums += n) {
      StoreNarrow(d, hn::LoadU(d, sums), to + i);
      hn::StoreU(hn::Zero(d), d, sums);
    }
    for (; i < end; ++i, ++sums) {
      to[i] = Narrow<T>(*sums);
      *sums = V{0};
    }
  }

  const Problem& p_;
  const Args& args_;
  const ScatterTiles t_;
  const int64_t out_;
  V* const sums_;
  uint16_t* const bases_;
  V* const row_values_;
  uint16_t* const row_indices_;
  uint8_t* const unpacked_;
  uint16_t* const indices_;
  std::byte* const codes_;
  V* const values_;
  uint16_t* const table_;
  uint16_t each_ = 0, each_row_ = 0, each_slice_ = 0, per_row_ = 0, per_slice_ = 0;
  int64_t block_ = 0;  // elements per position of the unit at work
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace poolgrad
HWY_AFTER_NAMESPACE();

#endif  // POOLGRAD_CPU_BACKWARD_SCATTER_INL_H_
