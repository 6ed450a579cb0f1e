// poolgrad run and poolgrad grad: pooling and its gradient on .npy files, a slice of the batch at a time.
//
// Inputs and outputs are mapped, so only the slice in work needs memory; both layouts have the batch as their outermost
// axis, and routes of different batch items share no byte (docs/routes.md), so a slice of the batch is a slice of every
// file.
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "files.h"
#include "support.h"
#include "terminal.h"

namespace poolgrad::cli {
namespace {

constexpr int64_t kSliceBytes = int64_t{64} << 20;

struct Numbering {
  const char* name;
  poolgrad_numbering value;
  bool counts_batch;  // an index also counts the batch items before its own
};
constexpr Numbering kNumberings[] = {{"torch", POOLGRAD_INDEX_TORCH, false},
                                     {"tensorflow", POOLGRAD_INDEX_TENSORFLOW, false},
                                     {"tensorflow_batch", POOLGRAD_INDEX_TENSORFLOW_BATCH, true},
                                     {"onnx", POOLGRAD_INDEX_ONNX, true},
                                     {"onnx_column", POOLGRAD_INDEX_ONNX_COLUMN, true}};

const Numbering& NumberingOf(const std::string& name) {
  for (const Numbering& n : kNumberings) {
    if (name == n.name) return n;
  }
  throw Failure("--numbering is '" + name + "'; expected torch, tensorflow, tensorflow_batch, onnx or onnx_column");
}

bool ChannelsLast(const PoolOptions& options) {
  for (const char* word : {"nwc", "nhwc", "ndhwc"}) {
    if (options.layout == word) return true;
  }
  for (const char* word : {"ncw", "nchw", "ncdhw"}) {
    if (options.layout == word) return false;
  }
  throw Failure("--layout is '" + options.layout + "'; expected nchw or nhwc (or the same for 1 or 3 spatial axes)");
}

// The problem that the options and an input shape make, by way of its one-line form.
poolgrad_problem ProblemFor(const PoolOptions& options, int32_t dtype, const std::vector<int64_t>& shape,
                            const std::string& named) {
  if (shape.size() < 3 || shape.size() > 5) {
    throw Failure(named + " has shape " + ShapeText(shape) +
                  "; expected 3, 4 or 5 axes: batch, channels and 1 to 3 spatial ones");
  }
  const char* words[2][3] = {{"ncw", "nchw", "ncdhw"}, {"nwc", "nhwc", "ndhwc"}};
  std::string text = options.kind + " " + DtypeName(dtype) + " " + words[ChannelsLast(options)][shape.size() - 3] + " ";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? "x" : "") + std::to_string(shape[i]);
  return ParseProblem(text + " " + options.window);
}

std::vector<int64_t> OutputShape(const Plan& plan) {
  const poolgrad_problem& p = plan.problem();
  std::vector<int64_t> shape(plan.info().out, plan.info().out + p.rank);
  shape.insert(p.layout == POOLGRAD_CHANNELS_LAST ? shape.end() : shape.begin(), p.channels);
  shape.insert(shape.begin(), p.batch);
  return shape;
}

std::vector<int64_t> ParseShape(const std::string& text) {
  std::vector<int64_t> shape;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('x', at), text.size());
    const std::string number = text.substr(at, end - at);
    if (number.empty() || number.size() > 18 || number.find_first_not_of("0123456789") != std::string::npos) {
      throw Failure("--shape is '" + text + "'; expected numbers joined by x, e.g. 8x64x112x112");
    }
    shape.push_back(std::stoll(number));
    at = end + 1;
  }
  return shape;
}

void RequireShape(const InputFile& file, const std::vector<int64_t>& expected, const std::string& why) {
  if (file.header().shape != expected) {
    throw Failure(file.path() + " has shape " + ShapeText(file.header().shape) + "; expected " + ShapeText(expected) +
                  ", " + why);
  }
}

void RequireDescr(const InputFile& file, const std::string& descr, const std::string& what) {
  if (file.header().descr.substr(1) != descr.substr(1)) {
    throw Failure(file.path() + " has element type '" + file.header().descr + "'; expected " + what + " ('" + descr +
                  "')");
  }
}

// Runs work(plan, first) for consecutive slices of the batch, where `plan` is of the slice that begins at item `first`.
void ForSlices(const Plan& whole, const PoolOptions& options, const char* what,
               const std::function<void(const Plan&, int64_t)>& work) {
  const int64_t batch = whole.problem().batch;
  if (batch == 0) return;
  const int64_t item_bytes = (whole.info().x_bytes + whole.info().y_bytes) / batch;
  const int64_t slice = std::clamp<int64_t>(kSliceBytes / std::max<int64_t>(item_bytes, 1), 1, batch);
  Progress progress(what, batch);
  std::optional<Plan> plan;
  for (int64_t first = 0; first < batch; first += slice) {
    const int64_t count = std::min(slice, batch - first);
    if (!plan || plan->problem().batch != count) {
      poolgrad_problem problem = whole.problem();
      problem.batch = count;
      plan.emplace(problem, options.algorithm);
    }
    work(*plan, first);
    progress.Set(first + count);
  }
}

// The part of an array that belongs to one item of the batch, in bytes.
int64_t PerItem(int64_t bytes, const Plan& plan) { return plan.problem().batch > 0 ? bytes / plan.problem().batch : 0; }

// Frameworks that number over the whole tensor count the items before this slice too.
void ShiftIndices(int64_t* indices, int64_t count, int64_t by) {
  for (int64_t i = 0; i < count; ++i) {
    if (indices[i] >= 0) indices[i] += by;
  }
}

std::vector<int64_t> RoutesShape(const Plan& plan) {
  return {plan.problem().batch, PerItem(plan.info().route_bytes, plan)};
}

void RequireDifferent(const std::vector<std::string>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!outputs[i].empty() && !outputs[j].empty() && SameFile(outputs[i], outputs[j])) {
        const std::string also = outputs[i] == outputs[j] ? "" : ", the second time as " + outputs[i];
        throw Failure(outputs[j] + " is named for two outputs" + also + "; expected a different file for each");
      }
    }
  }
}

}  // namespace

void RunForward(const PoolOptions& options) {
  const Numbering& numbering = NumberingOf(options.numbering);
  RequireDifferent({options.output, options.routes, options.indices});
  const InputFile x(options.input);
  const int32_t dtype = NpyDtype(x.header(), options.dtype, x.path());
  const Plan whole(ProblemFor(options, dtype, x.header().shape, x.path()), options.algorithm);
  const poolgrad_info& info = whole.info();
  if (info.route_bytes == 0 && info.y_elements > 0 && !(options.routes.empty() && options.indices.empty())) {
    throw Failure("--routes and --indices need max pooling; average pooling has no routes to keep");
  }
  if (options.bias.empty() != (whole.problem().bias == 0)) {
    throw Failure("a bias takes both --bias FILE and the words `relu bias` in --window; one of them is missing");
  }
  std::optional<InputFile> bias;
  if (!options.bias.empty()) {
    bias.emplace(options.bias);
    RequireDescr(*bias, x.header().descr, "the type of " + x.path());
    RequireShape(*bias, {whole.problem().channels}, "one bias per channel");
  }
  const auto y_shape = OutputShape(whole);
  OutputFile y(options.output, x.header().descr, y_shape, info.y_bytes);
  std::optional<OutputFile> routes, indices;
  if (!options.routes.empty()) routes.emplace(options.routes, "|u1", RoutesShape(whole), info.route_bytes);
  if (!options.indices.empty()) indices.emplace(options.indices, "<i8", y_shape, info.y_elements * 8);

  const int64_t x_item = PerItem(info.x_bytes, whole), y_item = PerItem(info.y_bytes, whole);
  const int64_t route_item = PerItem(info.route_bytes, whole), outputs_item = PerItem(info.y_elements, whole);
  Buffer kept;
  ForSlices(whole, options, "pooling", [&](const Plan& plan, int64_t first) {
    std::byte* slice_routes = nullptr;
    if (routes) {
      slice_routes = routes->data() + first * route_item;
    } else if (indices) {
      if (kept.bytes() < plan.info().route_bytes) kept = Buffer(plan.info().route_bytes);
      slice_routes = kept.data();
    }
    const Exec exec(plan, slice_routes ? POOLGRAD_OP_FORWARD_ROUTES : POOLGRAD_OP_FORWARD, options.threads);
    const std::byte* slice_x = x.data() + first * x_item;
    std::byte* slice_y = y.data() + first * y_item;
    Check(bias ? poolgrad_forward_bias(plan.get(), slice_x, bias->data(), slice_y, slice_routes, exec.get())
               : poolgrad_forward(plan.get(), slice_x, slice_y, slice_routes, exec.get()));
    if (indices) {
      auto* out = reinterpret_cast<int64_t*>(indices->data()) + first * outputs_item;
      Check(poolgrad_routes_to_indices(plan.get(), slice_routes, numbering.value, out, exec.get()));
      if (numbering.counts_batch) ShiftIndices(out, plan.info().y_elements, first * PerItem(info.x_elements, whole));
    }
  });
  y.Publish();
  if (routes) routes->Publish();
  if (indices) indices->Publish();
}

void RunBackward(const PoolOptions& options) {
  const Numbering& numbering = NumberingOf(options.numbering);
  const int sources = !options.x.empty() + !options.routes.empty() + !options.indices.empty();
  const bool average = options.kind == "avg";
  if (average && !(options.routes.empty() && options.indices.empty())) {
    throw Failure("--routes and --indices need max pooling; the gradient of an average needs --x or --shape alone");
  }
  if (sources > 1 || (sources == 0 && !average)) {
    throw Failure("the gradient needs to know who won: give exactly one of --x, --routes and --indices");
  }
  if (options.x.empty() == options.shape.empty()) {
    throw Failure("the gradient needs the shape of the input: give --x, or else --shape, e.g. --shape 8x64x112x112");
  }
  const InputFile dy(options.input);
  const int32_t dtype = NpyDtype(dy.header(), options.dtype, dy.path());
  std::optional<InputFile> x, routes, indices;
  if (!options.x.empty()) x.emplace(options.x);
  if (!options.routes.empty()) routes.emplace(options.routes);
  if (!options.indices.empty()) indices.emplace(options.indices);
  if (x) RequireDescr(*x, dy.header().descr, "the type of " + dy.path());
  const auto x_shape = x ? x->header().shape : ParseShape(options.shape);
  const Plan whole(ProblemFor(options, dtype, x_shape, x ? x->path() : "--shape"), options.algorithm);
  const poolgrad_info& info = whole.info();
  RequireShape(dy, OutputShape(whole), "the shape of this window's output");
  if (routes) {
    RequireDescr(*routes, "|u1", "routes as bytes");
    RequireShape(*routes, RoutesShape(whole), "batch and bytes of routes per item");
  }
  if (indices) {
    RequireDescr(*indices, "<i8", "64-bit indices");
    RequireShape(*indices, OutputShape(whole), "one index per output");
  }
  RequireDifferent({options.output, options.dbias});
  OutputFile dx(options.output, dy.header().descr, x_shape, info.x_bytes);
  if (!options.dbias.empty() && !routes) throw Failure("--dbias needs the --routes of a run with --bias");
  std::optional<OutputFile> dbias;
  if (!options.dbias.empty()) {
    const std::string& descr = dy.header().descr;  // which ends in an element's bytes
    const int64_t channels = whole.problem().channels;
    dbias.emplace(options.dbias, descr, std::vector<int64_t>{channels}, channels * std::stoll(descr.substr(2)));
    const Exec exec(whole, POOLGRAD_OP_BIAS_GRADIENT, options.threads);
    Check(poolgrad_bias_gradient(whole.get(), dy.data(), routes->data(), dbias->data(), exec.get()));
  }

  const int64_t x_item = PerItem(info.x_bytes, whole), y_item = PerItem(info.y_bytes, whole);
  const int64_t route_item = PerItem(info.route_bytes, whole), outputs_item = PerItem(info.y_elements, whole);
  Buffer kept;
  std::vector<int64_t> local;
  ForSlices(whole, options, "differentiating", [&](const Plan& plan, int64_t first) {
    const std::byte* slice_dy = dy.data() + first * y_item;
    std::byte* slice_dx = dx.data() + first * x_item;
    if (x && !average) {
      const Exec exec(plan, POOLGRAD_OP_BACKWARD_X, options.threads);
      return Check(poolgrad_backward_x(plan.get(), slice_dy, x->data() + first * x_item, slice_dx, exec.get()));
    }
    const std::byte* slice_routes = routes ? routes->data() + first * route_item : nullptr;
    if (indices) {
      const auto* given = reinterpret_cast<const int64_t*>(indices->data()) + first * outputs_item;
      local.assign(given, given + plan.info().y_elements);
      if (numbering.counts_batch) {
        const int64_t before = first * PerItem(info.x_elements, whole);
        for (size_t o = 0; o < local.size(); ++o) {  // less `before`, they would look like others, or like no route
          if (local[o] < 0 || local[o] >= before) continue;
          throw Failure(indices->path() + " has " + std::to_string(local[o]) + " for output " +
                        std::to_string(first * outputs_item + static_cast<int64_t>(o)) +
                        ", which is an input of another item of the batch");
        }
        ShiftIndices(local.data(), plan.info().y_elements, -before);
      }
      if (kept.bytes() < plan.info().route_bytes) kept = Buffer(plan.info().route_bytes);
      if (poolgrad_routes_from_indices(plan.get(), local.data(), numbering.value, kept.data()) != POOLGRAD_OK) {
        const std::string counted =
            first > 0 ? ", counted from item " + std::to_string(first) + " of the batch on" : "";
        const std::string said = poolgrad_last_error();
        if (!said.starts_with("indices[")) throw Failure(said);  // it is not about the file
        throw Failure(indices->path() + " does not fit" + counted + ": " + said);
      }
      slice_routes = kept.data();
    }
    const Exec exec(plan, POOLGRAD_OP_BACKWARD, options.threads);
    Check(poolgrad_backward(plan.get(), slice_dy, slice_routes, slice_dx, exec.get()));
  });
  dx.Publish();
  if (dbias) dbias->Publish();
}

}  // namespace poolgrad::cli
