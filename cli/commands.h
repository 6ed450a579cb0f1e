// The sub-commands. Each adds its options to the application and runs from CLI11's callback.
#pragma once

#include "CLI/CLI.hpp"

namespace poolgrad::cli {

void AddRun(CLI::App& app);
void AddGrad(CLI::App& app);
void AddExplain(CLI::App& app);
void AddCheck(CLI::App& app);
void AddBench(CLI::App& app);
void AddDemo(CLI::App& app);

}  // namespace poolgrad::cli
