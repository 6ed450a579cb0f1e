// poolgrad demo: the worked example of docs/derivation.md, the tie rules side by side, and one real layer at speed.
#include <cstdio>
#include <string>
#include <vector>

#include "commands.h"
#include "support.h"
#include "terminal.h"
#include "trace.h"

namespace poolgrad::cli {
namespace {

const std::vector<double> kOnes(4, 1.0);

void WorkedExample() {
  std::printf("%s\n\n", Tinted(Tint::kStrong, "1. Where the gradient goes: 3x3 input, 2x2 window, stride 1").c_str());
  const auto problem = ParseProblem("max f64 nchw 1x1x3x3 k2 s1");
  std::printf("%s\n", Trace(problem, {1, 2, 3, 4, 5, 6, 7, 8, 9}, kOnes).Everything().c_str());
}

void Ties() {
  std::printf("%s\n\n", Tinted(Tint::kStrong, "2. The same with ties: who gets dy = 1 of each window").c_str());
  const std::vector<double> x{1, 3, 2, 3, 3, 3, 2, 3, 1};
  struct Rule {
    const char* word;
    const char* meaning;
  };
  constexpr Rule kRules[] = {{"first", "the first maximum gets all of it (the default, and what PyTorch does)"},
                             {"last", "the last maximum gets all of it"},
                             {"split", "every maximum gets an equal share"},
                             {"all", "every maximum gets all of it"}};
  bool shown = false;
  for (const Rule& rule : kRules) {
    const Trace trace(ParseProblem(std::string("max f64 nchw 1x1x3x3 k2 s1 ties=") + rule.word), x, kOnes);
    if (!shown) std::printf("x\n%s", trace.Input().c_str());
    shown = true;
    std::printf("ties=%s: %s\n%s", rule.word, rule.meaning, trace.Gradient().c_str());
  }
  std::printf("\n");
}

void Speed(int threads) {
  std::printf("%s\n\n",
              Tinted(Tint::kStrong, "3. A real layer: the pooling of ResNet's stem, 8x64x112x112, k3 s2 p1").c_str());
  BenchOptions options;
  options.cases = {"resnet_stem"};
  options.dtypes = {"f32"};
  options.threads = threads;
  RunBench(options);
  std::printf(
      "\nfwd is forward, train also keeps the routes, bwd is the gradient from them, bwd_x the gradient from x.\n"
      "fraction is the fewest bytes that can be moved, over time, over the copy bandwidth: 1 would be a perfect "
      "copy.\n");
}

}  // namespace

void RunDemo(const DemoOptions& options) {
  WorkedExample();
  Ties();
  if (!options.skip_speed) Speed(options.threads);
}

}  // namespace poolgrad::cli
