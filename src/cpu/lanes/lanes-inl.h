// Rows of the source on their way into lanes, and rows of the result on their way out (layout.h).
//
// Staged, element e of a row or a few rows of every lane lies at e * block. What was staged is kept as long as there is
// room: rows that several windows see are transposed once.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu/lanes/layout.h"
#include "cpu/scratch.h"
#include "cpu/simd/transpose-inl.h"
#include "cpu/simd/types-inl.h"
#include "hwy/highway.h"
#include "spec/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace poolgrad::HWY_NAMESPACE {

// n elements from each of `from` on, lane by lane: element e of lane i goes to tile[e * lanes + i]. Vectors may read
// on. The hardware does not see so many streams coming: what is `ahead` elements further on is asked for.
template <class W>
HWY_NOINLINE void TransposeIn(const W* const* from, int64_t n, int64_t ahead, W* HWY_RESTRICT tile) {
  const hn::ScalableTag<W> d;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  for (int64_t e = 0; e < n; e += kLanes) {
    VecOf<W> v[kLanes];
    POOLGRAD_UNROLL for (int64_t i = 0; i < kLanes; ++i) Ask(from[i] + e, ahead);
    POOLGRAD_UNROLL for (int64_t i = 0; i < kLanes; ++i) v[i] = hn::LoadU(d, from[i] + e);
    TransposeVectors<W>(v);
    POOLGRAD_UNROLL for (int64_t i = 0; i < kLanes; ++i) hn::StoreU(v[i], d, tile + (e + i) * kLanes);
  }
}

// And back, size[i] elements to to[i], of which there are `used`.
template <class W>
HWY_NOINLINE void TransposeOut(const W* HWY_RESTRICT values, int64_t used, const int64_t* size, W* const* to) {
  const hn::ScalableTag<W> d;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  int64_t least = size[0], most = size[0];
  for (int64_t i = 1; i < used; ++i) least = std::min(least, size[i]), most = std::max(most, size[i]);
  if (used < kLanes) least = 0;
  for (int64_t at = 0; at < most; at += kLanes) {
    const int64_t e = most < kLanes ? 0 : std::min(at, most - kLanes);
    VecOf<W> v[kLanes];
    POOLGRAD_UNROLL for (int64_t i = 0; i < kLanes; ++i) v[i] = hn::LoadU(d, values + (e + i) * kLanes);
    TransposeVectors<W>(v);
    if (e + kLanes <= least) {
      POOLGRAD_UNROLL for (int64_t i = 0; i < kLanes; ++i) hn::StoreU(v[i], d, to[i] + e);
      continue;
    }
    HWY_ALIGN W all[kLanes * kLanes];
    POOLGRAD_UNROLL for (int64_t i = 0; i < kLanes; ++i) hn::Store(v[i], d, all + i * kLanes);
    for (int64_t i = 0; i < used; ++i)
      std::memcpy(to[i] + e, all + i * kLanes,
                  static_cast<size_t>(std::clamp<int64_t>(size[i] - e, 0, kLanes)) * sizeof(W));
  }
}

template <class T>
class Lanes {
 public:
  using W = Wide<T>;
  using V = VecOf<W>;
  static constexpr int64_t kLanes = hn::MaxLanes(hn::ScalableTag<W>());
  static constexpr bool kNarrow = !std::is_same_v<T, W>;

  Lanes(const Problem& problem, const LaneLayout& layout, const Args& args, ScratchTaker& take)
      : p(problem), l(layout), args_(args), take_(take) {}

  const Problem& p;
  const LaneLayout& l;

 private:
  const Args& args_;
  ScratchTaker& take_;
  const T* const source_ = static_cast<const T*>(args_.source);
  T* const result_ = static_cast<T*>(args_.result);

 public:
  SourcesAlong depth = {p.depth(), l.way, p.count_padding, take_}, height = {p.height(), l.way, p.count_padding, take_};
  const int64_t beside = p.channels_last() ? p.channels : 1;  // elements from place to place in memory
  const T* const source_end = source_ ? source_ + (l.way.back ? p.y_elements() : p.x_elements()) : nullptr;

  // Of the group.
  int64_t image[kLanes], part[kLanes];
  int64_t channel = 0, used = 0;  // the first channel, and how many lanes there are

  // Calls begin() for every group, row(a, b, number, r) for its rows of units [begin, end), (a, b) of the result, and
  // done(number, rows) for as many as leave together, where r counts from 0.
  template <class BeginGroup, class Row, class Done>
  void ForRows(int64_t begin, int64_t end, const BeginGroup& begin_group, const Row& row, const Done& done) {
    Start();
    const int64_t along = l.way.result(p.height());
    int64_t group = begin / l.rows;
    for (int64_t unit = begin; unit < end; ++group) {
      Begin(group);
      begin_group();
      int64_t number = unit - group * l.rows;
      int64_t a = number == 0 ? 0 : number / along, b = number - a * along;
      const int64_t past = std::min(end - unit + number, l.rows);
      unit += past - number;
      while (number < past) {
        const int64_t rows = std::min(l.rows_out, past - number);
        for (int64_t r = 0; r < rows; ++r, ++b) {
          if (b == along) b = 0, ++a;
          row(a, b, number + r, r);
        }
        done(number, rows);
        number += rows;
      }
    }
  }

  const Sources* sources() const { return sources_; }
  const T* SourceRow(int64_t of, int64_t d, int64_t row) const {
    return source_ + ((of * l.way.source(p.depth()) + d) * l.way.source(p.height()) + row) * l.source_row;
  }
  T* ResultRow(int64_t of, int64_t part_of, int64_t row) const {
    return result_ + (of * l.rows + row) * l.result_row + part_of * l.part * beside;
  }
  // Places of a lane's part.
  int64_t PartSize(int64_t part_of) const {
    return l.parts == 1 ? l.part : std::min(l.part, l.way.result(p.width()) - part_of * l.part);
  }

  // Calls add(tile, row_step, rows, sources, last) for the tiles of a row of the result, in row-major order of what it
  // is made of: `rows` rows of them, of which every place takes its `sources`. `staged(tile, d, row, rows, column,
  // columns)` is called for what is new.
  template <class Staged, class Add>
  HWY_INLINE void ForTiles(Sources at_depth, Sources at_height, const Staged& staged, const Add& add) {
    const int64_t step = l.way.step(p.height());
    const int64_t row_size = l.tile_columns * l.inner * l.block;
    for (int64_t i = 0; i < at_depth.count; ++i) {
      const int64_t d = at_depth.first + i * l.way.step(p.depth());
      for (int64_t j = 0; j < at_height.count;) {
        const int64_t h = at_height.first + j * step;
        const int64_t down = h < l.tile_rows ? 0 : h / l.tile_rows;
        const int64_t beyond = (down + 1) * l.tile_rows - 1 - h;
        const int64_t rows = std::min(at_height.count - j, (step == 1 ? beyond : beyond / step) + 1);
        for (int64_t across = 0; across < l.tiles_across; ++across) {
          const W* tile = Tile(d, down, across, staged) + (h - down * l.tile_rows) * row_size;
          const bool last = i + 1 == at_depth.count && j + rows == at_height.count && across + 1 == l.tiles_across;
          add(tile, step * row_size, rows, SourcesIn(across), last);
        }
        j += rows;
      }
    }
  }

  // Rows [row, row + rows) of the result, transposed back, from `values` on; a vector more may be read.
  HWY_NOINLINE void Leave(const W* values, int64_t row, int64_t rows) const {
    T* to[kLanes];
    int64_t size[kLanes];
    for (int64_t i = 0; i < used; ++i) {
      to[i] = ResultRow(image[i], part[i], row);
      size[i] = rows * PartSize(part[i]) * l.inner;
    }
    const hn::ScalableTag<W> d;
    if (rows * l.part * l.inner < kLanes / 2) {
      HWY_ALIGN T some[kLanes];
      for (int64_t e = 0; e < rows * l.part * l.inner; ++e) {
        StoreNarrow(d, hn::LoadU(d, values + e * kLanes), some);
        for (int64_t i = 0; i < used; ++i) {
          if (e < size[i]) to[i][e] = some[i];
        }
      }
    } else if constexpr (std::is_same_v<T, W>) {
      TransposeOut<W>(values, used, size, to);
    } else {
      W* wide[kLanes];
      for (int64_t i = 0; i < used; ++i) wide[i] = edges_ + i * EdgeSize();
      TransposeOut<W>(values, used, size, wide);
      for (int64_t i = 0; i < used; ++i) {
        for (int64_t e = 0; e < size[i]; e += kLanes) StoreSome(d, hn::LoadU(d, wide[i] + e), to[i] + e, size[i] - e);
      }
    }
  }

 private:
  // Where every place of a row finds its sources; once there is scratch.
  void Start() {
    depth.Start();
    height.Start();
    for (int64_t o = 0; o < l.part; ++o) {
      const Sources at = l.way.Of(l.width, o);
      for (int64_t c = 0; c < l.inner; ++c) sources_[o * l.inner + c] = {at.first * l.inner + c, at.count};
    }
  }

  void Begin(int64_t group) {
    std::fill(kept_, kept_ + l.slots, int64_t{-1});
    if (l.channels) {
      channel = group % l.blocks * l.block;
      used = std::min(l.block, beside - channel);
      group /= l.blocks;
      std::fill(image, image + kLanes, group / l.parts);
      std::fill(part, part + kLanes, group % l.parts);
      return;
    }
    const int64_t all = l.images * l.parts;
    used = std::min(kLanes, all - group * kLanes);
    const int64_t last = all - 1;
    if (l.parts == 1) {
      for (int64_t i = 0; i < kLanes; ++i) image[i] = std::min(group * kLanes + i, last), part[i] = 0;
      return;
    }
    for (int64_t i = 0; i < kLanes; ++i) {
      image[i] = std::min(group * kLanes + i, last) / l.parts;
      part[i] = std::min(group * kLanes + i, last) - image[i] * l.parts;
    }
  }

  int64_t SlotSize() const { return l.slot() + kLanes * l.block; }
  // A lane's part of a tile, or of the result, with room for vectors to read on.
  int64_t EdgeSize() const {
    return std::max(l.tile_rows * l.tile_columns, kNarrow ? l.rows_out * l.part : 0) * l.inner + kLanes;
  }

  const Sources* SourcesIn(int64_t across) {
    if (l.tiles_across == 1) return sources_;
    const Range in = {across * l.tile_columns * l.inner, (across + 1) * l.tile_columns * l.inner};
    const int64_t step = l.way.step(p.width()) * l.inner, n = l.part * l.inner;
    for (int64_t i = 0; i < n; ++i) {
      const auto [first, count] = sources_[i];
      int64_t begin = 0, end = count;  // divided only where the tile's border is between them
      const int64_t last = first + (count - 1) * step;
      if (first >= in.end || last < in.begin) {
        end = 0;
      } else {
        if (first < in.begin) begin = CeilDiv(in.begin - first, step);
        if (last >= in.end) end = CeilDiv(in.end - first, step);
      }
      sources_[n + i] = {first + begin * step - in.begin, end - begin};
    }
    return sources_ + n;
  }

  template <class Staged>
  HWY_INLINE const W* Tile(int64_t d, int64_t down, int64_t across, const Staged& staged) {
    const int64_t id = (d * l.tiles_down + down) * l.tiles_across + across;
    const int64_t slot = id < l.slots ? id : id % l.slots;
    W* const tile = tiles_ + slot * SlotSize();
    if (kept_[slot] == id) return tile;
    kept_[slot] = id;
    const int64_t row = down * l.tile_rows, column = across * l.tile_columns;
    const int64_t rows = std::min(l.tile_rows, l.way.source(p.height()) - row);
    const int64_t columns = std::min(l.tile_columns, l.places - column);
    if (l.channels) {
      StageChannels(d, row, rows, column, columns, tile);
    } else {
      StageRows(d, row, rows, column, columns, tile);
    }
    staged(tile, d, row, rows, column, columns);
    return tile;
  }

  // The place in its row that a column of a part is.
  int64_t PlaceOf(int64_t part_of, int64_t column) const { return l.part_origin + part_of * l.part_step + column; }

  HWY_NOINLINE void StageRows(int64_t d, int64_t row, int64_t rows, int64_t column, int64_t columns, W* tile) {
    const W* ready[kLanes];
    const hn::ScalableTag<W> dw;
    const int64_t n = rows * columns * l.inner;  // of several rows only where these are whole
    const int64_t width = l.way.source(p.width());
    const int64_t plane = l.source_row * l.way.source(p.height()) * l.way.source(p.depth());
    const int64_t ahead = n == plane ? kLanes * plane : n;  // the next tile
    const T* const first = SourceRow(0, d, row);
    const T* const safe = source_end - n - kLanes;
    for (int64_t i = 0; i < kLanes; ++i) {
      const int64_t place = l.parts == 1 ? column : PlaceOf(part[i], column);
      const T* from = first + image[i] * plane + place * l.inner;
      const bool whole = l.parts == 1 || (place >= 0 && place + columns <= width);
      W* const edge = edges_ + i * EdgeSize();
      if constexpr (kNarrow) {
        ready[i] = edge;
      } else {
        ready[i] = from <= safe && whole ? from : edge;
        if (ready[i] == from) continue;
      }
      Range inside = {0, n};  // and zeros around it
      if (!whole) {
        const int64_t begin = std::clamp<int64_t>(-place, 0, columns);
        inside = {begin * l.inner, std::clamp(width - place, begin, columns) * l.inner};
      }
      for (int64_t e = inside.begin; e < inside.end; e += kLanes) {
        Ask(from + e, ahead);
        hn::StoreU(LoadSome(dw, from + e, source_end - from - e), dw, edge + e);  // it has room for a vector
      }
      std::fill(edge, edge + inside.begin, W{0});
      std::fill(edge + inside.end, edge + n, W{0});
    }
    TransposeIn<W>(ready, n, kNarrow ? 0 : ahead, tile);
  }

  HWY_NOINLINE void StageChannels(int64_t d, int64_t row, int64_t rows, int64_t column, int64_t columns,
                                  W* tile) const {
    const hn::ScalableTag<W> dw;
    const int64_t width = l.way.source(p.width());
    for (int64_t r = 0; r < rows; ++r) {
      const T* from = SourceRow(image[0], d, row + r) + channel;
      for (int64_t c = 0; c < columns; ++c, tile += l.block) {
        const int64_t place = PlaceOf(part[0], column + c);
        const bool inside = place >= 0 && place < width;
        for (int64_t i = 0; i < used; i += kLanes) {
          const T* at = from + place * beside + i;
          hn::StoreU(inside ? LoadSome(dw, at, source_end - at) : hn::Zero(dw), dw, tile + i);
        }
      }
    }
  }

  W* const tiles_ = take_.Take<W>(l.slots * SlotSize());
  int64_t* const kept_ = take_.Take<int64_t>(l.slots);  // which tile is in a slot
  // Lanes' rows as they are transposed, where they are not so in memory.
  W* const edges_ = take_.Take<W>(l.channels ? 0 : kLanes * EdgeSize());
  // Of every element of a row; and of those, what a tile of columns has.
  Sources* const sources_ = take_.Take<Sources>((l.tiles_across > 1 ? 2 : 1) * l.part * l.inner);
};

}  // namespace poolgrad::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
