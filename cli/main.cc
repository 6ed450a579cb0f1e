// poolgrad, the command line: reads the words, runs one sub-command, prints what went wrong as one sentence on stderr.
// Exit status: 0 done, 1 the work failed, 2 the words were not understood.
#include <exception>
#include <iostream>
#include <new>
#include <sstream>
#include <string>

#include "commands.h"
#include "poolgrad/poolgrad.h"
#include "support.h"
#include "terminal.h"

int main(int argc, char** argv) {
  CLI::App app{"Max pooling and its gradient: run, differentiate, explain and measure it.", "poolgrad"};
  app.set_version_flag("--version", std::string("poolgrad ") + poolgrad_version() + " (" + poolgrad_simd_target() +
                                        (poolgrad_has_cuda() ? ", CUDA)" : ")"));
  app.require_subcommand(1);
  std::string colour = "auto";
  app.add_option("--colour", colour, "auto, always or never")->check(CLI::IsMember({"auto", "always", "never"}));
  app.parse_complete_callback([&colour] { poolgrad::cli::SetColour(colour); });
  for (auto add : {poolgrad::cli::AddDemo, poolgrad::cli::AddExplain, poolgrad::cli::AddRun, poolgrad::cli::AddGrad,
                   poolgrad::cli::AddCheck, poolgrad::cli::AddBench}) {
    add(app);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream out, err;  // its sentences repeat what was typed
    const int status = app.exit(error, out, err);
    std::cout << out.str();
    std::cerr << poolgrad::cli::Printable(err.str());
    return status == 0 ? 0 : 2;
  } catch (const poolgrad::cli::Failure& failure) {
    std::cerr << "poolgrad: " << poolgrad::cli::Printable(failure.what()) << "\n";
    return 1;
  } catch (const std::bad_alloc&) {
    std::cerr << "poolgrad: memory ran out; a smaller batch or fewer threads need less\n";
    return 1;
  }
  return 0;
}
