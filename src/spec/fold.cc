#include "spec/fold.h"

#include <utility>

namespace poolgrad {
namespace {

bool PoolsNothing(const Axis& a) {
  return !a.table && a.kernel == 1 && a.in == a.out && a.pad_lo == 0 && (a.stride == 1 || a.out == 1);
}

bool IsSingle(const Axis& a) { return PoolsNothing(a) && a.in == 1; }

Axis PoolingNothing(int64_t size) {
  Axis a;
  a.in = a.out = size;
  return a;
}

// Whether anything changed.
bool Settle(Problem q, Problem* p) {
  q.rank = !IsSingle(q.axis[0]) ? 3 : !IsSingle(q.axis[1]) ? 2 : 1;
  SetRouteLines(&q);
  if (q.layout == p->layout && q.batch == p->batch && q.channels == p->channels && q.rank == p->rank) return false;
  *p = std::move(q);
  return true;
}

}  // namespace

bool Fold(Problem* p, poolgrad_op op) {
  if (p->bias || p->x_elements() == 0 || p->y_elements() == 0) return false;
  int first = 0, past = 3;  // of the axes that pool, and those between them
  while (first < 3 && PoolsNothing(p->axis[first])) ++first;
  if (first == 3) return false;
  while (PoolsNothing(p->axis[past - 1])) --past;

  const bool has_routes = p->kind == POOLGRAD_MAX && op != POOLGRAD_OP_FORWARD && op != POOLGRAD_OP_BACKWARD_X;
  const auto joins = [&](int64_t line) { return !has_routes || line * p->routes.bits % 8 == 0; };
  Problem q = *p;
  for (int i = 0; i < first; ++i) {
    (p->channels_last() ? q.batch : q.channels) *= p->axis[i].in;
    q.axis[i] = Axis();
  }
  const int inner = p->channels_last() ? 2 : 1;  // the width of channels first is what others are merged with
  for (int i = inner; i >= past; --i) {
    int64_t& behind = p->channels_last() ? q.channels : q.axis[2].in;
    if (!joins(behind)) break;
    behind *= q.axis[i].in;
    q.axis[2] = PoolingNothing(p->channels_last() ? 1 : behind);
    q.axis[i] = i == 2 ? q.axis[2] : Axis();
  }
  if (q.channels_last() && q.channels == 1 && joins(1)) q.layout = POOLGRAD_CHANNELS_FIRST;
  if (IsSingle(q.axis[1])) std::swap(q.axis[0], q.axis[1]);
  return Settle(std::move(q), p);
}

bool FoldToRows(Problem* p, poolgrad_op op) {
  const bool folded = Fold(p, op);
  if (p->bias || !IsSingle(p->axis[0]) || !IsSingle(p->axis[1]) || p->x_elements() == 0) return folded;
  Problem q = *p;
  q.axis[1] = PoolingNothing(p->batch * (p->channels_last() ? 1 : p->channels));
  q.batch = 1;
  if (!p->channels_last()) q.channels = 1;
  return Settle(std::move(q), p) || folded;
}

}  // namespace poolgrad
