// poolgrad, the command line: reads the words, runs one sub-command, prints what went wrong as one sentence on stderr.
// Exit status: 0 done, 1 the work failed, 2 the words were not understood.
//
// CLI11 is one large header, which takes longer to compile than all the rest: only this file includes it.
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "commands.h"
#include "poolgrad/poolgrad.h"
#include "support.h"
#include "terminal.h"

namespace poolgrad::cli {
namespace {

// CLI11's own ranges let a NaN pass.
CLI::Validator Within(double least, double most) {
  std::ostringstream range;
  range << least << " to " << most;
  const auto check = [=, words = range.str()](std::string& given) -> std::string {
    double value = 0;
    const bool good = CLI::detail::lexical_cast(given, value) && value >= least && value <= most;
    return good ? "" : "Value " + given + " not in range " + words;
  };
  return {check, "FLOAT in [" + range.str() + "]"};
}

void AddDemo(CLI::App& app) {
  auto options = std::make_shared<DemoOptions>();
  CLI::App* demo = app.add_subcommand("demo", "The worked example, the tie rules, and one real layer with its speed");
  demo->add_flag("--skip-speed", options->skip_speed, "Leave the timing out");
  demo->add_option("--threads", options->threads, "Threads (default: all of the machine's)")
      ->check(CLI::Range(1, 4096));
  demo->callback([options] { RunDemo(*options); });
}

void AddExplain(CLI::App& app) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* explain =
      app.add_subcommand("explain", "Geometry, plan and bytes of a problem; for a small one every window and sum");
  explain->add_option("problem", options->problem, "In its one-line form, e.g. \"max f32 nchw 1x1x4x4 k2 s2\"")
      ->required();
  explain->add_option("--values", options->values, "The elements of x, in memory order (default: 1 ... n, shuffled)");
  explain->add_option("--dy", options->gradient, "The elements of dy (default: all 1)");
  explain->add_option("--algorithm", options->algorithm, "Force an algorithm by its name");
  explain->callback([options] { RunExplain(*options); });
}

void AddShared(CLI::App* command, PoolOptions& options) {
  command
      ->add_option("--window", options.window,
                   "The window and its rules in their one-line form, e.g. \"k3 s2 p1 torch\"")
      ->required();
  command->add_option("--kind", options.kind, "max or avg")
      ->check(CLI::IsMember({"max", "avg"}))
      ->capture_default_str();
  command->add_option("--layout", options.layout, "nchw or nhwc, for every number of spatial axes")
      ->capture_default_str();
  command->add_option("--dtype", options.dtype, "bf16, for files whose 16-bit elements are bf16 numbers");
  command
      ->add_option("--numbering", options.numbering,
                   "How indices count: torch, tensorflow, tensorflow_batch, onnx, onnx_column")
      ->capture_default_str();
  command->add_option("--threads", options.threads, "Threads (default: all of the machine's)")
      ->check(CLI::Range(1, 4096));
  command->add_option("--algorithm", options.algorithm, "Force an algorithm by its name in explain");
}

void AddRun(CLI::App& app) {
  auto options = std::make_shared<PoolOptions>();
  CLI::App* run = app.add_subcommand("run", "Pool a .npy file; keep routes or indices for the gradient");
  run->add_option("x", options->input, "Input .npy file")->required();
  run->add_option("y", options->output, "Output .npy file")->required();
  run->add_option("--routes", options->routes, "Also write the routes (bytes) to this .npy file");
  run->add_option("--indices", options->indices, "Also write a framework's indices (int64) to this .npy file");
  run->add_option("--bias", options->bias, "One bias per channel, a .npy file; goes with `relu bias` in --window");
  AddShared(run, *options);
  run->callback([options] { RunForward(*options); });
}

void AddGrad(CLI::App& app) {
  auto options = std::make_shared<PoolOptions>();
  CLI::App* grad = app.add_subcommand("grad", "The gradient of a pooling on .npy files: dy to dx");
  grad->add_option("dy", options->input, "Gradient of the output, a .npy file")->required();
  grad->add_option("dx", options->output, "Gradient of the input, the .npy file to write")->required();
  grad->add_option("--x", options->x, "The input that was pooled");
  grad->add_option("--routes", options->routes, "The routes that run kept");
  grad->add_option("--indices", options->indices, "A framework's indices");
  grad->add_option("--shape", options->shape, "Shape of the input, when --x is not given, e.g. 8x64x112x112");
  grad->add_option("--dbias", options->dbias, "Also write the gradient of the bias to this .npy file");
  AddShared(grad, *options);
  grad->callback([options] { RunBackward(*options); });
}

void AddCheck(CLI::App& app) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* check = app.add_subcommand("check", "Compare the gradient with finite differences, in f64");
  check->add_option("problem", options->problem, "In its one-line form; its type is replaced by f64")->required();
  check->add_option("--samples", options->samples, "Inputs to check")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  check->add_option("--seed", options->seed, "Seed of the random input")->capture_default_str();
  check->callback([options] { RunCheck(*options); });
}

void AddBench(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* bench = app.add_subcommand("bench", "Measure the case list as a fraction of the copy bandwidth");
  bench->add_option("--case", options->cases, "Cases to measure (default: the whole family)")->delimiter(',');
  bench
      ->add_option("--family", options->family,
                   "Which list of cases: peers, shapes, all, or random for windows drawn at random")
      ->capture_default_str();
  bench->add_option("--count", options->count, "How many random cases")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  bench->add_option("--seed", options->seed, "What draws them: the same seed, the same cases")->capture_default_str();
  bench->add_option("--problem", options->problem, "Measure this one-line problem instead of a case");
  bench->add_option("--layout", options->layouts, "nchw, nhwc (for every rank; default: both)")->delimiter(',');
  bench->add_option("--dtype", options->dtypes, "f32, bf16, f16, f64, i8, u8, i32 or all")
      ->delimiter(',')
      ->capture_default_str();
  bench
      ->add_option(
          "--op", options->ops,
          "fwd, train (with routes), bwd (from routes), bwd_x (from x); default: these four; plan: making a plan")
      ->delimiter(',');
  bench->add_option("--threads", options->threads, "Threads (default: all of the machine's)")
      ->check(CLI::Range(1, 4096));
  bench->add_option("--algorithm", options->algorithm, "Force an algorithm by its name in explain");
  bench->add_option("--seconds", options->seconds, "Time spent on each cell")
      ->check(Within(0.001, 600))
      ->capture_default_str();
  bench->add_option("--copy-gbps", options->copy_gbps, "Use this copy bandwidth instead of measuring it")
      ->check(Within(0.001, 1e6));
  bench->add_option("--cache-mib", options->cache_mib, "Last-level cache size (default: what the system says)")
      ->check(CLI::Range(1, 1 << 20));
  bench->add_flag("--rectified", options->rectified, "Values of x as behind a rectifier: half of them are 0");
  bench->add_flag("--bandwidth", options->bandwidth_only, "Only measure the memory");
  bench->add_flag("--list", options->list, "Only list the cases");
  bench->add_flag("--json", options->json, "One JSON object per line");
  bench->callback([options] { RunBench(*options); });
}

int Main(int argc, char** argv) {
  CLI::App app{"Max pooling and its gradient: run, differentiate, explain and measure it.", "poolgrad"};
  app.set_version_flag("--version", std::string("poolgrad ") + poolgrad_version() + " (" + poolgrad_simd_target() +
                                        (poolgrad_has_cuda() ? ", CUDA)" : ")"));
  app.require_subcommand(1);
  std::string colour = "auto";
  app.add_option("--colour", colour, "auto, always or never")->check(CLI::IsMember({"auto", "always", "never"}));
  app.parse_complete_callback([&colour] { SetColour(colour); });
  for (auto add : {AddDemo, AddExplain, AddRun, AddGrad, AddCheck, AddBench}) add(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> words = app.remaining();
    if (app.get_subcommands().empty() && !words.empty() &&
        words[0][0] != '-') {  // CLI11 says only that one is required
      std::string known;
      for (const CLI::App* command : app.get_subcommands({}))
        known += (known.empty() ? "" : ", ") + command->get_name();
      std::cerr << "poolgrad: " << Printable("'" + words[0] + "' is no command; the commands are " + known) << "\n";
      return 2;
    }
    std::ostringstream out, err;  // its sentences repeat what was typed
    const int status = app.exit(error, out, err);
    std::cout << out.str();
    std::cerr << Printable(err.str());
    return status == 0 ? 0 : 2;
  } catch (const Failure& failure) {
    std::cerr << "poolgrad: " << Printable(failure.what()) << "\n";
    return 1;
  } catch (const std::bad_alloc&) {
    std::cerr << "poolgrad: memory ran out; a smaller batch or fewer threads need less\n";
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace poolgrad::cli

int main(int argc, char** argv) {
  const int status = poolgrad::cli::Main(argc, argv);
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout) return status;
  std::cerr << "poolgrad: what it prints could not all be written; is the disk full?\n";
  return status == 0 ? 1 : status;
}
