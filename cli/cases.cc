// Reads the embedded case lists; see cases.h. cases_embedded.h is written by CMake from cases/*.txt.
#include "cases.h"

#include <algorithm>
#include <sstream>
#include <string_view>

#include "cases_embedded.h"
#include "support.h"

namespace poolgrad::cli {
namespace {

constexpr std::string_view kWarm = "# measured warm:";

void ReadFamily(const std::string& family, const std::string& text, std::vector<Case>& cases) {
  std::istringstream lines(text);
  std::vector<std::string> warm;
  const size_t first = cases.size();
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kWarm)) {
      std::istringstream names(line.substr(kWarm.size()));
      for (std::string name; names >> name;) warm.push_back(name);
    }
    if (line.empty() || line[0] == '#') continue;
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) {
      throw Failure("cases/" + family + ".txt holds '" + line + "'; expected 'name: problem'");
    }
    cases.push_back({family, line.substr(0, colon), ParseProblem(line.substr(colon + 2))});
  }
  for (size_t i = first; i < cases.size(); ++i) {
    cases[i].warm = std::find(warm.begin(), warm.end(), cases[i].name) != warm.end();
  }
}

}  // namespace

const std::vector<Case>& AllCases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> cases;
    for (const auto& file : kEmbeddedCases) ReadFamily(file.family, file.text, cases);
    return cases;
  }();
  return all;
}

}  // namespace poolgrad::cli
