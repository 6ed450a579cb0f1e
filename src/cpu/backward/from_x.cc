// Pieces: a group of whole planes (or channels-last images) where those are small, else bands of one along its
// outermost axis. A piece is a problem of its own: the windows over a band of dx, seen by the forward kernel with all
// the inputs they reach, and by the backward kernel with the band alone, where taps that land outside it are padding.
// So any forward and any backward kernel serves, and both see the same windows and the same route format. Pieces have
// few shapes; the kernels of each are chosen when the plan is made.
#include <algorithm>
#include <cstring>
#include <list>
#include <memory>

#include "cpu/backward/backward.h"
#include "cpu/cpu.h"
#include "cpu/tuning.h"

namespace poolgrad {
namespace {

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

Cut CutOf(const Problem& p, int64_t threads) {
  const CpuTuning& tuning = Tuning();
  Cut c{};
  c.last = p.channels_last();
  c.outer = 3 - p.rank;
  c.images = c.last ? p.batch : p.batch * p.channels;
  const Axis& a = p.axis[c.outer];
  const int64_t inner = c.last ? p.channels : 1;
  c.x_step = p.in_plane() / a.in * inner;
  c.y_step = p.out_plane() / a.out * inner;
  const int64_t image_bytes = std::max<int64_t>(1, (p.in_plane() + 2 * p.out_plane()) * inner * SizeOf(p.dtype));
  const int64_t share = p.x_bytes() / threads + 2 * (p.y_bytes() / threads);
  const bool small = share <= tuning.piece_small_share;
  const int64_t wanted = small ? threads : 4 * threads;
  const int64_t piece_bytes =
      small ? std::max(share, tuning.piece_worth) : std::clamp(share / 4, tuning.piece_least, tuning.piece_most);
  const int64_t bands = a.table                         ? 1  // where tables are cut is not worth knowing
                        : small                         ? (image_bytes + piece_bytes / 2) / piece_bytes
                        : image_bytes > 2 * piece_bytes ? CeilDiv(image_bytes, piece_bytes)
                                                        : 1;
  c.group = 1;
  c.band = a.in;
  if (bands > 1) {
    const int64_t least = std::max<int64_t>(4 * a.extent(), 4 * a.stride);
    c.band = std::min(a.in, std::max(least, CeilDiv(a.in, bands)));
    c.band = std::min(a.in, CeilDiv(c.band, a.stride) * a.stride);
  } else {
    const int64_t fitting = tuning.piece_most / image_bytes;
    const int64_t worthwhile = tuning.piece_worth / image_bytes;
    c.group = std::max<int64_t>(1, std::min(fitting, std::max(worthwhile, CeilDiv(c.images, wanted))));
    if (c.group > 16) c.group = c.group / 16 * 16;
  }
  c.groups = CeilDiv(c.images, c.group);
  c.bands = CeilDiv(a.in, c.band);
  return c;
}

// The windows over a band of inputs, and the inputs those reach.
struct Band {
  Range inputs, outputs, reach;
  bool covered() const { return outputs.size() > 0; }
};

Band BandOf(const Axis& a, const Cut& c, int64_t band) {
  Band b;
  b.inputs = {band * c.band, std::min(band * c.band + c.band, a.in)};
  if (c.bands == 1) {
    b.outputs = {0, a.out};
    b.reach = b.inputs;
    return b;
  }
  const Range first = a.covering(b.inputs.begin);
  const Range last = a.covering(b.inputs.end - 1);
  b.outputs = {first.begin, std::max(first.end, last.end)};
  if (b.covered()) b.reach = a.inputs(b.outputs);
  return b;
}

// What says which kernels a piece takes: its images, and the windows over its band, the inputs that they reach and
// those that the piece owns, each with how far it begins behind the first window.
struct ShapeKey {
  int64_t images, outputs, reached, reached_from, owned, owned_from;

  ShapeKey(const Axis& a, int64_t of_images, const Band& b)
      : images(of_images),
        outputs(b.outputs.size()),
        reached(b.reach.size()),
        reached_from(b.reach.begin - a.start(b.outputs.begin)),
        owned(b.inputs.size()),
        owned_from(b.inputs.begin - a.start(b.outputs.begin)) {}
  bool operator==(const ShapeKey&) const = default;
};

// The kernels of one shape of piece.
struct Shape {
  ShapeKey key;
  Problem forward;
  std::unique_ptr<Problem> backward;  // null: the same
  Kernel find, use;
};

struct Layout {
  Cut cut;
  std::list<Shape> shapes;
  int64_t find_bytes = 0, use_bytes = 0, y_bytes = 0, route_bytes = 0;  // of scratch

  int64_t bytes() const { return find_bytes + use_bytes + y_bytes + route_bytes; }

  const Shape* Find(const ShapeKey& wanted) const {
    for (const Shape& s : shapes) {
      if (s.key == wanted) return &s;
    }
    return nullptr;
  }
};

int64_t Round64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Adds the shape of `images` images over band `b`, if it is new. Null, or why it cannot be done.
const char* AddShape(const Problem& p, const Host& host, int64_t images, const Band& b, Layout* layout) {
  if (!b.covered()) return nullptr;
  const Cut& c = layout->cut;
  const Axis& a = p.axis[c.outer];
  const ShapeKey key(a, images, b);
  if (layout->Find(key)) return nullptr;
  Shape& s = layout->shapes.emplace_back(Shape{key, p, nullptr, {}, {}});
  (c.last ? s.forward.batch : s.forward.channels) = images;
  if (!c.last) s.forward.batch = 1;
  if (c.bands > 1) {
    s.backward = std::make_unique<Problem>(s.forward);
    s.forward.axis[c.outer] = a.Part(b.outputs, b.reach);
    s.backward->axis[c.outer] = a.Part(b.outputs, b.inputs);
    SetRouteLines(s.backward.get());
  }
  SetRouteLines(&s.forward);
  Host one{host.simd};  // thread for a piece
  one.whole_bytes = p.x_bytes();
  const Problem& backward = s.backward ? *s.backward : s.forward;
  if (host.same == &p && host.threads == 1 && c.groups * c.bands == 1) {  // the piece is the problem
    s.forward = p;
    s.find = *host.forward_routes;
    s.use = *host.backward;
  } else if (!MakeFirst(ForwardAlgorithms(), s.forward, POOLGRAD_OP_FORWARD_ROUTES, one, &s.find)) {
    return "no vector kernel finds its routes";
  } else if (!MakeFirst(BackwardAlgorithms(), backward, POOLGRAD_OP_BACKWARD, one, &s.use)) {
    return "no vector kernel uses its routes";
  }
  layout->find_bytes = std::max(layout->find_bytes, Round64(s.find.scratch_bytes));
  layout->use_bytes = std::max(layout->use_bytes, Round64(s.use.scratch_bytes));
  layout->y_bytes = std::max(layout->y_bytes, Round64(s.forward.y_bytes()));
  layout->route_bytes = std::max(layout->route_bytes, Round64(s.forward.routes.bytes()));
  return nullptr;
}

// Bands that no border of the axis clips have one shape (a band is a multiple of the stride): one of them stands for
// all, so that a plan's cost does not grow with its tensors.
const char* AddShapes(const Problem& p, const Host& host, Layout* layout) {
  const Cut& c = layout->cut;
  const Axis& a = p.axis[c.outer];
  const auto inner = [&](const Band& b) {
    return b.inputs.size() == c.band && b.covered() && b.outputs.begin > 0 && b.outputs.end < a.out &&
           a.start(b.outputs.begin) >= 0 && b.reach.end < a.in;
  };
  const int64_t images = std::min(c.group, c.images);
  int64_t band = c.bands == 1 ? 0 : std::max<int64_t>(0, a.start(0)) / c.band;  // before it there are no windows
  bool skipped = false;
  for (; band < c.bands; ++band) {
    const Band b = BandOf(a, c, band);
    if (!b.covered()) break;
    if (const char* reason = AddShape(p, host, images, b, layout)) return reason;
    if (!skipped && inner(b)) {
      // The last inputs that are inner: their windows end before the last output's and before the end of the axis.
      const int64_t end = std::min(a.start(a.out - 1), a.in - a.extent() - a.stride);
      band = std::max(band, end / c.band - 2);
      skipped = true;
    }
  }
  return c.images % c.group == 0 ? nullptr : AddShape(p, host, c.images % c.group, BandOf(a, c, 0), layout);
}

void Run(const Problem& p, const Args& args, int64_t begin, int64_t end, std::byte* scratch) {
  const Layout& layout = *static_cast<const Layout*>(args.layout);
  const Cut& c = layout.cut;
  const Axis& a = p.axis[c.outer];
  std::byte* const use_scratch = scratch + layout.find_bytes;
  std::byte* const y = use_scratch + layout.use_bytes;
  uint8_t* const routes = reinterpret_cast<uint8_t*>(y + layout.y_bytes);
  const int64_t inner = c.last ? p.channels : 1;
  const int64_t size = SizeOf(p.dtype);
  const auto place = [&](const void* base, int64_t elements) {
    return static_cast<const std::byte*>(base) + elements * size;
  };
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t image = unit / c.bands * c.group;
    const Band b = BandOf(a, c, unit % c.bands);
    std::byte* dx =
        static_cast<std::byte*>(args.result) + (image * p.in_plane() * inner + b.inputs.begin * c.x_step) * size;
    if (!b.covered()) {
      std::memset(dx, 0, static_cast<size_t>(b.inputs.size() * c.x_step * size));
      continue;
    }
    const Shape& s = *layout.Find(ShapeKey(a, std::min(c.group, c.images - image), b));
    Args find;
    find.source = place(args.x, image * p.in_plane() * inner + b.reach.begin * c.x_step);
    find.routes = routes;
    find.result = y;
    s.find.Run(s.forward, find, 0, s.find.units, scratch);
    Args use;
    use.source = place(args.source, image * p.out_plane() * inner + b.outputs.begin * c.y_step);
    use.routes = routes;
    use.result = dx;
    s.use.Run(s.backward ? *s.backward : s.forward, use, 0, s.use.units, use_scratch);
  }
}

}  // namespace

const char* MakeBackwardX(const Problem& p, poolgrad_op, const Host& host, Kernel* kernel) {
  auto layout = std::make_shared<Layout>();
  layout->cut = CutOf(p, host.threads);
  if (const char* reason = AddShapes(p, host, layout.get())) return reason;
  kernel->run = Run;
  kernel->units = layout->cut.groups * layout->cut.bands;
  kernel->scratch_bytes = layout->bytes();
  kernel->layout = std::move(layout);
  return nullptr;
}

}  // namespace poolgrad
