// A problem split in space: ranks simulated in one process through the C ABI must give the bits of the whole, outputs,
// routes and dx alike, for any window and any cuts: uneven, empty, with halos wider than a neighbour.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "poolgrad/poolgrad.h"
#include "support/random_problem.h"

namespace poolgrad {
namespace {

using oracle::XorShift;
using Bytes = std::vector<uint8_t>;

struct Box {
  int64_t begin[3] = {0, 0, 0}, end[3] = {1, 1, 1};
  int64_t size(int i) const { return end[i] - begin[i]; }
  bool empty() const { return size(0) <= 0 || size(1) <= 0 || size(2) <= 0; }
};

// A tensor over a box of space, with its batch and channels; `element` bytes each.
struct Tensor {
  Box box;
  int64_t batch, channels, element;
  bool last;
  Bytes bytes;

  Tensor(const Box& b, const poolgrad_problem& p, int64_t size)
      : box(b),
        batch(p.batch),
        channels(p.channels),
        element(size),
        last(p.layout == POOLGRAD_CHANNELS_LAST),
        bytes(box.empty() ? 0 : static_cast<size_t>(batch * channels * b.size(0) * b.size(1) * b.size(2) * size),
              0xEE) {}

  uint8_t* At(int64_t n, int64_t c, int64_t d, int64_t h, int64_t w) {
    const int64_t place = ((d - box.begin[0]) * box.size(1) + h - box.begin[1]) * box.size(2) + w - box.begin[2];
    const int64_t plane = box.size(0) * box.size(1) * box.size(2);
    return bytes.data() + (last ? (n * plane + place) * channels + c : (n * channels + c) * plane + place) * element;
  }

  // Takes over what `other` has of `part`.
  void Copy(Tensor& other, const Box& part) {
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t c = 0; c < channels; ++c)
        for (int64_t d = part.begin[0]; d < part.end[0]; ++d)
          for (int64_t h = part.begin[1]; h < part.end[1]; ++h)
            for (int64_t w = part.begin[2]; w < part.end[2]; ++w)
              std::memcpy(At(n, c, d, h, w), other.At(n, c, d, h, w), static_cast<size_t>(element));
  }
};

struct Planned {
  explicit Planned(const poolgrad_problem& problem) {  // from its text, which says all of it
    char text[1024];
    poolgrad_problem parsed;
    EXPECT_EQ(poolgrad_problem_format(&problem, text, sizeof text, nullptr), POOLGRAD_OK) << poolgrad_last_error();
    EXPECT_EQ(poolgrad_problem_parse(text, &parsed), POOLGRAD_OK) << poolgrad_last_error();
    const poolgrad_status status = poolgrad_plan_create(&parsed, nullptr, &plan);
    EXPECT_EQ(status, POOLGRAD_OK) << poolgrad_last_error();
    info.struct_size = sizeof info;
    if (plan) {
      EXPECT_EQ(poolgrad_plan_info(plan, &info), POOLGRAD_OK);
    }
  }
  ~Planned() { poolgrad_plan_destroy(plan); }
  Planned(const Planned&) = delete;
  Planned& operator=(const Planned&) = delete;
  poolgrad_plan* plan = nullptr;
  poolgrad_info info = {};
};

Box BoxOf(int rank, const int64_t* begin, const int64_t* end) {
  Box box;
  for (int i = 0; i < rank; ++i) {
    box.begin[3 - rank + i] = begin[i];
    box.end[3 - rank + i] = end[i];
  }
  return box;
}

bool IsGradient(const poolgrad_problem& p) { return p.dtype <= POOLGRAD_BF16; }

// A NaN that a sum makes has no promised bits.
std::string Difference(const poolgrad_problem& p, const Bytes& a, const Bytes& b, bool sums) {
  if (a.size() != b.size()) return "sizes differ";
  const auto dtype = static_cast<poolgrad_dtype>(p.dtype);
  return VisitDtype(dtype, [&](auto zero) -> std::string {
    using T = decltype(zero);
    for (size_t i = 0; i < a.size(); i += sizeof(T)) {
      T u, v;
      std::memcpy(&u, a.data() + i, sizeof(T));
      std::memcpy(&v, b.data() + i, sizeof(T));
      if (std::memcmp(&u, &v, sizeof(T)) == 0) continue;
      const auto wu = Widen(u), wv = Widen(v);
      if (sums && wu != wu && wv != wv) continue;
      return "element " + std::to_string(i / sizeof(T));
    }
    return "";
  });
}

class Split {
 public:
  Split(const poolgrad_problem& whole, XorShift& random) : whole_(whole), random_(random) {
    for (int i = 0; i < whole.rank; ++i) {
      parts_[i] = random.Between(1, whole.rank == 1 ? 8 : whole.rank == 2 ? 3 : 2);
      for (int64_t k = 0; k <= parts_[i]; ++k)
        cuts_[i].push_back(k == 0 ? 0 : k == parts_[i] ? whole.in[i] : random.Between(0, whole.in[i]));
      std::sort(cuts_[i].begin(), cuts_[i].end());
      pointers_[i] = cuts_[i].data();
    }
  }

  template <class Visit>
  void ForEachRank(const Visit& visit) {
    int64_t at[3];
    for (at[0] = 0; at[0] < parts_[0]; ++at[0])
      for (at[1] = 0; at[1] < (whole_.rank > 1 ? parts_[1] : 1); ++at[1])
        for (at[2] = 0; at[2] < (whole_.rank > 2 ? parts_[2] : 1); ++at[2]) visit(at);
  }

  poolgrad_shard Shard(const int64_t* at, poolgrad_problem* forward, poolgrad_problem* backward) {
    poolgrad_shard shard = {};
    shard.struct_size = sizeof shard;
    EXPECT_EQ(poolgrad_shard_of(&whole_, parts_, pointers_, at, &shard, forward, backward), POOLGRAD_OK)
        << poolgrad_last_error();
    return shard;
  }

  // Fills `local` from the ranks that own it, each handing over what poolgrad_shard_halo says.
  void Exchange(const int64_t* to, poolgrad_halo halo, Tensor& all, Tensor& local) {
    int64_t filled = 0;
    ForEachRank([&](const int64_t* from) {
      int64_t begin[3], end[3];
      ASSERT_EQ(poolgrad_shard_halo(&whole_, parts_, pointers_, from, to, halo, begin, end), POOLGRAD_OK)
          << poolgrad_last_error();
      const Box box = BoxOf(whole_.rank, begin, end);
      if (box.empty()) return;
      local.Copy(all, box);
      filled += box.size(0) * box.size(1) * box.size(2);
    });
    ASSERT_EQ(filled, local.box.size(0) * local.box.size(1) * local.box.size(2)) << "every place has one owner";
  }

  void Check() {
    poolgrad_problem bytes_kept = whole_;  // as shards keep routes: whole bytes
    const Planned once(whole_);
    if (!once.plan) return;
    const bool average = whole_.kind == POOLGRAD_AVERAGE;
    if (!average && !once.info.route_masks) bytes_kept.route_bits = std::max(8, once.info.route_bits);
    const Planned one(bytes_kept);
    const int64_t zeros[3] = {0, 0, 0};
    const Box in = BoxOf(whole_.rank, zeros, whole_.in), out = BoxOf(whole_.rank, zeros, one.info.out);
    const int64_t element = SizeOf(static_cast<poolgrad_dtype>(whole_.dtype)),
                  code = average ? 0 : one.info.route_bits / 8;
    Tensor x(in, whole_, element), dx(in, whole_, element), y(out, whole_, element), dy(out, whole_, element),
        routes(out, whole_, code);
    x.bytes = oracle::RandomValues(random_.Next(), static_cast<poolgrad_dtype>(whole_.dtype), one.info.x_elements);
    dy.bytes = oracle::RandomGradients(random_.Next(), static_cast<poolgrad_dtype>(whole_.dtype), one.info.y_elements);
    ASSERT_EQ(
        poolgrad_forward(one.plan, x.bytes.data(), y.bytes.data(), average ? nullptr : routes.bytes.data(), nullptr),
        POOLGRAD_OK);
    if (IsGradient(whole_)) {
      ASSERT_EQ(poolgrad_backward(one.plan, dy.bytes.data(), average ? nullptr : routes.bytes.data(), dx.bytes.data(),
                                  nullptr),
                POOLGRAD_OK);
    }

    Tensor got_y(out, whole_, element), got_routes(out, whole_, code), got_dx(in, whole_, element);
    ForEachRank([&](const int64_t* at) {
      poolgrad_problem forward;
      const poolgrad_shard s = Shard(at, &forward, nullptr);
      const Box owned = BoxOf(whole_.rank, s.out_begin, s.out_end);
      if (!s.has_forward) {
        EXPECT_EQ(std::memcmp(&forward, &whole_, sizeof whole_), 0) << "where it has none, it is the whole's";
        return;
      }
      Tensor local(BoxOf(whole_.rank, s.read_begin, s.read_end), whole_, element);
      Exchange(at, POOLGRAD_HALO_X, x, local);
      const Planned plan(forward);
      ASSERT_NE(plan.plan, nullptr);
      for (int i = 0; i < whole_.rank; ++i) ASSERT_EQ(plan.info.out[i], s.out_end[i] - s.out_begin[i]);
      Tensor part_y(owned, whole_, element), part_routes(owned, whole_, code);
      ASSERT_EQ(poolgrad_forward(plan.plan, local.bytes.data(), part_y.bytes.data(),
                                 average ? nullptr : part_routes.bytes.data(), nullptr),
                POOLGRAD_OK)
          << poolgrad_last_error();
      got_y.Copy(part_y, owned);
      if (!average) got_routes.Copy(part_routes, owned);
    });
    EXPECT_EQ(Difference(whole_, y.bytes, got_y.bytes, average), "");
    EXPECT_EQ(routes.bytes, got_routes.bytes);
    if (!IsGradient(whole_)) return;
    ForEachRank([&](const int64_t* at) {
      poolgrad_problem backward;
      const poolgrad_shard s = Shard(at, nullptr, &backward);
      const Box mine = BoxOf(whole_.rank, s.in_begin, s.in_end);
      if (!s.has_backward) {
        EXPECT_EQ(std::memcmp(&backward, &whole_, sizeof whole_), 0) << "where it has none, it is the whole's";
      }
      if (mine.empty()) return;
      Tensor part_dx(mine, whole_, element);
      if (!s.has_backward) {
        std::fill(part_dx.bytes.begin(), part_dx.bytes.end(), uint8_t{0});
      } else {
        const Box over = BoxOf(whole_.rank, s.over_begin, s.over_end);
        Tensor local_dy(over, whole_, element), local_routes(over, whole_, code);
        Exchange(at, POOLGRAD_HALO_DY, dy, local_dy);
        if (!average) Exchange(at, POOLGRAD_HALO_DY, got_routes, local_routes);
        const Planned plan(backward);
        ASSERT_NE(plan.plan, nullptr);
        ASSERT_EQ(poolgrad_backward(plan.plan, local_dy.bytes.data(), average ? nullptr : local_routes.bytes.data(),
                                    part_dx.bytes.data(), nullptr),
                  POOLGRAD_OK)
            << poolgrad_last_error();
      }
      got_dx.Copy(part_dx, mine);
    });
    EXPECT_EQ(Difference(whole_, dx.bytes, got_dx.bytes, true), "");
  }

 private:
  poolgrad_problem whole_;
  XorShift& random_;
  int64_t parts_[3] = {1, 1, 1};
  std::vector<int64_t> cuts_[3];
  const int64_t* pointers_[3] = {};
};

TEST(Shard, AnyCutsOfAnyProblemGiveTheBitsOfOneProcess) {
  int checked = 0;
  for (uint64_t seed = 1; checked < 400; ++seed) {
    XorShift draw(seed);
    const poolgrad_problem p = oracle::DrawProblem(draw);
    poolgrad_plan* plan = nullptr;
    if (poolgrad_plan_create(&p, nullptr, &plan) != POOLGRAD_OK) continue;
    poolgrad_info info = {};
    info.struct_size = sizeof info;
    poolgrad_plan_info(plan, &info);
    poolgrad_plan_destroy(plan);
    if (info.x_elements == 0 || info.y_elements == 0 || p.outputs[0] || p.outputs[1] || p.outputs[2]) continue;
    if (p.whole_in[0] || p.whole_in[1] || p.whole_in[2] || p.bias) continue;  // a part already, or refused
    size_t needed = 0;
    char text[512];
    poolgrad_problem_format(&p, text, sizeof text, &needed);
    SCOPED_TRACE(std::string(text) + " seed " + std::to_string(seed));
    XorShift random(seed);
    Split(p, random).Check();
    if (testing::Test::HasFailure()) return;
    ++checked;
  }
}

TEST(Shard, BadCutsAreNamed) {
  poolgrad_problem p;
  ASSERT_EQ(poolgrad_problem_parse("max f32 nchw 1x1x8x8 k3 s1 p1", &p), POOLGRAD_OK);
  const int64_t parts[2] = {2, 1}, at[2] = {0, 0};
  const int64_t falls[] = {0, 9, 8}, whole[] = {0, 8}, short_one[] = {0, 4, 7};
  const int64_t* cuts[2] = {falls, whole};
  poolgrad_shard shard = {};
  EXPECT_EQ(poolgrad_shard_of(&p, parts, cuts, at, &shard, nullptr, nullptr), POOLGRAD_INVALID_ARGUMENT);
  EXPECT_STREQ(poolgrad_last_error(), "shard.struct_size is 0; it must be the sizeof of its struct, at least 208");
  shard.struct_size = sizeof shard;
  EXPECT_EQ(poolgrad_shard_of(&p, parts, cuts, at, &shard, nullptr, nullptr), POOLGRAD_INVALID_ARGUMENT);
  EXPECT_STREQ(poolgrad_last_error(), "cuts[0][2] is 8; cuts never fall, and the one before is 9");
  cuts[0] = short_one;
  EXPECT_EQ(poolgrad_shard_of(&p, parts, cuts, at, &shard, nullptr, nullptr), POOLGRAD_INVALID_ARGUMENT);
  EXPECT_STREQ(poolgrad_last_error(), "cuts[0] goes from 0 to 7; it must go from 0 to the axis' size, 8");
  EXPECT_EQ(poolgrad_shard_of(&p, nullptr, cuts, at, &shard, nullptr, nullptr), POOLGRAD_INVALID_ARGUMENT);
}

TEST(Shard, WindowsByTableAreNotSplitAlikeOrNot) {
  for (const char* text :
       {"max f32 ncw 1x1x8 adaptive=3", "max f32 ncw 1x1x8 adaptive=4", "avg f32 ncw 1x1x8 starts=0,2,4 k3"}) {
    poolgrad_problem p;
    ASSERT_EQ(poolgrad_problem_parse(text, &p), POOLGRAD_OK);
    const int64_t parts[] = {2}, at[] = {0}, halves[] = {0, 4, 8};
    const int64_t* cuts[] = {halves};
    poolgrad_shard shard = {};
    shard.struct_size = sizeof shard;
    EXPECT_EQ(poolgrad_shard_of(&p, parts, cuts, at, &shard, nullptr, nullptr), POOLGRAD_UNSUPPORTED) << text;
    EXPECT_STREQ(poolgrad_last_error(), "axis 0 has windows by table; only regular windows are split");
  }
}

// A caller that was compiled with other sizes: nothing is written beyond its structs.
TEST(Shard, StructsAreAsLargeAsTheirCallersAre) {
  struct {
    poolgrad_problem problem;
    uint64_t more[2] = {0, 0};
  } whole, forward;
  ASSERT_EQ(poolgrad_problem_parse("max f32 nchw 1x1x8x8 k3 s1 p1", &whole.problem), POOLGRAD_OK);
  const int64_t parts[2] = {2, 1}, at[2] = {0, 0}, halves[] = {0, 4, 8}, all[] = {0, 8};
  const int64_t* cuts[2] = {halves, all};
  poolgrad_shard shard = {};
  shard.struct_size = sizeof shard;
  whole.problem.struct_size = sizeof whole;  // a newer caller's
  forward.more[0] = forward.more[1] = 7;
  ASSERT_EQ(poolgrad_shard_of(&whole.problem, parts, cuts, at, &shard, &forward.problem, nullptr), POOLGRAD_OK);
  EXPECT_EQ(forward.problem.struct_size, sizeof forward);
  EXPECT_EQ(forward.more[1], 0u);
  EXPECT_EQ(forward.problem.whole_in[0], 8);
  whole.problem.struct_size = sizeof whole.problem;
  forward.more[0] = 7;
  ASSERT_EQ(poolgrad_shard_of(&whole.problem, parts, cuts, at, &shard, &forward.problem, nullptr), POOLGRAD_OK);
  EXPECT_EQ(forward.more[0], 7u);
  whole.problem.struct_size = 232;  // version 1.0's, which has no words for a part
  EXPECT_EQ(poolgrad_shard_of(&whole.problem, parts, cuts, at, &shard, &forward.problem, nullptr),
            POOLGRAD_INVALID_ARGUMENT);
  EXPECT_EQ(poolgrad_shard_of(&whole.problem, parts, cuts, at, &shard, nullptr, nullptr), POOLGRAD_OK);
}

}  // namespace
}  // namespace poolgrad
