// poolgrad, the command line: reads the words, runs one sub-command, prints what went wrong as one sentence on stderr.
// Exit status: 0 done, 1 the work failed, 2 the words were not understood.
#include <exception>
#include <iostream>
#include <new>

#include "commands.h"
#include "poolgrad/poolgrad.h"
#include "support.h"

int main(int argc, char** argv) {
  CLI::App app{"Max pooling and its gradient: run, differentiate, explain and measure it.", "poolgrad"};
  app.set_version_flag("--version", std::string("poolgrad ") + poolgrad_version() + " (" + poolgrad_simd_target() +
                                        (poolgrad_has_cuda() ? ", CUDA)" : ")"));
  app.require_subcommand(1);
  poolgrad::cli::AddRun(app);
  poolgrad::cli::AddGrad(app);
  poolgrad::cli::AddBench(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const poolgrad::cli::Failure& failure) {
    std::cerr << "poolgrad: " << failure.what() << "\n";
    return 1;
  } catch (const std::bad_alloc&) {
    std::cerr << "poolgrad: memory ran out; a smaller batch or fewer threads need less\n";
    return 1;
  }
  return 0;
}
