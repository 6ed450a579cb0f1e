// fwd_cl_rows: max pooling of channels last, reading x once and in order. At most three windows share a row, but where
// windows share few inputs, and at most 255 taps are numbered.
//
// Memory is what binds small windows, and on Arm it delivers most to one long run of addresses that is asked for
// early. So every input row is reduced along the width as it comes, and each window that covers it takes what it needs:
//
//   first row of a window   kept in an accumulator: a row of keys and codes in cache
//   rows between            meet the accumulator
//   last row                meets it on the way to y
//
// Windows that a row closes and opens share one accumulator: it is read before it is written. ties=last walks rows
// and taps backwards; everything else is the same. Small windows that share no rows are read whole, and what the next
// row of outputs reads is asked for while this one is made, as the one run of addresses that it is in memory; so are
// those that share few inputs, whatever rows they share: most rows of widely dilated ones hold nothing for a window.
//
// Measured on Arm, two threads, as a fraction of copy: 3x3 at stride 2 0.59, where windows read one by one had 0.40,
// with routes 0.41 and 0.28; at stride 1 0.44 and 0.25. Tried and left: pieces of rows whose accumulators fit L1 (3x3
// dilated 0.24 against 0.37); asking for lines 4 KiB ahead or into L1 (slower than not asking); whole rows in a ring in
// L2 in place of accumulators (resnet's stem 2.03 ms against 1.4); streaming stores (plain ones on Arm; on x86 15 % on
// one thread, nothing on many).

#include <algorithm>
#include <cstdint>

#include "cpu/forward/channels_last/rows_runs-inl.h"
#include "cpu/forward/common/rows-inl.h"
#include "cpu/forward/forward.h"
#include "cpu/simd/prefetch.h"
#include "cpu/tuning.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

// A piece of a row of outputs whose windows have the same taps along the width.
struct StreamPiece {
  Range ow, taps;
  int64_t kept_at;
};

// How a problem is cut.
struct RowsLayout {
  bool bundles;     // windows that are small and share no rows, or share few inputs, are read whole
  int64_t tile;     // outputs along the width per pass
  int64_t slots;    // windows that are open at once
  int64_t pitch;    // of an accumulator
  int64_t y_pitch;  // of the codes of a row of outputs
  int64_t pieces;   // of a pass, at most
};

template <class S>
RowsLayout LayOutRows(const Problem& p, bool routes) {
  const Axis& h = p.height();
  const Axis& w = p.width();
  RowsLayout l = {};
  const bool few = (!routes || p.taps() <= 255) && HasFewTaps(p);
  l.bundles = p.taps() > w.kernel && (few || (h.disjoint() && p.taps() <= 27));
  l.slots = l.bundles ? 1 : std::clamp<int64_t>(CeilDiv(h.extent() - 1, h.stride), 1, h.out);
  const int64_t lanes = LaneCount<S>();
  const int64_t pixel = (p.channels + lanes - 1) / lanes * lanes;
  l.tile = std::clamp<int64_t>(Tuning().forward_kept / (l.slots * pixel * static_cast<int64_t>(sizeof(S))), 1, w.out);
  l.pitch = l.tile * pixel;
  l.y_pitch = l.tile * p.channels + LaneCount<uint8_t>();
  l.pieces = std::min(l.tile, w.out - w.interior().size() + 1);
  return l;
}

template <class S, bool kRoutes>
class StreamRunner {
 public:
  StreamRunner(const Problem& p, const Args& args, ScratchTaker& take) : rows_(p, args), take_(take) {}

  // Units are rows of outputs: (plane, od, oh).
  void Run(int64_t begin, int64_t end) {
    // Backwards there is nothing to ask for; x86 reads several rows at once as well unasked, and WebAssembly cannot
    // ask.
    const bool asks =
        HWY_TARGET != HWY_WASM && !rows_.backwards && !(l_.bundles && (HWY_ARCH_X86 || p_.depth().kernel > 1));
    for (int64_t k = 0; k < p_.depth().kernel; ++k) {
      looks_[k] = asks ? Lookahead(rows_.x, rows_.x_end) : Lookahead();
    }
    ForSlices(rows_, l_.tile, begin, end, &at_, [&](Range oh) {
      CutPieces(at_.ow);
      Pool(oh);
    });
  }

 private:
  void CutPieces(Range ow) {
    if (piece_count_ > 0 && ow_.begin == ow.begin && ow_.end == ow.end) return;
    ow_ = ow;
    piece_count_ = 0;
    const Range whole = width_.interior();
    const int64_t lanes = LaneCount<S>();
    int64_t kept_at = 0;
    for (int64_t o = ow.begin; o < ow.end;) {
      const bool interior = o >= whole.begin && o < whole.end;
      const Range piece = {o, interior ? std::min(ow.end, whole.end) : o + 1};
      pieces_[piece_count_++] = {piece, width_.valid_taps(o), kept_at};
      const int64_t run = width_.stride == 1 ? piece.size() * p_.channels : p_.channels;
      kept_at += (run + lanes - 1) / lanes * lanes * (width_.stride == 1 ? 1 : piece.size());
      o = piece.end;
    }
  }

  // Output rows `oh` of this plane and depth, columns ow_.
  void Pool(Range oh) {
    const Range d = p_.depth().valid_taps(at_.od);
    if (has_empty_row_ || d.size() == 0) {
      for (int64_t o = oh.begin; o < oh.end; ++o) {
        if (d.size() > 0 && height_.valid_taps(o).size() > 0) continue;
        Exact(o);
        rows_.Finish(at_.first + o, 1, ow_);
      }
      if (d.size() == 0) return;
    }
    if (l_.bundles) return PoolWhole(d, oh);
    if (p_.depth().kernel == 1) return Sweep(d, d.begin, oh);
    for (int64_t o = oh.begin; o < oh.end; ++o) {  // rows are not shared, so windows can be finished one by one
      for (int64_t k = 0; k < d.size(); ++k) Sweep(d, rows_.backwards ? d.end - 1 - k : d.begin + k, {o, o + 1});
    }
  }

  // All rows of each window at once.
  void PoolWhole(Range d, Range oh) {
    for (int64_t o = oh.begin; o < oh.end && !rows_.GaveUp(); ++o) {
      const Range taps = height_.valid_taps(o);
      if (taps.size() == 0) continue;
      role_count_ = closing_ = 0;
      AddRole(o, 0, true, true);
      Row(rows_.row(at_.plane, p_.depth().start(at_.od), height_.start(o)), d, taps);
    }
  }

  // Reads the rows of one slice that windows `oh` cover.
  void Sweep(Range d, int64_t kd, Range oh) {
    const Range in = height_.inputs(oh);
    const int64_t depth = p_.depth().start(at_.od) + kd * p_.depth().dilation;
    const bool first_slice = kd == (rows_.backwards ? d.end - 1 : d.begin);
    const bool last_slice = kd == (rows_.backwards ? d.begin : d.end - 1);
    for (int64_t i = 0; i < in.size() && !rows_.GaveUp(); ++i) {
      const int64_t h = rows_.backwards ? in.end - 1 - i : in.begin + i;
      const Range covering = height_.covering(h);
      const Range o = {std::max(covering.begin, oh.begin), std::min(covering.end, oh.end)};
      role_count_ = closing_ = 0;
      for (int64_t k = 0; k < o.size(); ++k) {
        AddRoleOfRow(rows_.backwards ? o.end - 1 - k : o.begin + k, h, kd, first_slice, last_slice);
      }
      if (role_count_ > 0) Row(rows_.row(at_.plane, depth, h), {0, 1}, {0, 1}, kd);
    }
  }

  // What window `o` does with its tap in row h, if it has one there.
  void AddRoleOfRow(int64_t o, int64_t h, int64_t kd, bool first_slice, bool last_slice) {
    const int64_t kh = height_.tap_at(o, h);
    if (kh < 0) return;
    const Range taps = height_.valid_taps(o);
    const bool at_begin = kh == taps.begin;
    const bool at_end = kh == taps.end - 1;
    const bool first = first_slice && (rows_.backwards ? at_end : at_begin);
    const bool last = last_slice && (rows_.backwards ? at_begin : at_end);
    AddRole(o, kd, first, last).code += static_cast<uint8_t>(kh * width_.kernel);
  }

  Role<S>& AddRole(int64_t o, int64_t kd, bool first, bool last) {
    const int64_t slot = o % l_.slots;
    Role<S>& role = roles_[role_count_++];
    role.first = first;
    role.last = last;
    role.kept = keys_ + slot * l_.pitch;
    role.kept_codes = codes_ + slot * l_.pitch;
    role.code = static_cast<uint8_t>(kd * height_.kernel * width_.kernel);
    role.y = rows_.y_row(at_.first + o) + ow_.begin * p_.channels;
    role.y_codes = y_codes_ + closing_ * l_.y_pitch;
    role.output = o;
    closing_ += last;
    return role;
  }

  // Lists taps in order of preference: how far they lie from a window's first one, and their codes. Returns how many.
  int64_t ListTaps(Range d, Range h, Range w) const {
    const int64_t pitch = width_.in * p_.channels;
    int64_t n = 0;
    for (int64_t kd = d.begin; kd < d.end; ++kd) {
      for (int64_t kh = h.begin; kh < h.end; ++kh) {
        for (int64_t kw = w.begin; kw < w.end; ++kw, ++n) {
          offsets_[n] = (kd * p_.depth().dilation * height_.in + kh * height_.dilation) * pitch +
                        kw * width_.dilation * p_.channels;
          tap_codes_[n] = static_cast<uint8_t>((kd * height_.kernel + kh) * width_.kernel + kw);
        }
      }
    }
    if (rows_.backwards) {
      std::reverse(offsets_, offsets_ + n);
      std::reverse(tap_codes_, tap_codes_ + n);
    }
    return n;
  }

  // Reduces input rows, those of taps `d` and `h` from `row` on, hands the result to the roles, and finishes the rows
  // of outputs that are complete. `look`: which of the lookaheads sees them come.
  void Row(const S* row, Range d, Range h, int64_t look = 0) {
    Watch<S> watch(p_);
    const int64_t channels = p_.channels;
    const bool one_run = width_.stride == 1;
    const int64_t lanes = LaneCount<S>();
    for (int64_t i = 0; i < piece_count_; ++i) {
      const StreamPiece& piece = pieces_[i];
      const int64_t run = one_run ? piece.ow.size() * channels : channels;
      StreamPieceOfRow<S, kRoutes>(
          {row + width_.start(piece.ow.begin) * channels, offsets_, tap_codes_, ListTaps(d, h, piece.taps),
           one_run ? 1 : piece.ow.size(), run, width_.stride * channels, (run + lanes - 1) / lanes * lanes,
           piece.kept_at, (piece.ow.begin - ow_.begin) * channels, roles_, role_count_, rows_.x_end,
           ow_.size() * channels, looks_ + look, h.size() - 1, width_.in * channels},
          watch);
    }
    const bool fired = watch.Fired();
    for (int64_t r = 0; r < role_count_; ++r) {
      const Role<S>& role = roles_[r];
      const int64_t o = role.output;
      bool& suspect = suspect_[o % l_.slots];
      suspect = fired || (!role.first && suspect);
      if (!role.last) continue;
      if (suspect && SeesSpecial(rows_, at_.plane, at_.od, o, ow_)) {
        Exact(o);
      } else if constexpr (kRoutes) {
        PackRow(p_, role.y_codes, ow_, rows_.route_row(at_.first + o));
      }
      rows_.Finish(at_.first + o, 1, ow_);
    }
  }

  void Exact(int64_t o) { RunExactRow<S>(rows_, at_.plane, at_.od, o, ow_, at_.first + o); }

  const Rows<S> rows_;
  ScratchTaker& take_;
  const Problem& p_ = rows_.p;
  const Axis &height_ = p_.height(), &width_ = p_.width();
  const RowsLayout& l_ = *static_cast<const RowsLayout*>(rows_.args.layout);
  const bool has_empty_row_ = height_.has_empty_window();
  const int64_t most_taps_ = l_.bundles ? p_.taps() : width_.kernel;  // that are read together

  S* const keys_ = take_.Take<S>(l_.slots * l_.pitch);
  uint8_t* const codes_ = take_.Take<uint8_t>(kRoutes ? l_.slots * l_.pitch : 0);
  uint8_t* const y_codes_ =
      take_.Take<uint8_t>(kRoutes ? (l_.slots + 1) * l_.y_pitch : 0);  // so many may end with a row
  bool* const suspect_ = take_.Take<bool>(l_.slots);                   // the Watch fired for a row of the slot's window
  Role<S>* const roles_ = take_.Take<Role<S>>(l_.slots + 1);
  StreamPiece* const pieces_ = take_.Take<StreamPiece>(l_.pieces);
  int64_t* const offsets_ = take_.Take<int64_t>(most_taps_);
  uint8_t* const tap_codes_ = take_.Take<uint8_t>(most_taps_);
  Lookahead* const looks_ = take_.Take<Lookahead>(p_.depth().kernel);  // slices are far from each other

  Slice<S> at_ = {};  // at work
  Range ow_;
  int64_t piece_count_ = 0;
  int64_t role_count_ = 0;
  int64_t closing_ = 0;
};

// Why rows of outputs are not worth what each costs to begin, and each window that shares its inputs; or null. Measured
// on x86: rows of 16 channels ran at 0.3 to 0.9 of the speed of the general kernels. Slices of a volume share nothing.
// Windows that share nothing are worth it from half as much on with routes (1.0 to 1.2), not without (0.7 to 0.9).
inline const char* RefuseShortRows(const Problem& p, const RowsLayout& l, bool routes) {
  if (!HWY_ARCH_X86) return nullptr;
  const int64_t least = Tuning().forward_kept >> 10;  // 256 outputs, where accumulators take all their room
  const int64_t halves =
      l.bundles ? (routes ? 1 : 2) : 2 * (1 + l.slots) * (p.depth().kernel > 1 ? 2 : 1);  // each slice begins it again
  if (2 * p.channels * p.width().out < least * halves) return "rows of outputs are too short";
  return least > 0 && p.depth().kernel > 1 && l.slots > 1 && !l.bundles ? "deep windows share rows" : nullptr;
}

// Without routes AVX-512 gains by reading rows in order where windows have one row (0.9 to 2.3 times the speed of
// fwd_values on two threads, 40 problems drawn; 0.7 where an input has 26 of them), are small and dilated (0.9 to 2.2),
// or have few taps and move down by more than a row (0.9 to 1.6; halves that share no rows lose), or by one and are
// two rows of f32 (1.0 to 1.5, from cache 0.7 to 1.9; halves 1.0 to 1.5, but from cache 0.4 to 0.9), or leave a quarter
// of the width out (1.2 to 2.2); others lose (0.5 to 1.2, volumes and large windows most). AVX2 gains 1.0 to 1.4.
template <class S>
bool IsWorthRows(const Problem& p) {
  const Axis &h = p.height(), &w = p.width();
  if (HasFewTaps(p) && 4 * w.out * w.kernel <= 3 * w.in) return true;  // they are read whole
  const bool apart = p.disjoint() && p.taps() <= 9;
  if (p.depth().kernel > 1) return apart;
  if (h.kernel == 1) return CeilDiv(w.kernel, w.stride) <= 16;
  if (h.dilation > 1 || w.dilation > 1) return p.taps() <= 24;
  if (h.stride > 1 ? sizeof(S) == 4 || h.kernel > h.stride : sizeof(S) == 4 && h.kernel == 2) return p.taps() <= 16;
  return apart;
}

template <class S, bool kRoutes>
const char* MakeRows(const Problem& p, Kernel* kernel) {
  const Axis& h = p.height();
  if (!p.channels_last() || p.channels == 1) return "it needs channels last";
  if (kRoutes && p.taps() > 255) return "a tap's number does not fit a byte";
  if (p.depth().kernel > 4096) return "windows are too deep";
  if (p.channels < LaneCount<S>() && (p.width().stride > 1 || p.width().out == 1))
    return "there are fewer channels than lanes";
  const RowsLayout layout = LayOutRows<S>(p, kRoutes);
  if (CeilDiv(h.kernel, h.stride) > 3 && h.out > 1 && !layout.bundles) return "more than three windows share a row";
  if (!kRoutes && HWY_TARGET == HWY_AVX3 && !IsWorthRows<S>(p))
    return "fwd_values pools such windows as fast or faster";
  if (const char* reason = RefuseShortRows(p, layout, kRoutes)) return reason;
  return MakeOfRows<S, StreamRunner<S, kRoutes>>(kernel, p, layout);
}

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
