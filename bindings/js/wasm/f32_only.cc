// The forward kernels that this module does not have; see f32_only.h.
#include "cpu/forward/forward.h"

namespace poolgrad {

Made MakeForwardF64(ForwardWay, const Problem&, bool, int64_t) { return kNotBuilt; }
Made MakeForwardHalf(ForwardWay, const Problem&, bool, int64_t) { return kNotBuilt; }
Made MakeForwardHalfSpecial(ForwardWay, const Problem&, bool, int64_t) { return kNotBuilt; }
Made MakeForwardHalfFmax(ForwardWay, const Problem&, bool) { return kNotBuilt; }
bool HasHalfFmax() { return false; }
Made MakeForwardCut(const Problem&, poolgrad_op, const Host&) { return "there is one thread"; }
Made MakeForwardInt(ForwardWay, const Problem&, bool, int64_t) { return kNotBuilt; }

}  // namespace poolgrad
