#include "spec/shard.h"

#include <algorithm>
#include <string>

namespace poolgrad {
namespace {

std::string At(const char* name, int64_t i) { return std::string(name) + "[" + std::to_string(i) + "]"; }

Status CheckCuts(const poolgrad_problem& whole, const Problem& p, const Cuts& c, const int64_t* at) {
  if (p.bias) return Status::Unsupported("the problem has a bias; add it before a problem that is split in space");
  for (int i = 0; i < p.rank; ++i) {
    const Axis& a = p.axis[3 - p.rank + i];
    if (a.whole.size() > 0) return Status::Unsupported("the problem is a part already; split the whole");
    if (whole.outputs[i] != 0)  // a.table is null where they are alike, but parts would list the whole's
      return Status::Unsupported("axis " + std::to_string(i) + " has windows by table; only regular windows are split");
    if (c.parts[i] < 1 || c.parts[i] > (int64_t{1} << 24)) {
      return Status::Invalid(At("parts", i) + " is " + std::to_string(c.parts[i]) + "; an axis has 1 to 2^24 parts");
    }
    const int64_t* cut = c.cuts[i];
    if (cut[0] != 0 || cut[c.parts[i]] != a.in) {
      return Status::Invalid(At("cuts", i) + " goes from " + std::to_string(cut[0]) + " to " +
                             std::to_string(cut[c.parts[i]]) + "; it must go from 0 to the axis' size, " +
                             std::to_string(a.in));
    }
    for (int64_t k = 0; k < c.parts[i]; ++k) {
      if (cut[k] > cut[k + 1]) {
        return Status::Invalid(At("cuts", i) + "[" + std::to_string(k + 1) + "] is " + std::to_string(cut[k + 1]) +
                               "; cuts never fall, and the one before is " + std::to_string(cut[k]));
      }
    }
    if (at[i] < 0 || at[i] >= c.parts[i]) {
      return Status::Invalid(At("at", i) + " is " + std::to_string(at[i]) + "; the axis has parts 0 to " +
                             std::to_string(c.parts[i] - 1));
    }
  }
  return {};
}

// The first output that begins at input `cut` or later, where windows that begin outside count as beginning at the
// border.
int64_t FirstFrom(const Axis& a, int64_t cut) {
  if (cut <= 0) return 0;
  if (cut >= a.in) return a.out;
  return std::clamp<int64_t>(CeilDiv(cut + a.pad_lo, a.stride), 0, a.out);
}

// What a rank has to do with one axis.
struct Piece {
  Range in, out, read, over;
};

Piece PieceOf(const Axis& a, const int64_t* cut, int64_t parts, int64_t at) {
  Piece s;
  s.in = {cut[at], cut[at + 1]};
  // Empty pieces own nothing; what begins at their place belongs to the next that is not empty, or at the end to the
  // last.
  if (s.in.size() > 0) {
    bool last = true;
    for (int64_t k = at + 1; k < parts && last; ++k) last = cut[k] == cut[k + 1];
    s.out = {FirstFrom(a, s.in.begin), last ? a.out : FirstFrom(a, s.in.end)};
    s.over = {a.covering(s.in.begin).begin, a.covering(s.in.end - 1).end};
  }
  if (s.out.size() > 0) s.read = a.inputs(s.out);
  return s;
}

// `whole` with axis i being the windows `outputs` over the inputs `inputs`.
void CutAxis(const Axis& a, int i, Range outputs, Range inputs, poolgrad_problem* part) {
  const Axis p = a.Part(outputs, inputs);
  part->in[i] = p.in;
  part->pad_lo[i] = p.pad_lo;
  part->pad_hi[i] = (p.out - 1) * p.stride + p.extent() - p.in - p.pad_lo;  // exactly as many windows
  part->whole_in[i] = a.in;
  part->whole_at[i] = inputs.begin;
  part->whole_pad_lo[i] = a.pad_lo;
  part->whole_pad_hi[i] = a.pad_hi;
}

}  // namespace

Result<Shard> ShardOf(const poolgrad_problem& whole, const Cuts& cuts, const int64_t* at) {
  const Result<Problem> resolved = Resolve(whole);
  if (!resolved.ok()) return resolved.status();
  const Problem& p = *resolved;
  if (Status status = CheckCuts(whole, p, cuts, at); !status.ok()) return status;
  Shard made;
  poolgrad_shard& shard = made.boxes;
  shard.struct_size = sizeof shard;
  shard.has_forward = shard.has_backward = 1;
  poolgrad_problem part = whole;
  part.padding = POOLGRAD_PAD_EXPLICIT;
  part.rounding = POOLGRAD_ROUND_FLOOR;
  part.count_padding = p.count_padding ? 1 : 0;
  if (p.kind == POOLGRAD_MAX && !p.routes.masks) part.route_bits = std::max(8, p.routes.bits);
  made.forward = made.backward = part;
  for (int i = 0; i < p.rank; ++i) {
    const Axis& a = p.axis[3 - p.rank + i];
    const Piece s = PieceOf(a, cuts.cuts[i], cuts.parts[i], at[i]);
    shard.in_begin[i] = s.in.begin, shard.in_end[i] = s.in.end;
    shard.out_begin[i] = s.out.begin, shard.out_end[i] = std::max(s.out.begin, s.out.end);
    shard.read_begin[i] = s.read.begin, shard.read_end[i] = s.read.end;
    shard.over_begin[i] = s.over.begin, shard.over_end[i] = std::max(s.over.begin, s.over.end);
    // Windows that see nothing but padding still need an input to stand on: one of the axis'.
    Range read = s.read;
    if (s.out.size() == 0) {
      shard.has_forward = 0;
    } else {
      if (read.size() == 0) read = {std::min(read.begin, a.in - 1), std::min(read.begin, a.in - 1) + 1};
      shard.read_begin[i] = read.begin, shard.read_end[i] = read.end;
      CutAxis(a, i, s.out, read, &made.forward);
    }
    if (s.in.size() == 0 || s.over.size() == 0) {
      shard.has_backward = 0;
    } else {
      CutAxis(a, i, s.over, s.in, &made.backward);
    }
  }
  if (!shard.has_forward) made.forward = whole;
  if (!shard.has_backward) made.backward = whole;
  return made;
}

Status HaloOf(const poolgrad_problem& whole, const Cuts& cuts, const int64_t* from, const int64_t* to,
              poolgrad_halo halo, int64_t* begin, int64_t* end) {
  const Result<Shard> giver = ShardOf(whole, cuts, from);
  if (!giver.ok()) return giver.status();
  const Result<Shard> taker = ShardOf(whole, cuts, to);
  if (!taker.ok()) return taker.status();
  const poolgrad_shard& gives = giver->boxes;
  const poolgrad_shard& takes = taker->boxes;
  const bool x = halo == POOLGRAD_HALO_X;
  const bool wanted = x ? takes.has_forward : takes.has_backward;
  for (int i = 0; i < whole.rank; ++i) {
    begin[i] = std::max(x ? gives.in_begin[i] : gives.out_begin[i], x ? takes.read_begin[i] : takes.over_begin[i]);
    end[i] = std::min(x ? gives.in_end[i] : gives.out_end[i], x ? takes.read_end[i] : takes.over_end[i]);
    if (!wanted || end[i] < begin[i]) end[i] = begin[i];
  }
  return {};
}

}  // namespace poolgrad
