#include "spec/fold.h"

#include <memory>
#include <utility>

#include "spec/kernel.h"

namespace poolgrad {
namespace {

bool PoolsNothing(const Axis& a) {
  return !a.table && a.kernel == 1 && a.in == a.out && a.pad_lo == 0 && (a.stride == 1 || a.out == 1);
}

bool IsSingle(const Axis& a) { return PoolsNothing(a) && a.in == 1; }

// Channels from which on an image with channels last is the better form of a row that pools nothing.
constexpr int64_t kWorthChannels = 32;

Axis PoolingNothing(int64_t size) {
  Axis a;
  a.in = a.out = size;
  return a;
}

// `q`, if it is another problem than `p`.
std::optional<Problem> Settled(Problem q, const Problem& p) {
  q.rank = !IsSingle(q.axis[0]) ? 3 : !IsSingle(q.axis[1]) ? 2 : 1;
  SetRouteLines(&q);
  if (q.layout == p.layout && q.batch == p.batch && q.channels == p.channels && q.rank == p.rank) return {};
  return q;
}

}  // namespace

std::optional<Problem> Folded(const Problem& p, poolgrad_op op) {
  const bool has_routes = p.kind == POOLGRAD_MAX && op != POOLGRAD_OP_FORWARD && op != POOLGRAD_OP_BACKWARD_X;
  const auto joins = [&](int64_t line) { return !has_routes || line * p.routes.bits % 8 == 0; };
  const bool one_channel = p.channels_last() && p.channels == 1 && joins(1);
  if (!PoolsNothing(p.axis[2]) && !PoolsNothing(p.axis[3 - p.rank]) && !one_channel) return {};  // as most are
  if (p.bias || p.x_elements() == 0 || p.y_elements() == 0) return {};
  int first = 0, past = 3;  // of the axes that pool, and those between them
  while (first < 3 && PoolsNothing(p.axis[first])) ++first;
  if (first == 3) return {};
  while (PoolsNothing(p.axis[past - 1])) --past;
  Problem q = p;
  for (int i = 0; i < first; ++i) {
    (p.channels_last() ? q.batch : q.channels) *= p.axis[i].in;
    q.axis[i] = Axis();
  }
  if (past < 3) {
    // Merged from behind: with the channels, or (channels first) with the width, whose rows are lines.
    int64_t line = p.channels_last() ? p.channels : p.axis[2].in;
    int merged = p.channels_last() ? 3 : 2;  // the first axis that is
    while (merged > past && joins(line)) line *= p.axis[--merged].in;
    for (int i = merged; i < 3; ++i) q.axis[i] = Axis();
    if (p.channels_last()) {
      q.channels = line;
    } else if (merged == past && line >= kWorthChannels) {
      q.layout = POOLGRAD_CHANNELS_LAST;
      q.batch *= q.channels;
      q.channels = line;
    } else {
      q.axis[2] = PoolingNothing(line);
    }
    // What is left moves inwards.
    const Axis& last = q.axis[past - 1];
    const bool down = op == POOLGRAD_OP_FORWARD && last.stride > 1 && !last.disjoint();
    for (int i = 0; i < 2 && q.channels_last() && !down && IsSingle(q.axis[2]); ++i) {
      q.axis[2] = std::exchange(q.axis[1], std::exchange(q.axis[0], Axis()));
    }
  }
  if (q.channels_last() && q.channels == 1 && joins(1)) q.layout = POOLGRAD_CHANNELS_FIRST;
  if (IsSingle(q.axis[1])) std::swap(q.axis[0], q.axis[1]);
  return Settled(std::move(q), p);
}

bool FoldChannel(Problem* p) {
  if (p->bias || !p->channels_last() || p->channels != 1 || p->routes.bits % 8 != 0) return false;
  p->layout = POOLGRAD_CHANNELS_FIRST;
  SetRouteLines(p);
  return true;
}

namespace {

constexpr char kDoesOthers[] = "it does other operations";

const char* MakeAs(const Algorithm& a, const Problem& seen, Wanted& w, Kernel* kernel) {
  const char* const refusal = a.refuse ? w.Refused(a.refuse, seen) : nullptr;
  if (refusal) return refusal;
  const char* const reason = a.made_of(seen, w.op, w.host, kernel);
  if (reason && kernel->run) *kernel = {};
  return reason;
}

}  // namespace

#ifdef POOLGRAD_SMALL  // which folds nothing, for size

const char* Algorithm::make(Wanted& w, Kernel* kernel) const {
  return Includes(does, w.problem.kind, w.op) ? MakeAs(*this, w.problem, w, kernel) : kDoesOthers;
}

#else

namespace {

// For kernels that would rather have many rows than many planes: signals become the rows of one image. `p` is folded.
std::optional<Problem> ToRows(const Problem& p) {
  if (p.bias || !IsSingle(p.axis[0]) || !IsSingle(p.axis[1]) || p.x_elements() == 0) return {};
  Problem q = p;
  q.axis[1] = PoolingNothing(p.batch * (p.channels_last() ? 1 : p.channels));
  q.batch = 1;
  if (!p.channels_last()) q.channels = 1;
  return Settled(std::move(q), p);
}

std::shared_ptr<const Problem> Shared(std::optional<Problem> p) {
  return p ? std::make_shared<const Problem>(*std::move(p)) : nullptr;
}

}  // namespace

void Wanted::Fold() {
  folded_ = Shared(poolgrad::Folded(problem, op));
  folded_known_ = true;
}

const std::shared_ptr<const Problem>& Wanted::Rows() {
  if (!rows_known_) rows_ = Shared(ToRows(Folded() ? *folded_ : problem));
  rows_known_ = true;
  return rows_ ? rows_ : folded_;
}

const char* Algorithm::make(Wanted& w, Kernel* kernel) const {
  if (!Includes(does, w.problem.kind, w.op)) return kDoesOthers;
  if (seen == Seen::kAsIs) return MakeAs(*this, w.problem, w, kernel);
  const std::shared_ptr<const Problem>& as = seen == Seen::kFolded ? w.Folded() : w.Rows();
  const char* const reason = MakeAs(*this, as ? *as : w.problem, w, kernel);
  if (!reason) kernel->as = as;
  return reason;
}

#endif

}  // namespace poolgrad
