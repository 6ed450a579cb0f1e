// A second opinion: draws problems as text, pools each by pooling.h, which reads it from that text, and by the library
// through its C ABI, with whatever algorithm it chooses and with its reference; y, routes, indices, dx, tangents and
// what is unpooled must be the same to the bit (a sum that is NaN may be any NaN).
//
//   oracle SECONDS SEED      draws problems until the time is up
//   oracle "PROBLEM" SEED    runs one again, as a failure printed it
#include <chrono>
#include <random>

#include "poolgrad/poolgrad.h"
#include "pooling.h"

namespace {

using namespace poolgrad_oracle;
using Random = std::mt19937_64;

I Between(Random& r, I lo, I hi) { return lo + static_cast<I>(r() % static_cast<uint64_t>(hi - lo + 1)); }

void Compare(const Problem& p, const char* what, const std::vector<uint8_t>& ours, const std::vector<uint8_t>& theirs,
             bool sums) {
  const I size = SizeOf(p.type);
  for (I i = 0; i < static_cast<I>(ours.size()); i += size) {
    if (std::memcmp(ours.data() + i, theirs.data() + i, static_cast<size_t>(size)) == 0) continue;
    const double a = Value(p.type, ours.data() + i), b = Value(p.type, theirs.data() + i);
    if (sums && std::isnan(a) && std::isnan(b)) continue;
    Die("'" + p.line + "'" + p.seed + ": element " + std::to_string(i / size) + " of " + what + " is " +
        std::to_string(b) + "; the oracle has " + std::to_string(a));
  }
}

// Values where rules differ: small whole numbers that tie, zeros of either sign, NaN, infinities, and fractions whose
// sums round.
std::vector<uint8_t> Draw(Random& r, const std::string& type, size_t n, int specials) {
  std::vector<uint8_t> bytes(n * static_cast<size_t>(SizeOf(type)));
  for (size_t i = 0; i < n; ++i) {
    double value = static_cast<double>(Between(r, -3, 3));
    if (Between(r, 0, 2) == 0) value = static_cast<double>(Between(r, -100000, 100000)) / 997;
    if (specials && Between(r, 0, specials) == 0)
      value = std::vector<double>{std::nan(""), HUGE_VAL, -HUGE_VAL, -0.0,
                                  -HUGE_VAL}[static_cast<size_t>(Between(r, 0, 4))];
    uint64_t bits = 0;
    const auto narrow = static_cast<float>(value);
    if (type == "f64")
      std::memcpy(&bits, &value, 8);
    else if (type == "f32")
      std::memcpy(&bits, &narrow, 4);
    else if (IsWhole(type))
      bits = std::isfinite(value) ? static_cast<uint64_t>(static_cast<I>(value)) : r();
    else
      bits = NearestHalf(type, narrow);
    std::memcpy(bytes.data() + i * static_cast<size_t>(SizeOf(type)), &bits, static_cast<size_t>(SizeOf(type)));
  }
  return bytes;
}

// Whether the library took the problem.
bool Check(const std::string& line, uint64_t seed) {
  poolgrad_problem raw;
  poolgrad_plan* plan = nullptr;
  if (poolgrad_problem_parse(line.c_str(), &raw) != POOLGRAD_OK ||
      poolgrad_plan_create(&raw, nullptr, &plan) != POOLGRAD_OK)
    return false;
  poolgrad_plan_destroy(plan);
  Problem p = Read(line);
  p.seed = " of seed " + std::to_string(seed);
  Random r(seed);
  for (const char* algorithm : {static_cast<const char*>(nullptr), "reference"}) {
    poolgrad_plan_options options = {sizeof options, algorithm, 0, 0};
    poolgrad_info info = {};
    info.struct_size = sizeof info;
    if (poolgrad_plan_create(&raw, &options, &plan) != POOLGRAD_OK || poolgrad_plan_info(plan, &info) != POOLGRAD_OK)
      Die(poolgrad_last_error());
    Random values = r;
    const int specials =
        IsWhole(p.type) ? 0
                        : static_cast<int>(std::vector<I>{0, 3, 12, 60}[static_cast<size_t>(Between(values, 0, 3))]);
    const auto x = Draw(values, p.type, static_cast<size_t>(info.x_elements), specials);
    const auto dy = Draw(values, p.type, static_cast<size_t>(info.y_elements), Between(values, 0, 3) ? 0 : 20);
    const auto tx = Draw(values, p.type, static_cast<size_t>(info.x_elements), specials);
    const Pooled ours = Pool(p, x, tx, dy);
    const bool average = p.kind == "avg", whole = IsWhole(p.type);
    if (info.y_bytes != static_cast<I>(ours.y.size()))
      Die("'" + line + "'" + p.seed + ": y has " + std::to_string(info.y_bytes) + " bytes; the oracle has " +
          std::to_string(ours.y.size()));
    if (info.route_bytes != static_cast<I>(ours.routes.size()))
      Die("'" + line + "'" + p.seed + ": routes have " + std::to_string(info.route_bytes) + " bytes; the oracle has " +
          std::to_string(ours.routes.size()));
    Pooled theirs = ours;
    for (auto* array : {&theirs.y, &theirs.dx, &theirs.routes, &theirs.ty, &theirs.unpooled})
      std::fill(array->begin(), array->end(), uint8_t{0xA5});
    const auto must = [&](poolgrad_status status) {
      if (status != POOLGRAD_OK) Die("'" + line + "'" + p.seed + ": " + poolgrad_last_error());
    };
    must(poolgrad_forward(plan, x.data(), theirs.y.data(), average ? nullptr : theirs.routes.data(), nullptr));
    Compare(p, "y", ours.y, theirs.y, average);
    if (ours.routes != theirs.routes) Die("'" + line + "'" + p.seed + ": the routes differ from the oracle's");
    const bool sets = p.ties == "split" || p.ties == "all";
    if (!average) {
      must(poolgrad_gather(plan, tx.data(), theirs.routes.data(), theirs.ty.data(), nullptr));
      Compare(p, "ty", ours.ty, theirs.ty, sets);
      must(poolgrad_unpool(plan, dy.data(), theirs.routes.data(), theirs.unpooled.data(), nullptr));
      Compare(p, "dy, unpooled,", ours.unpooled, theirs.unpooled, false);
    }
    if (!average && !sets) {
      must(
          poolgrad_routes_to_indices(plan, theirs.routes.data(), POOLGRAD_INDEX_TORCH, theirs.indices.data(), nullptr));
      if (ours.indices != theirs.indices) Die("'" + line + "'" + p.seed + ": the indices differ from the oracle's");
    }
    if (!whole) {
      must(poolgrad_backward(plan, dy.data(), average ? nullptr : theirs.routes.data(), theirs.dx.data(), nullptr));
      Compare(p, "dx", ours.dx, theirs.dx, true);
      if (!average) {
        std::fill(theirs.dx.begin(), theirs.dx.end(), uint8_t{0x5A});
        must(poolgrad_backward_x(plan, dy.data(), x.data(), theirs.dx.data(), nullptr));
        Compare(p, "dx, from x,", ours.dx, theirs.dx, true);
      }
    }
    poolgrad_plan_destroy(plan);
  }
  return true;
}

const std::vector<std::string> kTypes = {"f32", "f64", "f16", "bf16", "i8", "u8", "i32"};

// Drawn as words. Cubes, deep and thin, wide and flat.
std::string DrawLine(Random& r) {
  const auto pick = [&](std::vector<std::string> words) {
    return words[static_cast<size_t>(Between(r, 0, static_cast<I>(words.size()) - 1))];
  };
  const auto one_in = [&](I n) { return Between(r, 1, n) == 1; };
  const bool average = one_in(6), last = one_in(2);
  const I rank = Between(r, 1, 3);
  std::string shape, k = " k", s = " s", d = " d", pad = " p";
  const bool table = one_in(6);  // axes by table
  std::string adaptive = " adaptive=", starts = " starts=", sizes = " sizes=";
  const I longest = one_in(4) ? Between(r, 0, rank - 1) : -1;
  const std::string dialect = one_in(2) ? pick({"torch", "tensorflow", "tfjs", "jax", "onnx"}) : "";
  for (I i = 0; i < rank; ++i) {
    const std::string x = i ? "x" : "";
    const I kernel = one_in(6) ? Between(r, 1, 8) : Between(r, 1, 3);
    const I in = i == longest ? Between(r, 30, one_in(4) ? 2000 : 300) : Between(r, 1, longest < 0 ? 12 : 3);
    shape += x + std::to_string(in);
    adaptive += x, starts += x, sizes += x;
    if (table && one_in(2)) {
      // Adaptive, or windows anywhere that never step back.
      const I outputs = Between(r, std::max<I>(1, in / 9), std::min<I>(in + 2, in / 2 + 4));
      const bool lists = one_in(2);
      adaptive += std::to_string(lists ? 0 : outputs);
      for (I o = 0, at = 0; lists && o < outputs; ++o) {
        at = std::min(in - 1, at + Between(r, 0, 3));
        starts += (o ? "," : "") + std::to_string(at);
        sizes += (o ? "," : "") + std::to_string(Between(r, 1, std::min<I>(4, in - at)));
      }
      k += x + "0", s += x + "1", d += x + "1", pad += x + "0";
      continue;
    }
    adaptive += "0";
    k += x + std::to_string(kernel);
    s += x + std::to_string(Between(r, 1, 4));
    d += x + std::to_string(one_in(5) ? Between(r, 1, 3) : 1);
    const I low = dialect == "jax" && one_in(4) ? -1 : 0, lo = Between(r, low, kernel / 2 + (one_in(8) ? 3 : 0));
    pad += x + std::to_string(lo) + ":" + std::to_string(one_in(2) ? lo : Between(r, low, kernel / 2 + 1));
  }
  const std::string batch = std::to_string(Between(r, 1, 2)),
                    channels = std::to_string(one_in(3) ? Between(r, 1, 40) : Between(r, 1, 3));
  const std::vector<std::string> layouts =
      last ? std::vector<std::string>{"nwc", "nhwc", "ndhwc"} : std::vector<std::string>{"ncw", "nchw", "ncdhw"};
  const std::string type = average ? kTypes[static_cast<size_t>(Between(r, 0, 3))] : pick(kTypes);
  std::string line = (average ? "avg " : "max ") + type + " " + layouts[static_cast<size_t>(rank - 1)] + " " + batch +
                     "x" + (last ? shape + "x" + channels : channels + "x" + shape) + k + s + d;
  line += table       ? pad + adaptive + starts + sizes
          : one_in(4) ? " " + pick({"same", "same_lower", "valid"})
          : one_in(4) ? ""
                      : pad;
  if (!average && one_in(4)) line += " relu";
  if (!dialect.empty()) line += " " + dialect;
  if (one_in(2)) line += " " + pick({"ceil", "ceil_drop", "ceil_keep", "round", "floor"});
  if (one_in(2)) line += " ties=" + pick({"first", "last", "split", "all"});
  if (one_in(2))
    line += " nan=" + pick({"propagate_first", "propagate_last", "first_place", "greater_equal", "ignore"});
  if (average && one_in(3)) line += " " + pick({"count_padding", "no_count_padding", "divisor=7"});
  if (!average && one_in(6)) line += " bits=" + pick({"8", "16", "32"});
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: oracle SECONDS SEED | oracle \"PROBLEM\" SEED\n");
    return 2;
  }
  const uint64_t seed = std::strtoull(argv[2], nullptr, 10);
  if (std::strchr(argv[1], ' ')) {
    if (!Check(argv[1], seed)) Die(poolgrad_last_error());
    std::printf("agreed\n");
    return 0;
  }
  Random r(seed);
  I agreed = 0, refused = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(std::atof(argv[1]));
  while (std::chrono::steady_clock::now() < end) {
    const std::string line = DrawLine(r);
    const uint64_t data = r() >> 1;
    (Check(line, data) ? agreed : refused) += 1;
  }
  std::printf("%lld problems agreed, %lld were refused by the library\n", static_cast<long long>(agreed),
              static_cast<long long>(refused));
  return agreed > refused ? 0 : 1;
}
