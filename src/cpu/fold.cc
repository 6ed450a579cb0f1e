#include "cpu/fold.h"

#include <memory>
#include <new>
#include <utility>

#include "base/kept.h"

namespace poolgrad {

Made MakeFolded(FoldFn fold, MakeFn make, const Problem& problem, poolgrad_op op, const Host& host) try {
  std::optional<Problem> folded = fold(problem, op);
  if (!folded) return make(problem, op, host);
  Made made = make(*folded, op, host);
  if (!made.refusal) made.kernel.as = std::make_shared<const Problem>(*std::move(folded));
  return made;
} catch (const std::bad_alloc&) {  // those who ask may be files that nothing is thrown through
  return kNoMemory;
}

}  // namespace poolgrad
