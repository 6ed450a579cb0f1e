// The words of a problem, and its one-line text form: parsed word by word, formatted so that parsing gives the same
// problem.
#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "spec/problem.h"

namespace poolgrad {
namespace {

constexpr const char* kDtypes[] = {"f32", "f64", "f16", "bf16", "i8", "u8", "i32"};
constexpr const char* kKinds[] = {"max", "avg"};
constexpr const char* kLayouts[] = {"channels_first", "channels_last"};
constexpr const char* kLayoutWords[2][3] = {{"ncw", "nchw", "ncdhw"}, {"nwc", "nhwc", "ndhwc"}};
constexpr const char* kDialectNames[] = {"default", "torch", "tensorflow", "tfjs", "jax", "onnx"};
constexpr const char* kPaddings[] = {"explicit", "valid", "same", "same_lower"};
constexpr const char* kRoundings[] = {"default", "floor", "ceil", "ceil_drop", "ceil_keep", "round"};
constexpr const char* kTies[] = {"default", "first", "last", "split", "all"};
constexpr const char* kNans[] = {"default",     "propagate_first", "propagate_last",
                                 "first_place", "greater_equal",   "ignore"};
constexpr const char* kOps[] = {"forward", "forward_routes", "backward",     "backward_x",
                                "gather",  "unpool",         "bias_gradient"};

// The position of `word` in `words` from `from` on; -1 when it is not there.
template <size_t N>
int Find(const char* const (&words)[N], std::string_view word, int from = 0) {
  for (int i = from; i < static_cast<int>(N); ++i) {
    if (word == words[i]) return i;
  }
  return -1;
}

bool ParseInt(std::string_view text, int64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

std::vector<std::string_view> Split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(by);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

Status BadWord(std::string_view word, const std::string& expectation) {
  return Status::Invalid("the word " + Quoted(word) + " is not understood; " + expectation);
}

Status TooShort(std::string_view problem) {
  return Status::Invalid("the problem " + Quoted(problem) +
                         " is too short; it has kind, type, layout, shape and windows, like max f32 nchw 1x1x3x3 k2");
}

// "3" for every axis, or "1x2x2", one number per axis.
Status ParseNumbers(std::string_view word, std::string_view digits, int rank, int64_t* numbers) {
  const auto parts = Split(digits, 'x');
  if (parts.size() != 1 && static_cast<int>(parts.size()) != rank) {
    return BadWord(word, "give one number, or one per axis: " + std::to_string(rank));
  }
  for (int i = 0; i < rank; ++i) {
    if (!ParseInt(parts[parts.size() == 1 ? 0 : i], &numbers[i])) return BadWord(word, "its numbers must be integers");
  }
  return {};
}

// Like numbers, but each may be lo:hi.
Status ParsePads(std::string_view word, std::string_view digits, poolgrad_problem* p) {
  const auto parts = Split(digits, 'x');
  if (parts.size() != 1 && static_cast<int>(parts.size()) != p->rank) {
    return BadWord(word, "give one padding, or one per axis: " + std::to_string(p->rank));
  }
  for (int i = 0; i < p->rank; ++i) {
    const auto pair = Split(parts[parts.size() == 1 ? 0 : i], ':');
    if (pair.size() > 2 || !ParseInt(pair.front(), &p->pad_lo[i]) || !ParseInt(pair.back(), &p->pad_hi[i])) {
      return BadWord(word, "a padding is a number, or low:high");
    }
  }
  return {};
}

// Of a part: where it begins in how long a whole, and how far the whole was padded, an axis each: "8/32:1:1x0/16:0:0".
Status ParsePart(std::string_view word, std::string_view text, poolgrad_problem* p) {
  const auto axes = Split(text, 'x');
  bool good = static_cast<int>(axes.size()) == p->rank;
  for (int i = 0; good && i < p->rank; ++i) {
    const auto place = Split(axes[static_cast<size_t>(i)], '/');
    const auto whole = Split(place.back(), ':');
    good = place.size() == 2 && whole.size() == 3 && ParseInt(place[0], &p->whole_at[i]) &&
           ParseInt(whole[0], &p->whole_in[i]) && ParseInt(whole[1], &p->whole_pad_lo[i]) &&
           ParseInt(whole[2], &p->whole_pad_hi[i]);
  }
  return good ? Status() : BadWord(word, "a part is begin/whole:low:high for every axis, with x between them");
}

// The layout word fixes the rank; the shape is in that memory order.
bool ParseLayout(std::string_view word, poolgrad_problem* p) {
  for (int layout = 0; layout < 2; ++layout) {
    const int rank = Find(kLayoutWords[layout], word);
    if (rank < 0) continue;
    p->layout = layout;
    p->rank = rank + 1;
    return true;
  }
  return false;
}

Status ParseShape(std::string_view word, poolgrad_problem* p) {
  const auto parts = Split(word, 'x');
  std::vector<int64_t> sizes(parts.size());
  bool good = static_cast<int>(parts.size()) == p->rank + 2;
  for (size_t i = 0; good && i < parts.size(); ++i) good = ParseInt(parts[i], &sizes[i]);
  if (!good) {
    return BadWord(word, std::string("the shape of ") + kLayoutWords[p->layout][p->rank - 1] + " is " +
                             std::to_string(p->rank + 2) + " numbers with x between them");
  }
  const bool last = p->layout == POOLGRAD_CHANNELS_LAST;
  p->batch = sizes.front();
  p->channels = last ? sizes.back() : sizes[1];
  for (int i = 0; i < p->rank; ++i) p->in[i] = sizes[i + (last ? 1 : 2)];
  return {};
}

// The lists of a window table. They live until the same thread parses the next that has some.
using Lists = std::vector<int64_t>[3];
thread_local Lists starts_of, sizes_of;

// An axis each: "0,3,5x0,2", empty where an axis has none.
Status ParseLists(std::string_view word, std::string_view text, int rank, Lists& lists, const int64_t* (&pointers)[3]) {
  const auto axes = Split(text, 'x');
  if (static_cast<int>(axes.size()) != rank) {
    return BadWord(word, "give a list per axis, numbers with commas between them, x between the lists: " +
                             std::to_string(rank) + (rank == 1 ? " list" : " lists"));
  }
  for (int i = 0; i < rank; ++i) {
    lists[i].clear();
    pointers[i] = nullptr;
    if (axes[static_cast<size_t>(i)].empty()) continue;
    for (const std::string_view number : Split(axes[static_cast<size_t>(i)], ',')) {
      int64_t value;
      if (!ParseInt(number, &value)) return BadWord(word, "its numbers must be integers");
      lists[i].push_back(value);
    }
    pointers[i] = lists[i].data();
  }
  return {};
}

// What the free-order words after the shape say, each of them once.
enum Matter {
  kKernel,
  kStride,
  kDilation,
  kPadding,
  kRounding,
  kDialect,
  kTieRule,
  kNanRule,
  kBits,
  kCounting,
  kDivisor,
  kDevice,
  kRelu,
  kBias,
  kOutputs,
  kStarts,
  kSizes,
  kPart,
  kMatters
};
constexpr const char* kMatterNames[] = {
    "the kernel",  "the stride", "the dilation", "the padding",    "the rounding",
    "the dialect", "the ties",   "the NaN rule", "the route bits", "whether padding counts",
    "the divisor", "the device", "relu",         "bias",           "the number of outputs",
    "the starts",  "the sizes",  "the part"};

Status ParseOption(std::string_view word, poolgrad_problem* p, Matter* matter) {
  const auto value_of = [&](std::string_view key) { return word.substr(key.size()); };
  const bool numbers =
      word.size() > 1 && (word[1] == '-' || (word[1] >= '0' && word[1] <= '9'));  // or `stride=2` were one
  int at;
  if ((at = Find(kPaddings, word, 1)) > 0) {
    *matter = kPadding;
    p->padding = at;
  } else if ((at = Find(kRoundings, word, 1)) > 0) {
    *matter = kRounding;
    p->rounding = at;
  } else if ((at = Find(kDialectNames, word, 1)) > 0) {
    *matter = kDialect;
    p->dialect = at;
  } else if (word == "count_padding" || word == "no_count_padding") {
    *matter = kCounting;
    p->count_padding = word == "count_padding";
  } else if (word.starts_with("ties=")) {
    *matter = kTieRule;
    if ((at = Find(kTies, value_of("ties="), 1)) < 0) return BadWord(word, "ties are first, last, split or all");
    p->ties = at;
  } else if (word.starts_with("nan=")) {
    *matter = kNanRule;
    if ((at = Find(kNans, value_of("nan="), 1)) < 0) {
      return BadWord(word, "nan is propagate_first, propagate_last, first_place, greater_equal or ignore");
    }
    p->nan = at;
  } else if (word.starts_with("bits=")) {
    *matter = kBits;
    int64_t bits;
    if (!ParseInt(value_of("bits="), &bits) || bits < 0 || bits > 32)
      return BadWord(word, "bits are 2, 4, 8, 16 or 32");
    p->route_bits = static_cast<int32_t>(bits);
  } else if (word.starts_with("divisor=")) {
    *matter = kDivisor;
    if (!ParseInt(value_of("divisor="), &p->divisor)) return BadWord(word, "a divisor is an integer");
  } else if (word == "cuda" || word.starts_with("cuda:")) {
    *matter = kDevice;
    int64_t index = 0;
    if (word != "cuda" && (!ParseInt(value_of("cuda:"), &index) || index < 0 || index > INT32_MAX)) {
      return BadWord(word, "name a GPU as cuda:0");
    }
    p->device = POOLGRAD_CUDA;
    p->device_index = static_cast<int32_t>(index);
  } else if (word == "relu") {
    *matter = kRelu;
    p->relu = 1;
  } else if (word == "bias") {
    *matter = kBias;
    p->bias = 1;
  } else if (word.starts_with("adaptive=")) {
    *matter = kOutputs;
    return ParseNumbers(word, value_of("adaptive="), p->rank, p->outputs);
  } else if (word.starts_with("starts=")) {
    *matter = kStarts;
    return ParseLists(word, value_of("starts="), p->rank, starts_of, p->starts);
  } else if (word.starts_with("sizes=")) {
    *matter = kSizes;
    return ParseLists(word, value_of("sizes="), p->rank, sizes_of, p->sizes);
  } else if (word.starts_with("part=")) {
    *matter = kPart;
    return ParsePart(word, value_of("part="), p);
  } else if (numbers && word[0] == 'k') {
    *matter = kKernel;
    return ParseNumbers(word, word.substr(1), p->rank, p->kernel);
  } else if (numbers && word[0] == 's') {
    *matter = kStride;
    return ParseNumbers(word, word.substr(1), p->rank, p->stride);
  } else if (numbers && word[0] == 'd') {
    *matter = kDilation;
    return ParseNumbers(word, word.substr(1), p->rank, p->dilation);
  } else if (numbers && word[0] == 'p') {
    *matter = kPadding;
    return ParsePads(word, word.substr(1), p);
  } else {
    return BadWord(
        word,
        "after kind, type, layout and shape come k3, s2, p1, d2, same, valid, floor, ceil, ties=..., nan=..., a "
        "dialect, relu, bias, adaptive=..., starts=..., sizes=..., bits=..., count_padding, divisor=..., part=... or "
        "cuda");
  }
  return {};
}

// As many windows as an axis has starts. `said`: by which words.
Status CountLists(const std::string_view (&said)[kMatters], poolgrad_problem* p) {
  for (int i = 0; i < p->rank; ++i) {
    const std::string axis = "axis " + std::to_string(i);
    if (!p->starts[i] && p->sizes[i]) return BadWord(said[kSizes], axis + " has sizes and no starts=; give both");
    if (!p->starts[i]) continue;
    if (p->outputs[i] != 0) {
      return Status::Invalid("the words " + Quoted(said[kOutputs]) + " and " + Quoted(said[kStarts]) +
                             " both say the windows of " + axis + "; keep one of them, or have adaptive= say 0 there");
    }
    p->outputs[i] = static_cast<int64_t>(starts_of[i].size());
    if (p->sizes[i] && sizes_of[i].size() != starts_of[i].size()) {
      return BadWord(said[kSizes], axis + " has " + std::to_string(p->outputs[i]) + " starts and " +
                                       std::to_string(sizes_of[i].size()) + " sizes");
    }
  }
  return {};
}

std::string Numbers(char letter, const int64_t* numbers, int rank) {
  std::string text = std::string(" ") + letter + std::to_string(numbers[0]);
  bool equal = true;
  for (int i = 1; i < rank; ++i) equal = equal && numbers[i] == numbers[0];
  for (int i = 1; i < rank && !equal; ++i) text += "x" + std::to_string(numbers[i]);
  return text;
}

// The words of windows by table: adaptive= where some axis is, starts= and sizes= where some axis lists them.
std::string Tables(const poolgrad_problem& p) {
  const auto any = [&](const auto& has) { return has(0) || (p.rank > 1 && has(1)) || (p.rank > 2 && has(2)); };
  const auto lists = [&](const char* word, const int64_t* const* pointers) {
    std::string text = word;
    for (int i = 0; i < p.rank; ++i) {
      if (i > 0) text += "x";
      for (int64_t o = 0; pointers[i] && o < p.outputs[i]; ++o)
        text += (o > 0 ? "," : "") + std::to_string(pointers[i][o]);
    }
    return text;
  };
  std::string text;
  if (any([&](int i) { return p.outputs[i] != 0 && !p.starts[i]; })) {
    for (int i = 0; i < p.rank; ++i)
      text += (i == 0 ? " adaptive=" : "x") + std::to_string(p.starts[i] ? 0 : p.outputs[i]);
  }
  if (any([&](int i) { return p.starts[i] != nullptr; })) text += lists(" starts=", p.starts);
  if (any([&](int i) { return p.sizes[i] != nullptr; })) text += lists(" sizes=", p.sizes);
  return text;
}

}  // namespace

poolgrad_problem DefaultProblem() {
  poolgrad_problem p = {};
  p.struct_size = sizeof p;
  p.rank = 2;
  p.batch = 1;
  p.channels = 1;
  p.count_padding = -1;
  for (int i = 0; i < 3; ++i) p.stride[i] = p.dilation[i] = 1;
  return p;
}

Result<poolgrad_problem> ParseProblem(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::string_view word : Split(text, ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  if (words.size() < 4) return TooShort(text);
  poolgrad_problem p = DefaultProblem();
  if ((p.kind = Find(kKinds, words[0])) < 0) return BadWord(words[0], "the kind is max or avg");
  if ((p.dtype = Find(kDtypes, words[1])) < 0)
    return BadWord(words[1], "the type is f32, f64, f16, bf16, i8, u8 or i32");
  if (!ParseLayout(words[2], &p)) return BadWord(words[2], "the layout is ncw, nchw, ncdhw, nwc, nhwc or ndhwc");
  if (Status status = ParseShape(words[3], &p); !status.ok()) return status;
  std::string_view said[kMatters];  // by which word
  for (size_t i = 4; i < words.size(); ++i) {
    Matter matter{};
    if (Status status = ParseOption(words[i], &p, &matter); !status.ok()) return status;
    if (!said[matter].empty()) {
      return Status::Invalid("the words " + Quoted(said[matter]) + " and " + Quoted(words[i]) + " both say " +
                             kMatterNames[matter] + "; keep one of them");
    }
    said[matter] = words[i];
  }
  if (Status status = CountLists(said, &p); !status.ok()) return status;
  if (said[kKernel].empty() && p.outputs[0] == 0)
    return TooShort(text);  // or a check would speak of a kernel that nobody gave
  for (int i = 0; i < 3 && said[kStride].empty(); ++i) p.stride[i] = p.outputs[i] != 0 ? 1 : p.kernel[i];
  return p;
}

std::string FormatProblem(const poolgrad_problem& p) {
  const bool last = p.layout == POOLGRAD_CHANNELS_LAST;
  std::string text = std::string(kKinds[p.kind]) + " " + kDtypes[p.dtype] + " " + kLayoutWords[p.layout][p.rank - 1] +
                     " " + std::to_string(p.batch);
  if (!last) text += "x" + std::to_string(p.channels);
  for (int i = 0; i < p.rank; ++i) text += "x" + std::to_string(p.in[i]);
  if (last) text += "x" + std::to_string(p.channels);
  bool tables = true, sized = false, strided = false;  // all windows by table; with kernels, with strides
  for (int i = 0; i < p.rank; ++i) {
    tables = tables && p.outputs[i] != 0;
    sized = sized || p.kernel[i] != 0;
    strided = strided || p.stride[i] != 1;
  }
  if (!tables || sized) text += Numbers('k', p.kernel, p.rank);
  if (!tables || strided) text += Numbers('s', p.stride, p.rank);
  text += Tables(p);
  bool padded = false;
  bool dilated = false;
  for (int i = 0; i < p.rank; ++i) {
    padded = padded || p.pad_lo[i] != 0 || p.pad_hi[i] != 0;
    dilated = dilated || p.dilation[i] != 1;
  }
  if (p.padding != POOLGRAD_PAD_EXPLICIT) {
    text += std::string(" ") + kPaddings[p.padding];
  } else if (padded) {
    for (int i = 0; i < p.rank; ++i) {
      text += (i == 0 ? " p" : "x") + std::to_string(p.pad_lo[i]);
      if (p.pad_hi[i] != p.pad_lo[i]) text += ":" + std::to_string(p.pad_hi[i]);
    }
  }
  if (dilated) text += Numbers('d', p.dilation, p.rank);
  if (p.rounding != 0) text += std::string(" ") + kRoundings[p.rounding];
  if (p.dialect != 0) text += std::string(" ") + kDialectNames[p.dialect];
  if (p.ties != 0) text += std::string(" ties=") + kTies[p.ties];
  if (p.nan != 0) text += std::string(" nan=") + kNans[p.nan];
  if (p.relu != 0) text += " relu";
  if (p.bias != 0) text += " bias";
  if (p.route_bits != 0) text += " bits=" + std::to_string(p.route_bits);
  if (p.count_padding >= 0) text += p.count_padding ? " count_padding" : " no_count_padding";
  if (p.divisor != 0) text += " divisor=" + std::to_string(p.divisor);
  if (std::any_of(p.whole_in, p.whole_in + p.rank, [](int64_t whole) { return whole != 0; })) {
    for (int i = 0; i < p.rank; ++i) {
      text += (i == 0 ? " part=" : "x") + std::to_string(p.whole_at[i]) + "/" + std::to_string(p.whole_in[i]) + ":" +
              std::to_string(p.whole_pad_lo[i]) + ":" + std::to_string(p.whole_pad_hi[i]);
    }
  }
  if (p.device == POOLGRAD_CUDA) text += " cuda:" + std::to_string(p.device_index);
  return text;
}

const char* Name(poolgrad_dtype v) { return kDtypes[v]; }
const char* Name(poolgrad_kind v) { return kKinds[v]; }
const char* Name(poolgrad_layout v) { return kLayouts[v]; }
const char* Name(poolgrad_dialect v) { return kDialectNames[v]; }
const char* Name(poolgrad_padding v) { return kPaddings[v]; }
const char* Name(poolgrad_rounding v) { return kRoundings[v]; }
const char* Name(poolgrad_ties v) { return kTies[v]; }
const char* Name(poolgrad_nan v) { return kNans[v]; }
const char* Name(poolgrad_op v) { return kOps[v]; }

}  // namespace poolgrad
