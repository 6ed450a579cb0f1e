#include "plan/indices.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "spec/walk.h"

namespace poolgrad {
namespace {

using Shape = std::array<int64_t, 3>;

Shape InShape(const Problem& p) { return {p.axis[0].in, p.axis[1].in, p.axis[2].in}; }

int64_t Product(const Shape& s) { return s[0] * s[1] * s[2]; }

// A place of a tensor whose spatial shape is `s`, as a framework's index.
int64_t NumberOf(const Problem& p, const Shape& s, const Place& q, poolgrad_numbering numbering) {
  const int64_t plane = (q.at[0] * s[1] + q.at[1]) * s[2] + q.at[2];
  switch (numbering) {
    case POOLGRAD_INDEX_TORCH:
      return plane;
    case POOLGRAD_INDEX_TENSORFLOW:
      return plane * p.channels + q.c;
    case POOLGRAD_INDEX_TENSORFLOW_BATCH:
      return (q.n * Product(s) + plane) * p.channels + q.c;
    case POOLGRAD_INDEX_ONNX:
      return (q.n * p.channels + q.c) * Product(s) + plane;
    case POOLGRAD_INDEX_ONNX_COLUMN:
      return (q.n * p.channels + q.c) * Product(s) + (q.at[2] * s[1] + q.at[1]) * s[0] + q.at[0];
  }
  return -1;
}

// The other way: the place that `index` names, if it lies in batch o.n and channel o.c.
bool PlaceAt(const Problem& p, const Shape& s, int64_t index, const Place& o, poolgrad_numbering numbering, Place* q) {
  const int64_t plane = Product(s);
  if (index < 0 || plane == 0) return false;
  int64_t n = o.n;
  int64_t c = o.c;
  switch (numbering) {
    case POOLGRAD_INDEX_TORCH:
      break;
    case POOLGRAD_INDEX_TENSORFLOW:
    case POOLGRAD_INDEX_TENSORFLOW_BATCH:
      c = index % p.channels;
      index /= p.channels;
      if (numbering == POOLGRAD_INDEX_TENSORFLOW) break;
      n = index / plane;
      index %= plane;
      break;
    case POOLGRAD_INDEX_ONNX:
    case POOLGRAD_INDEX_ONNX_COLUMN:
      n = index / plane / p.channels;
      c = index / plane % p.channels;
      index %= plane;
      break;
  }
  if (n != o.n || c != o.c || index >= plane) return false;
  *q = {n, c, {index / s[2] / s[1], index / s[2] % s[1], index % s[2]}};
  if (numbering == POOLGRAD_INDEX_ONNX_COLUMN) *q = {n, c, {index % s[0], index / s[0] % s[1], index / s[0] / s[1]}};
  return true;
}

// Which tap of output o lands on input q; -1 when none does.
int64_t TapOn(const Problem& p, const Place& o, const Place& q) {
  int64_t tap = 0;
  for (int i = 0; i < 3; ++i) {
    const int64_t k = p.axis[i].tap_at(o.at[i], q.at[i]);
    if (k < 0) return -1;
    tap = tap * p.axis[i].kernel + k;
  }
  return tap;
}

// Where that tap of output o lies in x; -1 when it is none, or lies outside.
int64_t IndexOfTap(const Problem& p, const Place& o, int64_t tap) {
  if (tap >= p.taps()) return -1;
  Place i{o.n, o.c, {}};
  for (int a = 2; a >= 0; --a) {
    const Axis& axis = p.axis[a];
    const int64_t k = tap % axis.kernel;
    const Range valid = axis.valid_taps(o.at[a]);
    if (k < valid.begin || k >= valid.end) return -1;
    i.at[a] = axis.start(o.at[a]) + k * axis.dilation;
    tap /= axis.kernel;
  }
  return IndexOf<&Axis::in>(p, i);
}

bool HasNoTap(const Problem& p, const Place& o) {
  for (int a = 0; a < 3; ++a) {
    if (p.axis[a].valid_taps(o.at[a]).size() == 0) return true;
  }
  return false;
}

}  // namespace

// A framework's index is linear in the place, and a line's outputs differ in one coordinate: each costs its tap and a
// few additions. Where taps are few they are looked up, as divisions would take half of the time.
void RoutesToIndices(const Problem& p, const uint8_t* routes, poolgrad_numbering numbering, int64_t* indices,
                     Range outputs) {
  using Distance = std::array<int64_t, 3>;
  const Shape in = InShape(p);
  const auto step = [&](Place one) { return NumberOf(p, in, one, numbering); };
  const int64_t along_n = step({1, 0, {}});
  const int64_t along_c = step({0, 1, {}});
  const Distance along = {step({0, 0, {1, 0, 0}}), step({0, 0, {0, 1, 0}}), step({0, 0, {0, 0, 1}})};
  const auto distance = [&p](uint32_t tap) -> Distance {
    const auto rows = static_cast<uint32_t>(p.axis[1].kernel);
    const auto columns = static_cast<uint32_t>(p.axis[2].kernel);
    return {tap / columns / rows * p.axis[0].dilation, tap / columns % rows * p.axis[1].dilation,
            tap % columns * p.axis[2].dilation};
  };
  const RouteFormat format = p.routes;
  const int64_t taps = p.taps();
  std::array<Distance, 256> known;
  const bool few = taps <= static_cast<int64_t>(known.size());
  for (uint32_t tap = 0; few && tap < taps; ++tap) known[tap] = distance(tap);
  const bool last = p.channels_last();
  for (int64_t o = outputs.begin; o < outputs.end;) {
    const int64_t line = o / format.line;
    const int64_t end = std::min(outputs.end, (line + 1) * format.line);
    const uint8_t* codes = routes + LineOffset(format, line);
    Place q = PlaceOf<&Axis::out>(p, o);
    const auto reach = [&](int a) { return (p.axis[a].size(q.at[a]) - 1) * p.axis[a].dilation; };
    Distance most = {reach(0), reach(1), reach(2)};  // by table, windows may have fewer taps than the largest
    Distance start = {p.axis[0].start(q.at[0]), p.axis[1].start(q.at[1]), p.axis[2].start(q.at[2])};
    for (; o < end; ++o) {
      const uint32_t code = LoadCode(format, codes, o - line * format.line);
      if (!last) {
        start[2] = p.axis[2].start(q.at[2]);
        most[2] = reach(2);
        ++q.at[2];
      }
      int64_t number = -1;
      if (code < taps) {
        const Distance from = few ? known[code] : distance(code);
        const int64_t at[] = {start[0] + from[0], start[1] + from[1], start[2] + from[2]};
        if (at[0] >= 0 && at[0] < in[0] && at[1] >= 0 && at[1] < in[1] && at[2] >= 0 && at[2] < in[2] &&
            from[0] <= most[0] && from[1] <= most[1] && from[2] <= most[2]) {
          number = q.n * along_n + q.c * along_c + at[0] * along[0] + at[1] * along[1] + at[2] * along[2];
        }
      }
      indices[o] = number;
      q.c += last;
    }
  }
}

Status RoutesFromIndices(const Problem& p, const int64_t* indices, poolgrad_numbering numbering, uint8_t* routes) {
  const Shape shape = InShape(p);
  const auto tap_of = [&](int64_t o) -> int64_t {
    const Place place = PlaceOf<&Axis::out>(p, o);
    Place q;
    return PlaceAt(p, shape, indices[o], place, numbering, &q) ? TapOn(p, place, q) : -1;
  };
  // In parts no code may be set aside: all ones may be a tap, and means no route only where a window has none.
  const bool sets_aside = p.routes.may_be_none && p.taps() <= p.routes.none();
  const auto may_be_none = [&](int64_t o) {
    return sets_aside || (p.routes.may_be_none && HasNoTap(p, PlaceOf<&Axis::out>(p, o)));
  };
  for (int64_t o = 0; o < p.y_elements(); ++o) {  // first everything is checked, so that an error writes nothing
    if (indices[o] == -1 && may_be_none(o)) continue;
    if (tap_of(o) < 0) {
      return Status::Invalid("indices[" + std::to_string(o) + "] is " + std::to_string(indices[o]) +
                             "; it must name an input inside the window of its own output" +
                             (may_be_none(o) ? ", or be -1 for no route" : ""));
    }
  }
  for (int64_t o = 0; o < p.y_elements(); ++o) {
    const uint32_t code = indices[o] == -1 ? p.routes.none() : static_cast<uint32_t>(tap_of(o));
    StoreCode(p.routes, routes + LineOffset(p.routes, o / p.routes.line), o % p.routes.line, code);
  }
  return {};
}

#ifndef POOLGRAD_SMALL
namespace {

// Unpooling by torch's numbers, which are places of x's own plane: there is nothing to take apart. False, and nothing
// written, when one lies outside.
template <class T>
bool UnpoolPlanes(const Problem& p, const T* y, const int64_t* indices, T* x) {
  const int64_t plane = p.in_plane();
  for (int64_t o = 0; o < p.y_elements(); ++o) {
    if (indices[o] < -1 || indices[o] >= plane) return false;
  }
  std::fill_n(x, p.x_elements(), T{0});
  const int64_t beside = p.channels_last() ? p.channels : 1;  // planes whose elements alternate
  for (int64_t planes = 0, o = 0; o < p.y_elements(); ++planes) {
    T* to = x + planes * plane * beside;
    for (int64_t place = 0; place < p.out_plane(); ++place) {
      for (int64_t c = 0; c < beside; ++c, ++o) {
        if (indices[o] >= 0) to[indices[o] * beside + c] = y[o];
      }
    }
  }
  return true;
}

bool UnpoolPlanes(const Problem& p, const void* y, const int64_t* indices, void* x) {
  const auto as = [&](auto zero) {
    using T = decltype(zero);
    return UnpoolPlanes(p, static_cast<const T*>(y), indices, static_cast<T*>(x));
  };
  switch (SizeOf(p.dtype)) {
    case 1:
      return as(uint8_t{});
    case 2:
      return as(uint16_t{});
    case 4:
      return as(uint32_t{});
    default:
      return as(uint64_t{});
  }
}

}  // namespace
#endif

Status UnpoolIndices(const Problem& p, const void* y, const int64_t* indices, poolgrad_numbering numbering,
                     const int64_t* index_shape, void* x) {
  Shape shape = InShape(p);
  if (index_shape) {
    for (int i = 0; i < p.rank; ++i) {
      int64_t& size = shape[3 - p.rank + i];
      if (index_shape[i] < 1 || index_shape[i] > size) {
        return Status::Invalid("index_shape[" + std::to_string(i) + "] is " + std::to_string(index_shape[i]) +
                               "; it must be from 1 to the input's size there, " + std::to_string(size));
      }
      size = index_shape[i];
    }
  }
#ifndef POOLGRAD_SMALL
  if (numbering == POOLGRAD_INDEX_TORCH && shape == InShape(p) && UnpoolPlanes(p, y, indices, x)) return {};
#endif
  Place q;
  for (int64_t o = 0; o < p.y_elements(); ++o) {
    if (indices[o] == -1) continue;
    if (!PlaceAt(p, shape, indices[o], PlaceOf<&Axis::out>(p, o), numbering, &q)) {
      return Status::Invalid("indices[" + std::to_string(o) + "] is " + std::to_string(indices[o]) +
                             "; it must lie inside its own plane of the tensor, or be -1 for no route");
    }
  }
  const int64_t size = SizeOf(p.dtype);
  std::fill_n(static_cast<char*>(x), p.x_bytes(), 0);  // of no element, x may be null
  for (int64_t o = 0; o < p.y_elements(); ++o) {
    if (indices[o] == -1) continue;
    PlaceAt(p, shape, indices[o], PlaceOf<&Axis::out>(p, o), numbering, &q);
    std::memcpy(static_cast<char*>(x) + IndexOf<&Axis::in>(p, q) * size, static_cast<const char*>(y) + o * size,
                static_cast<size_t>(size));
  }
  return {};
}

int64_t Jacobian(const Problem& p, const uint8_t* routes, int64_t* row_start, int64_t* columns, double* values) {
  const bool average = p.kind == POOLGRAD_AVERAGE;
  int64_t entries = 0;
  for (int64_t o = 0; o < p.y_elements(); ++o) {
    const int64_t first = entries;
    if (row_start) row_start[o] = first;
    const Place place = PlaceOf<&Axis::out>(p, o);
    const uint8_t* line = average ? nullptr : routes + LineOffset(p.routes, o / p.routes.line);
    const int64_t at = average ? 0 : o % p.routes.line;
    const auto put = [&](int64_t index) {
      if (columns) columns[entries] = index;
      if (values) values[entries] = 1;
      ++entries;
    };
    if (average || p.routes.masks) {
      ForEachTap(p, place, [&](int64_t tap, int64_t index) {
        if (average || LoadMaskBit(p.routes, line, at, tap)) put(index);
      });
    } else if (const int64_t index = IndexOfTap(p, place, LoadCode(p.routes, line, at)); index >= 0) {
      put(index);
    }
    if (!values) continue;
    const int64_t count = average                         ? AverageCount(p, place.at[0], place.at[1], place.at[2])
                          : p.ties == POOLGRAD_TIES_SPLIT ? CountMaskBits(p.routes, line, at)
                                                          : 1;
    for (int64_t e = first; e < entries; ++e) values[e] /= static_cast<double>(count);
  }
  if (row_start) row_start[p.y_elements()] = entries;
  return entries;
}

}  // namespace poolgrad
