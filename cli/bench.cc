// poolgrad bench: every case x layout x type x operation as a fraction of the copy bandwidth measured in the same run.
//
// Buffers are rotated through a working set of more than four times the last-level cache, so that no call finds its
// data in cache, except for the cases that are measured warm. The floor of an operation is the fewest bytes it must
// move: forward x + y, forward with routes and backward from routes x + y + routes, backward from x 2x + y (it reads x
// and writes dx).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "bandwidth.h"
#include "cases.h"
#include "commands.h"
#include "random_cases.h"
#include "support.h"
#include "timing.h"

namespace poolgrad::cli {
namespace {

struct OpWord {
  const char* name;
  poolgrad_op op;
};
constexpr OpWord kOps[] = {{"fwd", POOLGRAD_OP_FORWARD},
                           {"train", POOLGRAD_OP_FORWARD_ROUTES},
                           {"bwd", POOLGRAD_OP_BACKWARD},
                           {"bwd_x", POOLGRAD_OP_BACKWARD_X}};
constexpr const char* kPlan = "plan";                 // not an operation on data: how long making a plan takes
constexpr const char* kLayouts[] = {"nchw", "nhwc"};  // in the order of poolgrad_layout, whatever the rank
constexpr int kWorkingSetCaches = 4;
constexpr double kCliffLimit = 2.5;

bool Wanted(const std::vector<std::string>& chosen, const std::string& name) {
  return chosen.empty() || std::find(chosen.begin(), chosen.end(), name) != chosen.end();
}

// One plan and what its operations read and write, at each step of the rotation.
struct Subject {
  std::string name;
  bool warm;
  Plan plan;
  int64_t sets = 1;
};

// Memory for the largest subject. Each array holds one slice per step of the rotation.
struct Memory {
  Buffer x, y, routes, dy, dx;
};

int64_t Aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Random numbers between -1 and 1 (integers: random bytes). The first few MiB are drawn and then repeated, which is
// much faster.
void FillRandom(const Buffer& buffer, int32_t dtype) {
  constexpr int64_t kDrawn = int64_t{8} << 20;
  uint64_t state = 0x9e3779b97f4a7c15u;
  auto next = [&] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  };
  auto unit = [&] { return static_cast<double>(next() >> 11) * 0x1p-52 - 1.0; };
  const int64_t bytes = std::min(buffer.bytes(), kDrawn);
  if (dtype == POOLGRAD_F32) {
    for (int64_t i = 0; i < bytes / 4; ++i) buffer.as<float>()[i] = static_cast<float>(unit());
  } else if (dtype == POOLGRAD_F64) {
    for (int64_t i = 0; i < bytes / 8; ++i) buffer.as<double>()[i] = unit();
  } else if (dtype == POOLGRAD_BF16) {
    for (int64_t i = 0; i < bytes / 2; ++i) {
      const float value = static_cast<float>(unit());
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof(bits));
      buffer.as<uint16_t>()[i] = static_cast<uint16_t>(bits >> 16);
    }
  } else if (dtype == POOLGRAD_F16) {  // cut off rather than rounded; too small for a normal number: 0
    for (int64_t i = 0; i < bytes / 2; ++i) {
      const float value = static_cast<float>(unit());
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof(bits));
      const uint32_t exponent = (bits >> 23) & 0xff;
      const uint32_t half = (bits >> 16 & 0x8000u) | (exponent - 112) << 10 | (bits >> 13 & 0x3ffu);
      buffer.as<uint16_t>()[i] = static_cast<uint16_t>(exponent > 112 ? half : 0);
    }
  } else {
    for (int64_t i = 0; i < bytes / 8; ++i) buffer.as<uint64_t>()[i] = next();
  }
  for (int64_t done = bytes; done < buffer.bytes(); done += bytes) {
    std::memcpy(buffer.data() + done, buffer.data(), static_cast<size_t>(std::min(bytes, buffer.bytes() - done)));
  }
}

// Negative floats become 0, as behind a rectifier: half of all values tie then.
void Rectify(const Buffer& buffer, int32_t dtype) {
  const auto clear = [&](auto* bits) {
    const auto sign = static_cast<int>(8 * sizeof(*bits) - 1);
    for (int64_t i = 0; i < buffer.bytes() / static_cast<int64_t>(sizeof(*bits)); ++i) {
      if (bits[i] >> sign) bits[i] = 0;
    }
  };
  if (dtype == POOLGRAD_F64) clear(buffer.as<uint64_t>());
  if (dtype == POOLGRAD_F32) clear(buffer.as<uint32_t>());
  if (dtype == POOLGRAD_BF16 || dtype == POOLGRAD_F16) clear(buffer.as<uint16_t>());
}

constexpr const char* kRandom = "random";

// The cases of all families that were asked for; those drawn at random only when they are named.
std::vector<Case> CasesOf(const BenchOptions& options) {
  if (options.family == kRandom) return RandomCases(options.count, options.seed);
  return AllCases();
}

std::vector<Subject> ChooseSubjects(const BenchOptions& options, int32_t dtype, int64_t cache_bytes) {
  std::vector<Case> cases;
  if (!options.problem.empty()) {
    cases.push_back({"", "problem", ParseProblem(options.problem)});
  } else {
    for (const Case& c : CasesOf(options)) {
      if ((options.family == "all" || c.family == options.family) && Wanted(options.cases, c.name)) cases.push_back(c);
    }
  }
  std::vector<Subject> subjects;
  for (const Case& c : cases) {
    for (int32_t layout : {POOLGRAD_CHANNELS_FIRST, POOLGRAD_CHANNELS_LAST}) {
      if (!Wanted(options.layouts, kLayouts[layout])) continue;
      if (!options.problem.empty() && options.layouts.empty() && layout != c.problem.layout) continue;
      poolgrad_problem problem = c.problem;
      problem.layout = layout;
      problem.dtype = dtype;
      Subject subject{c.name, c.warm, Plan(problem, options.algorithm)};
      const int64_t set_bytes = std::max<int64_t>(1, subject.plan.info().x_bytes + subject.plan.info().y_bytes);
      if (!c.warm) subject.sets = kWorkingSetCaches * cache_bytes / set_bytes + 1;
      subjects.push_back(std::move(subject));
    }
  }
  return subjects;
}

Memory Reserve(const std::vector<Subject>& subjects) {
  int64_t x = 0, y = 0, routes = 0;
  for (const Subject& s : subjects) {
    x = std::max(x, s.sets * Aligned(s.plan.info().x_bytes));
    y = std::max(y, s.sets * Aligned(s.plan.info().y_bytes));
    routes = std::max(routes, s.sets * Aligned(s.plan.info().route_bytes));
  }
  return {Buffer(x), Buffer(y), Buffer(routes), Buffer(y), Buffer(x)};
}

struct Cell {
  std::string name;
  int32_t layout;
  const char* dtype;
  const char* op;
  std::string algorithm;
  Timing timing;
  double fraction;
  int64_t taps;
};

Cell MeasureCell(const Subject& subject, const OpWord& word, const Memory& memory, const BenchOptions& options,
                 double copy_gbps) {
  const Plan& plan = subject.plan;
  const poolgrad_info& info = plan.info();
  const Exec exec(plan, word.op, options.threads);
  const int64_t x_stride = Aligned(info.x_bytes), y_stride = Aligned(info.y_bytes),
                r_stride = Aligned(info.route_bytes);
  auto x = [&](int64_t i) { return memory.x.data() + i % subject.sets * x_stride; };
  auto y = [&](int64_t i) { return memory.y.data() + i % subject.sets * y_stride; };
  auto dx = [&](int64_t i) { return memory.dx.data() + i % subject.sets * x_stride; };
  auto dy = [&](int64_t i) { return memory.dy.data() + i % subject.sets * y_stride; };
  auto routes = [&](int64_t i) -> std::byte* {
    return info.route_bytes > 0 ? memory.routes.data() + i % subject.sets * r_stride : nullptr;
  };
  Timing timing;
  double floor_bytes = static_cast<double>(info.x_bytes + info.y_bytes);
  switch (word.op) {
    case POOLGRAD_OP_FORWARD:
      timing =
          Measure(options.seconds, subject.sets, [&](int64_t i) { Forward(plan, x(i), y(i), nullptr, exec.get()); });
      break;
    case POOLGRAD_OP_FORWARD_ROUTES:
      timing =
          Measure(options.seconds, subject.sets, [&](int64_t i) { Forward(plan, x(i), y(i), routes(i), exec.get()); });
      floor_bytes += static_cast<double>(info.route_bytes);
      break;
    case POOLGRAD_OP_BACKWARD: {
      const Exec forward(plan, POOLGRAD_OP_FORWARD_ROUTES, options.threads);
      for (int64_t i = 0; i < subject.sets && info.route_bytes > 0; ++i) {  // averages have none
        Forward(plan, x(i), y(i), routes(i), forward.get());
      }
      timing = Measure(options.seconds, subject.sets,
                       [&](int64_t i) { Check(poolgrad_backward(plan.get(), dy(i), routes(i), dx(i), exec.get())); });
      floor_bytes += static_cast<double>(info.route_bytes);
      break;
    }
    default:
      timing = Measure(options.seconds, subject.sets,
                       [&](int64_t i) { Check(poolgrad_backward_x(plan.get(), dy(i), x(i), dx(i), exec.get())); });
      floor_bytes += static_cast<double>(info.x_bytes);
  }
  return {subject.name,
          plan.problem().layout,
          DtypeName(plan.problem().dtype),
          word.name,
          plan.Algorithm(word.op),
          timing,
          floor_bytes / (timing.ms * 1e6) / copy_gbps,
          info.taps};
}

Cell MeasurePlan(const Subject& subject, const BenchOptions& options) {
  const poolgrad_problem& problem = subject.plan.problem();
  const Timing timing = Measure(options.seconds, 1, [&](int64_t) { Plan(problem, options.algorithm); });
  return {subject.name, problem.layout, DtypeName(problem.dtype), kPlan, "", timing, 0, subject.plan.info().taps};
}

class Report {
 public:
  Report(const BenchOptions& options, int threads, const Bandwidth& bandwidth)
      : options_(options), threads_(threads), bandwidth_(bandwidth) {}

  void Header() const {
    if (options_.json) return;
    std::printf("poolgrad %s, %s, %d thread%s. Copy %.1f GB/s", poolgrad_version(), poolgrad_simd_target(), threads_,
                threads_ == 1 ? "" : "s", bandwidth_.copy_gbps);
    if (bandwidth_.read_heavy_gbps > 0) {
      std::printf(", 4 reads to 1 write %.1f, 1 read to 4 writes %.1f", bandwidth_.read_heavy_gbps,
                  bandwidth_.write_heavy_gbps);
    }
    std::printf(" (read + written).\n\n%-24s %-5s %-5s %-6s %11s %7s %9s  %s\n", "case", "layout", "type", "op", "ms",
                "spread", "fraction", "algorithm");
  }

  void Add(const Cell& cell) {
    if (options_.json) {
      std::printf(
          "{\"case\":\"%s\",\"layout\":\"%s\",\"dtype\":\"%s\",\"op\":\"%s\",\"threads\":%d,\"ms\":%.6f,"
          "\"spread\":%.4f,\"fraction\":%.4f,\"copy_gbps\":%.2f,\"peer\":\"poolgrad\",\"algorithm\":\"%s\","
          "\"target\":\"%s\",\"taps\":%lld}\n",
          cell.name.c_str(), kLayouts[cell.layout], cell.dtype, cell.op, threads_, cell.timing.ms, cell.timing.spread,
          cell.fraction, bandwidth_.copy_gbps, cell.algorithm.c_str(), poolgrad_simd_target(),
          static_cast<long long>(cell.taps));
    } else {
      std::printf("%-24s %-5s  %-5s %-6s %11.5f %6.1f%% %9.3f  %s\n", cell.name.c_str(), kLayouts[cell.layout],
                  cell.dtype, cell.op, cell.timing.ms, 100 * cell.timing.spread, cell.fraction, cell.algorithm.c_str());
    }
    std::fflush(stdout);
    cells_.push_back(cell);
  }

  // Pairs NAME_odd, NAME_even: how much slower per byte the odd one is.
  void Cliffs() const {
    double worst = 0;
    for (const Cell& odd : cells_) {
      if (!odd.name.ends_with("_odd")) continue;
      const std::string pair = odd.name.substr(0, odd.name.size() - 4);
      for (const Cell& even : cells_) {
        if (even.name != pair + "_even" || even.layout != odd.layout || even.dtype != odd.dtype || even.op != odd.op)
          continue;
        const double cliff = even.fraction / odd.fraction;
        if (options_.json) {
          std::printf("{\"pair\":\"%s\",\"layout\":\"%s\",\"dtype\":\"%s\",\"op\":\"%s\",\"cliff\":%.3f}\n",
                      pair.c_str(), kLayouts[odd.layout], odd.dtype, odd.op, cliff);
        } else {
          if (worst == 0)
            std::printf("\nHow much slower per byte than the even neighbour (limit %.1f):\n", kCliffLimit);
          std::printf("%-24s %-5s  %-5s %-6s %6.2f%s\n", pair.c_str(), kLayouts[odd.layout], odd.dtype, odd.op, cliff,
                      cliff > kCliffLimit ? "  over the limit" : "");
        }
        worst = std::max(worst, cliff);
      }
    }
    if (worst > 0 && !options_.json) std::printf("Worst: %.2f\n", worst);
  }

  // For cases drawn at random: how the fractions are spread, by the size of the window.
  void Spread() const {
    if (options_.json || options_.family != kRandom) return;
    std::map<std::string, std::vector<double>> groups;
    for (const Cell& cell : cells_) {
      if (cell.op == kPlan) continue;
      const char* size = cell.taps <= 9 ? "1 to 9 taps" : cell.taps <= 64 ? "10 to 64 taps" : "over 64 taps";
      groups[std::string(cell.dtype) + " " + cell.op + " " + size].push_back(cell.fraction);
    }
    std::printf("\nFractions by type, operation and window:\n%-32s %5s %6s %6s %6s %6s\n", "", "cells", "least", "5 %",
                "25 %", "50 %");
    for (auto& [key, fractions] : groups) {
      std::sort(fractions.begin(), fractions.end());
      const auto at = [&, &fractions = fractions](double q) {
        return fractions[static_cast<size_t>(q * static_cast<double>(fractions.size() - 1) + 0.5)];
      };
      std::printf("%-32s %5zu %6.3f %6.3f %6.3f %6.3f\n", key.c_str(), fractions.size(), at(0), at(0.05), at(0.25),
                  at(0.5));
    }
  }

  void Means() const {
    if (options_.json || cells_.size() < 2) return;
    std::map<std::string, std::pair<double, int>> logs;
    for (const Cell& cell : cells_) {
      if (cell.op == kPlan) continue;
      auto& [sum, count] = logs[std::string(cell.dtype) + " " + kLayouts[cell.layout] + " " + cell.op];
      sum += std::log(cell.fraction);
      ++count;
    }
    if (!logs.empty()) std::printf("\nGeometric mean of the fractions:\n");
    for (const auto& [key, value] : logs)
      std::printf("%-18s %.3f\n", key.c_str(), std::exp(value.first / value.second));
  }

 private:
  const BenchOptions& options_;
  int threads_;
  Bandwidth bandwidth_;
  std::vector<Cell> cells_;
};

void CheckNames(const std::vector<std::string>& given, const std::vector<std::string>& known, const char* option) {
  for (const std::string& name : given) {
    if (Wanted(known, name)) continue;
    std::string all;
    for (const std::string& k : known) all += (all.empty() ? "" : ", ") + k;
    throw Failure(std::string(option) + " is '" + name + "'; expected one of " + all);
  }
}

void CheckWords(BenchOptions& options) {
  std::vector<std::string> names, families{"all", kRandom};
  for (const Case& c : CasesOf(options)) {
    if (!Wanted(families, c.family)) families.push_back(c.family);
    if (options.family == "all" || options.family == c.family) names.push_back(c.name);
  }
  CheckNames({options.family}, families, "--family");
  CheckNames(options.cases, names, "--case");
  CheckNames(options.layouts, {"nchw", "nhwc"}, "--layout");
  CheckNames(options.ops, {"fwd", "train", "bwd", "bwd_x", kPlan}, "--op");
  if (options.dtypes == std::vector<std::string>{"all"}) {
    options.dtypes = {"f32", "bf16", "f16", "f64", "i8", "u8", "i32"};
  }
  for (const std::string& dtype : options.dtypes) DtypeFromName(dtype);  // before memory is measured
}

void PrintBandwidth(const Bandwidth& b, int threads, int64_t cache_bytes, bool json) {
  std::printf(
      json ? "{\"threads\":%d,\"copy_gbps\":%.2f,\"read_heavy_gbps\":%.2f,\"write_heavy_gbps\":%.2f,\"cache_mib\":%lld}"
             "\n"
           : "%d threads: copy %.1f GB/s, 4 reads to 1 write %.1f, 1 read to 4 writes %.1f (read + written), on arrays "
             "larger than the cache of %lld MiB.\n",
      threads, b.copy_gbps, b.read_heavy_gbps, b.write_heavy_gbps, static_cast<long long>(cache_bytes >> 20));
}

}  // namespace

void RunBench(BenchOptions options) {
  CheckWords(options);
  if (options.list) {
    for (const Case& c : CasesOf(options))
      std::printf("%s %s: %s\n", c.family.c_str(), c.name.c_str(), FormatProblem(c.problem).c_str());
    return;
  }
  if (!options.problem.empty() && options.dtypes.size() != 1) {
    options.dtypes = {DtypeName(ParseProblem(options.problem).dtype)};
  }
  const int threads = options.threads > 0 ? options.threads : poolgrad_default_threads();
  const int64_t cache_bytes = options.cache_mib > 0 ? options.cache_mib << 20 : LastLevelCacheBytes();
  Bandwidth bandwidth;
  bandwidth.copy_gbps = options.copy_gbps;
  if (options.copy_gbps <= 0) bandwidth = MeasureBandwidth(threads, cache_bytes);
  if (options.bandwidth_only) return PrintBandwidth(bandwidth, threads, cache_bytes, options.json);

  options.threads = threads;
  Report report(options, threads, bandwidth);
  report.Header();
  for (const std::string& dtype : options.dtypes) {
    const auto subjects = ChooseSubjects(options, DtypeFromName(dtype), cache_bytes);
    const Memory memory = Reserve(subjects);
    FillRandom(memory.x, DtypeFromName(dtype));
    if (options.rectified) Rectify(memory.x, DtypeFromName(dtype));
    FillRandom(memory.dy, DtypeFromName(dtype));
    for (const Buffer* written : {&memory.y, &memory.dx, &memory.routes}) {
      std::memset(written->data(), 0, static_cast<size_t>(written->bytes()));
    }
    for (const Subject& subject : subjects) {
      for (const OpWord& word : kOps) {
        if (!Wanted(options.ops, word.name) || subject.plan.Algorithm(word.op) == nullptr) continue;
        report.Add(MeasureCell(subject, word, memory, options, bandwidth.copy_gbps));
      }
      if (!options.ops.empty() && Wanted(options.ops, kPlan)) report.Add(MeasurePlan(subject, options));
    }
  }
  report.Cliffs();
  report.Spread();
  report.Means();
}

}  // namespace poolgrad::cli
