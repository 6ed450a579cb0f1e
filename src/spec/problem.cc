// Resolve: from the caller's numbers to a Problem every kernel can trust. All checks of a problem are here.
#include "spec/problem.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "spec/dialects.h"

namespace poolgrad {
namespace {

// Window numbers stay below this, so that sums of a few products of two of them stay inside 64 bits.
constexpr int64_t kLargest = int64_t{1} << 40;
constexpr int64_t kLargestTotal = int64_t{1} << 60;
constexpr int64_t kLargestTable = int64_t{1} << 24;
constexpr int64_t kLargestTaps = (int64_t{1} << 32) - 2;  // a 32-bit route code, and `no route`

std::string Entry(const char* name, int i) { return std::string(name) + "[" + std::to_string(i) + "]"; }

Status Bad(const std::string& what, int64_t value, const std::string& expectation) {
  return Status::Invalid(what + " is " + std::to_string(value) + "; " + expectation);
}

// a * b, or -1 past the largest total. Both are at least 0.
int64_t Times(int64_t a, int64_t b) {
  int64_t product;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product) || product > kLargestTotal) return -1;
  return product;
}

Status CheckEnums(const poolgrad_problem& raw) {
  struct Check {
    const char* name;
    int32_t value, count;
    const char* expectation;
  };
  const Check checks[] = {
      {"kind", raw.kind, 2, "it must be 0 (max) or 1 (average)"},
      {"dtype", raw.dtype, 7, "it must be one of poolgrad_dtype's values, 0 to 6"},
      {"layout", raw.layout, 2, "it must be 0 (channels first) or 1 (channels last)"},
      {"dialect", raw.dialect, 6, "it must be one of poolgrad_dialect's values, 0 to 5"},
      {"padding", raw.padding, 4, "it must be one of poolgrad_padding's values, 0 to 3"},
      {"rounding", raw.rounding, 6, "it must be one of poolgrad_rounding's values, 0 to 5"},
      {"ties", raw.ties, 5, "it must be one of poolgrad_ties' values, 0 to 4"},
      {"nan", raw.nan, 6, "it must be one of poolgrad_nan's values, 0 to 5"},
      {"device", raw.device, 2, "it must be 0 (CPU) or 1 (CUDA)"},
  };
  for (const Check& check : checks) {
    if (check.value < 0 || check.value >= check.count) return Bad(check.name, check.value, check.expectation);
  }
  if (raw.rank < 1 || raw.rank > 3) return Bad("rank", raw.rank, "it must be 1, 2 or 3");
  if (raw.count_padding < -1 || raw.count_padding > 1) {
    return Bad("count_padding", raw.count_padding, "it must be 0 (no), 1 (yes) or -1 (as the dialect does)");
  }
  if (raw.relu < 0 || raw.relu > 1) return Bad("relu", raw.relu, "it must be 0 (no) or 1 (yes)");
  if (raw.relu != 0 && raw.kind != POOLGRAD_MAX) return Bad("relu", raw.relu, "only max pooling rectifies; leave it 0");
  if (raw.bias < 0 || raw.bias > 1) return Bad("bias", raw.bias, "it must be 0 (no) or 1 (yes)");
  if (raw.bias != 0 && raw.relu == 0) return Bad("bias", raw.bias, "a bias goes with relu; set relu to 1");
  if (raw.device_index < 0) return Bad("device_index", raw.device_index, "it must be at least 0");
  if (raw.reserved != 0) return Bad("reserved", raw.reserved, "it must be 0");
  if (raw.reserved2 != 0) return Bad("reserved2", raw.reserved2, "it must be 0");
  if (raw.reserved3 != 0) return Bad("reserved3", raw.reserved3, "it must be 0");
  return {};
}

// The number of outputs before any check that there is one. span = padded input - extent, may be negative.
int64_t CountOutputs(const Axis& a, int64_t span, poolgrad_rounding rounding) {
  switch (rounding) {
    case POOLGRAD_ROUND_CEIL_DROP: {
      const int64_t out = CeilDiv(span, a.stride) + 1;
      return out >= 1 && (out - 1) * a.stride >= a.in + a.pad_lo ? out - 1 : out;
    }
    case POOLGRAD_ROUND_CEIL_KEEP:
      return CeilDiv(span, a.stride) + 1;
    case POOLGRAD_ROUND_NEAREST:
      return FloorDiv(2 * span + a.stride, 2 * a.stride) + 1;
    default:
      return FloorDiv(span, a.stride) + 1;
  }
}

Status CheckPads(const poolgrad_problem& raw, const Dialect& dialect, const Axis& a, int i) {
  for (const auto& [name, pad] : {std::pair{"pad_lo", a.pad_lo}, std::pair{"pad_hi", a.pad_hi}}) {
    if (pad < 0 && !dialect.may_crop && raw.whole_in[i] == 0) {
      return Bad(Entry(name, i), pad,
                 raw.dialect == POOLGRAD_DIALECT_DEFAULT
                     ? "padding must be at least 0; the jax dialect alone crops by negative padding"
                     : "padding must be at least 0");
    }
    if (pad > kLargest || pad < -kLargest) return Bad(Entry(name, i), pad, "padding may be at most 2^40");
    if (raw.padding != POOLGRAD_PAD_EXPLICIT || raw.whole_in[i] != 0) continue;
    if (dialect.pad_limit == Dialect::kHalfWindow && pad > a.extent() / 2) {
      return Bad(Entry(name, i), pad,
                 "the torch dialect allows at most half of the window, " + std::to_string(a.extent() / 2));
    }
    if (dialect.pad_limit == Dialect::kUnderWindow && pad >= a.extent()) {
      return Bad(Entry(name, i), pad,
                 "the tensorflow dialect wants less than the window, " + std::to_string(a.extent()));
    }
  }
  return {};
}

// An axis whose windows are listed, or follow from the number of outputs (adaptive).
Result<Axis> ResolveTable(const poolgrad_problem& raw, int i) {
  const int64_t in = raw.in[i];
  const int64_t out = raw.outputs[i];
  const int64_t* starts = raw.starts[i];
  const int64_t* sizes = raw.sizes[i];
  if (out < 1 || out > kLargestTable) return Bad(Entry("outputs", i), out, "a table has 1 to 2^24 windows");
  if (in < 1) return Bad(Entry("in", i), in, "every spatial size must be at least 1");
  if (in > kLargestTable) return Bad(Entry("in", i), in, "an axis with a table of windows may be at most 2^24 long");
  const bool one_size = starts && !sizes;
  if (one_size && (raw.kernel[i] < 1 || raw.kernel[i] > in)) {
    return Bad(Entry("kernel", i), raw.kernel[i],
               "with starts and no sizes it is every window's size, 1 to " + std::to_string(in));
  }
  if (!one_size && raw.kernel[i] != 0) {
    return Bad(Entry("kernel", i), raw.kernel[i],
               "an axis with outputs[" + std::to_string(i) + "] set has windows of its own; leave it 0");
  }
  if (sizes && !starts)
    return Status::Invalid(Entry("sizes", i) + " is given without " + Entry("starts", i) + "; give both");
  if (raw.dilation[i] != 1)
    return Bad(Entry("dilation", i), raw.dilation[i], "windows by table are not dilated; leave it 1");
  if (raw.padding != POOLGRAD_PAD_EXPLICIT && raw.padding != POOLGRAD_PAD_VALID) {
    return Status::Invalid(std::string("padding is ") + Name(static_cast<poolgrad_padding>(raw.padding)) +
                           "; windows by table lie inside a whole input, without padding");
  }
  for (const auto& [name, value] : {std::pair{"pad_lo", raw.pad_lo[i]}, std::pair{"pad_hi", raw.pad_hi[i]},
                                    std::pair{"whole_in", raw.whole_in[i]}}) {
    if (value != 0) return Bad(Entry(name, i), value, "windows by table lie inside a whole input, without padding");
  }
  std::vector<int64_t> all_starts(static_cast<size_t>(out)), all_sizes(static_cast<size_t>(out));
  for (int64_t o = 0; o < out; ++o) {
    const auto at = static_cast<size_t>(o);
    all_starts[at] = starts ? starts[o] : o * in / out;
    all_sizes[at] = sizes ? sizes[o] : starts ? raw.kernel[i] : CeilDiv((o + 1) * in, out) - all_starts[at];
    if (all_sizes[at] < 1 || all_sizes[at] > in) {
      return Bad(Entry("sizes", i) + "[" + std::to_string(o) + "]", all_sizes[at],
                 "a window has 1 to " + std::to_string(in) + " taps");
    }
    if (all_starts[at] < 0 || all_starts[at] > in - all_sizes[at]) {
      return Bad(Entry("starts", i) + "[" + std::to_string(o) + "]", all_starts[at],
                 "a window of " + std::to_string(all_sizes[at]) + " taps inside " + std::to_string(in) +
                     " inputs starts at 0 to " + std::to_string(in - all_sizes[at]));
    }
    if (o > 0 && all_starts[at] < all_starts[at - 1]) {
      return Bad(Entry("starts", i) + "[" + std::to_string(o) + "]", all_starts[at],
                 "starts never fall, and the one before is " + std::to_string(all_starts[at - 1]));
    }
  }
  return Axis::ByTable(in, std::move(all_starts), std::move(all_sizes));
}

Result<Axis> ResolveAxis(const poolgrad_problem& raw, const Dialect& dialect, poolgrad_rounding rounding, int i) {
  if (raw.outputs[i] != 0) return ResolveTable(raw, i);
  if (raw.starts[i] || raw.sizes[i]) {
    return Bad(Entry("outputs", i), 0, "it must be the number of windows that starts and sizes list");
  }
  Axis a;
  a.in = raw.in[i];
  a.kernel = raw.kernel[i];
  a.stride = raw.stride[i];
  a.dilation = raw.dilation[i];
  if (a.in < (dialect.may_be_empty ? 0 : 1)) return Bad(Entry("in", i), a.in, "every spatial size must be at least 1");
  struct Limit {
    const char* name;
    const char* plural;
    int64_t value;
  };
  for (const Limit& l : {Limit{"kernel", "kernel size", a.kernel},
                         {"stride", "stride", a.stride},
                         {"dilation", "dilation", a.dilation}}) {
    if (l.value < 1) return Bad(Entry(l.name, i), l.value, std::string("every ") + l.plural + " must be at least 1");
    if (l.value > kLargest)
      return Bad(Entry(l.name, i), l.value, std::string("a ") + l.plural + " may be at most 2^40");
  }
  if (a.in > kLargestTotal) return Bad(Entry("in", i), a.in, "a size may be at most 2^60");
  const int64_t reach = Times(a.kernel - 1, a.dilation);
  if (reach < 0 || reach > kLargest) {
    return Bad(Entry("dilation", i), a.dilation,
               "with kernel " + std::to_string(a.kernel) + " the window would be longer than 2^40");
  }

  switch (raw.padding) {
    case POOLGRAD_PAD_EXPLICIT:
      a.pad_lo = raw.pad_lo[i];
      a.pad_hi = raw.pad_hi[i];
      break;
    case POOLGRAD_PAD_VALID:
      break;
    default: {
      const int64_t out = CeilDiv(a.in, a.stride);
      const int64_t total = std::max<int64_t>((out - 1) * a.stride + a.extent() - a.in, 0);
      a.pad_lo = raw.padding == POOLGRAD_PAD_SAME ? total / 2 : total - total / 2;
      a.pad_hi = total - a.pad_lo;
    }
  }
  if (Status status = CheckPads(raw, dialect, a, i); !status.ok()) return status;

  if (raw.whole_in[i] != 0) {
    const int64_t whole = raw.whole_in[i], begin = raw.whole_at[i];
    if (whole < 0 || whole > kLargestTotal || begin < 0 || begin > whole - a.in) {
      return Bad(Entry("whole_at", i), begin,
                 "a part of " + std::to_string(a.in) + " inputs must lie inside the whole, " + std::to_string(whole));
    }
    for (const int64_t pad : {raw.whole_pad_lo[i], raw.whole_pad_hi[i]}) {
      if (pad > kLargest || pad < -kLargest) return Bad(Entry("whole_pad", i), pad, "padding may be at most 2^40");
    }
    a.whole = {-begin, whole - begin};
    a.whole_padded = {-begin - raw.whole_pad_lo[i], whole - begin + raw.whole_pad_hi[i]};
  }
  // The last window of any other rounding may hang over the end, where the cropped elements are.
  if (a.pad_hi < 0 && rounding != POOLGRAD_ROUND_FLOOR && raw.whole_in[i] == 0) {
    return Bad(Entry("pad_hi", i), a.pad_hi,
               std::string("it crops, and with rounding ") + Name(rounding) +
                   " a window could reach what was cropped; use floor, as XLA does");
  }
  const int64_t padded = a.in + a.pad_lo + a.pad_hi;
  a.out = CountOutputs(a, padded - a.extent(), rounding);
  const bool tfjs = raw.dialect == POOLGRAD_DIALECT_TFJS;
  if (tfjs && raw.rank == 3 && padded < a.extent() && raw.whole_in[i] == 0) a.out = 0;  // however they are rounded
  if (a.out < 1) {
    if (!dialect.may_be_empty || (tfjs && a.out < 0)) {
      return Bad(Entry("kernel", i), a.kernel,
                 "with dilation " + std::to_string(a.dilation) + " the window spans " + std::to_string(a.extent()) +
                     ", longer than the padded input, " + std::to_string(padded));
    }
    a.out = 0;
  }
  if (a.kernel == 1) a.dilation = 1;  // one tap has none, whatever was said: kernels need not know such windows
  return a;
}

Result<RouteFormat> ResolveRoutes(const poolgrad_problem& raw, const Problem& p) {
  RouteFormat f;
  f.taps = p.taps();
  f.line = p.channels_last() ? p.channels : p.axis[2].out;
  f.lines = f.line == 0 ? 0 : p.y_elements() / f.line;
  if (p.kind == POOLGRAD_AVERAGE) {  // nothing to keep
    f.bits = 0;
    if (raw.route_bits != 0) return Bad("route_bits", raw.route_bits, "average pooling keeps no routes");
    return f;
  }
  // A part's windows may lie outside it, which is no reason for a wider code: theirs are the whole's.
  const auto is_part = [](const Axis& a) { return a.whole.size() > 0; };
  const auto none_in_whole = [&](const Axis& a) {
    if (!is_part(a)) return a.has_empty_window();
    Axis whole = a;
    whole.in = a.whole.size();
    whole.pad_lo = a.pad_lo + a.whole.begin;
    return whole.has_empty_window();
  };
  const bool takes_code =
      p.relu || std::any_of(p.axis, p.axis + 3, none_in_whole) ||
      p.nan == POOLGRAD_NAN_IGNORE;  // whatever the type, so that routes of integers fit a float plan
  f.may_be_none =
      takes_code || std::any_of(p.axis, p.axis + 3, [&](const Axis& a) { return is_part(a) && a.has_empty_window(); });
  f.masks = p.ties == POOLGRAD_TIES_SPLIT || p.ties == POOLGRAD_TIES_ALL;
  if (f.masks) {
    if (raw.route_bits != 0)
      return Bad("route_bits", raw.route_bits, "ties split and all keep one bit per tap; leave it 0");
    const int64_t bytes = CeilDiv(f.taps, 8);
    if (bytes > (int64_t{1} << 27))
      return Bad("taps", f.taps, "ties split and all keep one bit per tap, at most 2^30 of them");
    f.bits = static_cast<int32_t>(8 * bytes);
  } else {
    const int64_t codes = f.taps + (takes_code ? 1 : 0);
    for (const int32_t bits : {2, 4, 8, 16, 32}) {
      f.bits = bits;
      if (codes <= int64_t{1} << bits) break;
    }
    if (raw.route_bits != 0) {
      const int32_t bits = raw.route_bits;
      if (bits != 2 && bits != 4 && bits != 8 && bits != 16 && bits != 32) {
        return Bad("route_bits", bits, "it must be 0 (the smallest that fits), 2, 4, 8, 16 or 32");
      }
      if (bits < f.bits) {
        return Bad("route_bits", bits,
                   "a window of " + std::to_string(f.taps) + " taps" + (takes_code ? " and `no route`" : "") +
                       " needs at least " + std::to_string(f.bits));
      }
      f.bits = bits;
    }
  }
  const int64_t line_bits = Times(f.line, f.bits);
  f.line_bytes = line_bits < 0 ? -1 : CeilDiv(line_bits, 8);
  if (f.line_bytes < 0 || Times(f.lines, f.line_bytes) < 0) {
    return Status::Invalid("the routes would take more than 2^60 bytes; the problem is too large");
  }
  return f;
}

}  // namespace

Result<Problem> Resolve(const poolgrad_problem& raw) {
  if (Status status = CheckEnums(raw); !status.ok()) return status;
  const Dialect& dialect = DialectOf(static_cast<poolgrad_dialect>(raw.dialect));

  Problem p;
  p.kind = static_cast<poolgrad_kind>(raw.kind);
  p.dtype = static_cast<poolgrad_dtype>(raw.dtype);
  p.layout = static_cast<poolgrad_layout>(raw.layout);
  p.dialect = static_cast<poolgrad_dialect>(raw.dialect);
  p.device = static_cast<poolgrad_device>(raw.device);
  p.device_index = raw.device_index;
  p.rank = raw.rank;
  p.ties = raw.ties ? static_cast<poolgrad_ties>(raw.ties) : raw.rank == 3 ? dialect.ties_3d : dialect.ties;
  p.nan = raw.nan ? static_cast<poolgrad_nan>(raw.nan) : dialect.nan;
  p.rounding = raw.rounding == POOLGRAD_ROUND_DEFAULT ? POOLGRAD_ROUND_FLOOR
               : raw.rounding == POOLGRAD_ROUND_CEIL  ? dialect.ceil
                                                      : static_cast<poolgrad_rounding>(raw.rounding);
  p.count_padding = raw.count_padding < 0 ? dialect.count_padding : raw.count_padding != 0;
  // Windows by table, which tfjs does not have, differ in size: what y was divided by is what its gradient is.
  const bool by_table = std::any_of(raw.outputs, raw.outputs + raw.rank, [](int64_t outputs) { return outputs != 0; });
  p.whole_window_gradient = dialect.whole_window_gradient && raw.divisor == 0 && !by_table;
  p.divisor = raw.divisor;
  p.relu = raw.relu != 0;
  p.bias = raw.bias != 0;
  p.batch = raw.batch;
  p.channels = raw.channels;
  if (p.batch < 0) return Bad("batch", p.batch, "it must be at least 0");
  if (p.channels < 0) return Bad("channels", p.channels, "it must be at least 0");
  if (p.divisor < 0) return Bad("divisor", p.divisor, "it must be at least 1, or 0 for none");
  if (p.divisor != 0 && p.kind == POOLGRAD_MAX)
    return Bad("divisor", p.divisor, "only average pooling divides; leave it 0");
  if (p.kind == POOLGRAD_AVERAGE && IsInteger(p.dtype)) {
    return Status::Unsupported(std::string("dtype is ") + Name(p.dtype) +
                               "; average pooling takes f32, f64, f16 and bf16");
  }
  if (p.bias && IsInteger(p.dtype)) {
    return Status::Unsupported(std::string("dtype is ") + Name(p.dtype) + "; a bias takes f32, f64, f16 and bf16");
  }
  // `same` defines the output size itself, so there is nothing to round. ONNX allows its ceil_mode beside it, without
  // effect.
  const bool same = raw.padding == POOLGRAD_PAD_SAME || raw.padding == POOLGRAD_PAD_SAME_LOWER;
  if (same && raw.dialect == POOLGRAD_DIALECT_ONNX && p.rounding == dialect.ceil) p.rounding = POOLGRAD_ROUND_FLOOR;
  if (same && p.rounding != POOLGRAD_ROUND_FLOOR) {
    return Status::Invalid(std::string("rounding is ") + Name(p.rounding) +
                           "; with padding same the output size is ceil(in / stride), so leave rounding floor");
  }

  for (int i = 0; i < raw.rank; ++i) {
    Result<Axis> axis = ResolveAxis(raw, dialect, p.rounding, i);
    if (!axis.ok()) return axis.status();
    p.axis[3 - raw.rank + i] = *axis;
  }

  int64_t in = 1, out = 1, taps = 1;  // each within its limit, whatever the others: without a batch all may be empty
  for (const Axis& a : p.axis) {
    in = Times(in, a.in);
    out = Times(out, a.out);
    taps = Times(taps, a.kernel);
  }
  const int64_t planes = Times(p.batch, p.channels), x = Times(planes, in), y = Times(planes, out);
  if (Times(x, SizeOf(p.dtype)) < 0) {
    return Status::Invalid("the input has more than 2^60 bytes; batch * channels * sizes must stay below that");
  }
  if (Times(y, 8) < 0) {
    return Status::Invalid("the output has more than 2^60 bytes; batch * channels * outputs must stay below that");
  }
  if (taps < 0 || taps > kLargestTaps)
    return Status::Invalid("the window has more than 2^32 - 2 taps; make the kernel smaller");

  Result<RouteFormat> routes = ResolveRoutes(raw, p);
  if (!routes.ok()) return routes.status();
  p.routes = *routes;
  return p;
}

void SetRouteLines(Problem* p) {
  RouteFormat& f = p->routes;
  f.line = p->channels_last() ? p->channels : p->width().out;
  f.lines = f.line == 0 ? 0 : p->y_elements() / f.line;
  f.line_bytes = CeilDiv(f.line * f.bits, 8);
}

int64_t AverageCount(const Problem& p, int64_t od, int64_t oh, int64_t ow) {
  if (p.divisor != 0) return p.divisor;
  const int64_t at[] = {od, oh, ow};
  int64_t count = 1;
  for (int i = 0; i < 3; ++i) {
    count *= p.axis[i].counted_taps(at[i], p.count_padding).size();
  }
  return count;
}

}  // namespace poolgrad
