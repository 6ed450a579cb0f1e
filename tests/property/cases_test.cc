// The shared case files: every line is a problem, and those that once failed (cases/regressions.txt) are checked again.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "support/harness.h"

namespace poolgrad::oracle {
namespace {

// The `name: problem` lines of a case file.
std::vector<std::pair<std::string, std::string>> Lines(const std::filesystem::path& path) {
  std::vector<std::pair<std::string, std::string>> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t colon = line.find(": ");
    EXPECT_NE(colon, std::string::npos) << path << ": " << line;
    lines.emplace_back(line.substr(0, colon), line.substr(colon + 2));
  }
  return lines;
}

const std::filesystem::path kCases = POOLGRAD_CASES;

TEST(Cases, EveryLineIsAProblem) {
  int problems = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kCases)) {
    for (const auto& [name, text] : Lines(entry.path())) {
      const auto raw = ParseProblem(text);
      ASSERT_TRUE(raw.ok()) << name << ": " << raw.status().sentence();
      ASSERT_TRUE(Resolve(*raw).ok()) << name << ": " << Resolve(*raw).status().sentence();
      ++problems;
    }
  }
  EXPECT_GT(problems, 10);
}

TEST(Cases, WhatOnceFailedAgreesWithTheReference) {
  const auto lines = Lines(kCases / "regressions.txt");
  EXPECT_FALSE(lines.empty());
  for (const auto& [name, text] : lines) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const Checked checked = CheckProblem(*ParseProblem(text), seed);
      ASSERT_FALSE(checked.refused) << name;
      ASSERT_EQ(checked.failure, "") << name;
    }
  }
}

}  // namespace
}  // namespace poolgrad::oracle
