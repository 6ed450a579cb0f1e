// The case lists of cases/*.txt, embedded when the tool is built. A file is a family, named by its stem. Each line is
// `name: problem`; a line that starts with # is a comment, and a comment `# measured warm: NAME...` names the cases
// whose data a benchmark may leave in cache, because that is how such a layer meets it.
#pragma once

#include <string>
#include <vector>

#include "poolgrad/poolgrad.h"

namespace poolgrad::cli {

struct Case {
  std::string family;
  std::string name;
  poolgrad_problem problem;
  bool warm = false;
};

const std::vector<Case>& AllCases();

}  // namespace poolgrad::cli
