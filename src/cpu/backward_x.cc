// Pieces: a group of whole planes (or channels-last images) where those are small, else bands of one along its
// outermost axis. A piece is a problem of its own: the windows over a band of dx, seen by the forward kernel with all
// the inputs they reach, and by the backward kernel with the band alone, where taps that land outside it are padding.
// So any forward and any backward kernel serves, and both see the same windows and the same route format.
#include "cpu/backward_x.h"

#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "cpu/cpu.h"

namespace poolgrad {
namespace {

// Bytes of x, dy and dx of one piece. Windows across the edge of a band are done in both its pieces, and their winners
// looked at one by one, which costs more than a piece that does not fit the cache: bands are only as small as it takes
// to keep the threads busy. What fits the caches is dealt out to the threads once; less than kWorthAThread is one piece.
constexpr int64_t kLeastBytes = 384 << 10;
constexpr int64_t kMostBytes = 8 << 20;
constexpr int64_t kSmallShare = 1 << 20;
constexpr int64_t kWorthAThread = 64 << 10;

// Asked for once: a plan and its runs must cut alike, whatever the environment says in between.
int64_t Threads() {
  static const int64_t threads = DefaultThreads();
  return threads;
}

struct Cut {
  bool last;       // channels innermost
  int outer;       // the axis that bands are cut along
  int64_t images;  // batch, or batch times channels
  int64_t group;   // images per piece
  int64_t groups;
  int64_t band;  // inputs of the outer axis per piece
  int64_t bands;
  int64_t x_step, y_step;  // elements per position of the outer axis
};

Cut CutOf(const Problem& p) {
  Cut c{};
  c.last = p.channels_last();
  c.outer = 3 - p.rank;
  c.images = c.last ? p.batch : p.batch * p.channels;
  const Axis& a = p.axis[c.outer];
  const int64_t inner = c.last ? p.channels : 1;
  c.x_step = p.in_plane() / a.in * inner;
  c.y_step = p.out_plane() / a.out * inner;
  const int64_t image_bytes = std::max<int64_t>(1, (p.in_plane() + 2 * p.out_plane()) * inner * SizeOf(p.dtype));
  const int64_t share = p.x_bytes() / Threads() + 2 * (p.y_bytes() / Threads());
  const bool small = share <= kSmallShare;
  const int64_t wanted = small ? Threads() : 4 * Threads();
  const int64_t piece_bytes =
      small ? std::max(share, kWorthAThread) : std::clamp(share / 4, kLeastBytes, kMostBytes);
  const int64_t bands = small                           ? (image_bytes + piece_bytes / 2) / piece_bytes
                        : image_bytes > 2 * piece_bytes ? CeilDiv(image_bytes, piece_bytes)
                                                        : 1;
  c.group = 1;
  c.band = a.in;
  if (bands > 1) {
    const int64_t least = std::max<int64_t>(4 * a.extent(), 4 * a.stride);
    c.band = std::min(a.in, std::max(least, CeilDiv(a.in, bands)));
    c.band = std::min(a.in, CeilDiv(c.band, a.stride) * a.stride);
  } else {
    const int64_t fitting = kMostBytes / image_bytes;
    const int64_t worthwhile = kWorthAThread / image_bytes;
    c.group = std::max<int64_t>(1, std::min(fitting, std::max(worthwhile, CeilDiv(c.images, wanted))));
    if (c.group > 16) c.group = c.group / 16 * 16;
  }
  c.groups = CeilDiv(c.images, c.group);
  c.bands = CeilDiv(a.in, c.band);
  return c;
}

struct Piece {
  Problem forward, backward;
  int64_t x_at, y_at, dx_at;  // elements from the image's start
  bool covered;               // some window lies over it
};

Piece PieceOf(const Problem& p, const Cut& c, int64_t images, int64_t band) {
  Piece piece{p, p, 0, 0, 0, true};
  const Axis& a = p.axis[c.outer];
  Axis& fwd = piece.forward.axis[c.outer];
  Axis& bwd = piece.backward.axis[c.outer];
  if (c.bands > 1) {
    const int64_t begin = band * c.band;
    const int64_t end = std::min(begin + c.band, a.in);
    const Range first = a.covering(begin);
    const Range last = a.covering(end - 1);
    const int64_t o0 = first.begin;
    const int64_t o1 = std::max(first.end, last.end);
    piece.covered = o1 > o0;
    if (piece.covered) {
      const int64_t reach = a.start(o1 - 1) + a.extent();
      const int64_t x0 = std::max<int64_t>(0, a.start(o0));
      const int64_t x1 = std::min(a.in, reach);
      fwd.in = x1 - x0;
      fwd.out = bwd.out = o1 - o0;
      fwd.pad_lo = x0 - a.start(o0);
      fwd.pad_hi = std::max<int64_t>(0, reach - x1);
      bwd.in = end - begin;
      bwd.pad_lo = begin - a.start(o0);
      bwd.pad_hi = std::max<int64_t>(0, reach - end);
      piece.x_at = x0 * c.x_step;
      piece.y_at = o0 * c.y_step;
    }
    piece.dx_at = begin * c.x_step;
  }
  for (Problem* q : {&piece.forward, &piece.backward}) {
    q->batch = c.last ? images : 1;
    if (!c.last) q->channels = images;
    RouteFormat& f = q->routes;
    f.line = c.last ? q->channels : q->width().out;
    f.lines = f.line == 0 ? 0 : q->y_elements() / f.line;
    f.line_bytes = f.masks ? f.line * f.mask_bytes() : CeilDiv(f.line * f.bits, 8);
  }
  return piece;
}

// The kernels of one shape of piece.
struct Pair {
  Kernel forward, backward;
};

const char* FindPair(const Piece& piece, Pair* pair) {
  const auto find = [](std::span<const Algorithm> list, const Problem& p, poolgrad_op op, Kernel* kernel) {
    for (const Algorithm& a : list) {
      if (a.refuse(p, op)) continue;
      *kernel = a.make(p, op);
      return true;
    }
    return false;
  };
  if (!find(ForwardAlgorithms(), piece.forward, POOLGRAD_OP_FORWARD_ROUTES, &pair->forward))
    return "no vector kernel finds its routes";
  if (!find(BackwardAlgorithms(), piece.backward, POOLGRAD_OP_BACKWARD, &pair->backward))
    return "no vector kernel uses its routes";
  return nullptr;
}

int64_t Round64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

bool SameShape(const Piece& a, const Piece& b, int outer) {
  const Axis& x = a.forward.axis[outer];
  const Axis& y = b.forward.axis[outer];
  const Axis& v = a.backward.axis[outer];
  const Axis& w = b.backward.axis[outer];
  return a.forward.batch == b.forward.batch && a.forward.channels == b.forward.channels && a.covered == b.covered &&
         x.in == y.in && x.out == y.out && x.pad_lo == y.pad_lo && v.in == w.in && v.pad_lo == w.pad_lo;
}

struct Needs {
  int64_t forward = 0, backward = 0, y = 0, routes = 0;  // bytes of scratch
  Piece seen{};                                          // the last shape of piece, and its kernels
  Pair pair;
  bool any = false;
  int64_t bytes() const { return Round64(forward) + Round64(backward) + Round64(y) + Round64(routes); }
};

// Visits every shape of piece once: what the largest of each part needs, or why one cannot be done.
const char* FindNeeds(const Problem& p, const Cut& c, Needs* needs) {
  const auto look = [&](int64_t images, int64_t band) -> const char* {
    const Piece piece = PieceOf(p, c, images, band);
    if (!piece.covered || (needs->any && SameShape(piece, needs->seen, c.outer))) return nullptr;
    needs->seen = piece;
    needs->any = true;
    if (const char* reason = FindPair(piece, &needs->pair)) return reason;
    needs->forward = std::max(needs->forward, needs->pair.forward.scratch_bytes);
    needs->backward = std::max(needs->backward, needs->pair.backward.scratch_bytes);
    needs->y = std::max(needs->y, piece.forward.y_bytes());
    needs->routes = std::max(needs->routes, piece.forward.routes.bytes());
    return nullptr;
  };
  for (int64_t band = 0; band < c.bands; ++band) {
    if (const char* reason = look(std::min(c.group, c.images), band)) return reason;
  }
  if (c.images % c.group != 0) return look(c.images % c.group, 0);
  return nullptr;
}

void Run(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  const Cut c = CutOf(p);
  Needs needs;
  FindNeeds(p, c, &needs);
  std::byte* const forward_scratch = scratch;
  std::byte* const backward_scratch = forward_scratch + Round64(needs.forward);
  std::byte* const y = backward_scratch + Round64(needs.backward);
  uint8_t* const routes = reinterpret_cast<uint8_t*>(y + Round64(needs.y));
  const int64_t inner = c.last ? p.channels : 1;
  const int64_t size = SizeOf(p.dtype);
  const auto place = [&](const void* base, int64_t elements) {
    return static_cast<const std::byte*>(base) + elements * size;
  };
  Pair& pair = needs.pair;
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t image = unit / c.bands * c.group;
    const Piece piece = PieceOf(p, c, std::min(c.group, c.images - image), unit % c.bands);
    std::byte* dx = static_cast<std::byte*>(args.result) + (image * p.in_plane() * inner + piece.dx_at) * size;
    if (!piece.covered) {
      const Axis& a = p.axis[c.outer];
      const int64_t first = unit % c.bands * c.band;
      std::memset(dx, 0, static_cast<size_t>((std::min(first + c.band, a.in) - first) * c.x_step * size));
      continue;
    }
    if (!SameShape(piece, needs.seen, c.outer)) FindPair(piece, &pair);
    needs.seen = piece;
    Args find;
    find.source = place(args.x, image * p.in_plane() * inner + piece.x_at);
    find.routes = routes;
    find.result = y;
    pair.forward.Run(piece.forward, find, 0, pair.forward.units, forward_scratch);
    Args use;
    use.source = place(args.source, image * p.out_plane() * inner + piece.y_at);
    use.routes = routes;
    use.result = dx;
    pair.backward.run(piece.backward, use, 0, pair.backward.units, backward_scratch);
  }
}

}  // namespace

const char* RefuseBackwardX(const Problem& p) {
  if (p.x_elements() == 0 || p.y_elements() == 0) return "there is nothing to cut into pieces";
  Needs needs;
  return FindNeeds(p, CutOf(p), &needs);
}

Kernel MakeBackwardX(const Problem& p) {
  const Cut c = CutOf(p);
  Needs needs;
  FindNeeds(p, c, &needs);
  return {Run, c.groups * c.bands, needs.bytes()};
}

}  // namespace poolgrad
