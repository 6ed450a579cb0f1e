// Computes and words a trace; see trace.h.
#include "trace.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>

#include "terminal.h"

namespace poolgrad::cli {
namespace {

constexpr int64_t kWidestMatrix = 32;

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

// 2/3 rather than 0.666667: shares are small fractions.
std::string Share(double value) {
  for (int parts = 1; parts <= 64; ++parts) {
    const double whole = std::round(value * parts);
    if (std::abs(value * parts - whole) < 1e-12) return Number(whole) + (parts > 1 ? "/" + std::to_string(parts) : "");
  }
  return Number(value);
}

std::string Padded(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

poolgrad_problem InF64(poolgrad_problem problem) {
  problem.dtype = POOLGRAD_F64;
  problem.device = POOLGRAD_CPU;
  return problem;
}

Csr JacobianOf(const Plan& plan, const void* routes) {
  Csr csr;
  csr.row_start.resize(static_cast<size_t>(plan.info().y_elements) + 1);
  Check(poolgrad_jacobian(plan.get(), routes, csr.row_start.data(), nullptr, nullptr));
  csr.columns.resize(static_cast<size_t>(csr.row_start.back()));
  csr.values.resize(csr.columns.size());
  Check(poolgrad_jacobian(plan.get(), routes, csr.row_start.data(), csr.columns.data(), csr.values.data()));
  return csr;
}

Csr WindowsOf(poolgrad_problem problem) {
  problem.kind = POOLGRAD_AVERAGE;
  problem.relu = problem.bias = 0;
  problem.ties = POOLGRAD_TIES_DEFAULT;
  problem.nan = POOLGRAD_NAN_DEFAULT;
  problem.route_bits = 0;
  return JacobianOf(Plan(problem), nullptr);
}

int64_t Product(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

bool DividesByWholeWindow(const poolgrad_problem& p) {
  const bool by_table = std::any_of(p.outputs, p.outputs + p.rank, [](int64_t outputs) { return outputs != 0; });
  return p.kind == POOLGRAD_AVERAGE && p.dialect == POOLGRAD_DIALECT_TFJS && p.divisor == 0 && !by_table;
}

Trace::Trace(const poolgrad_problem& problem, std::vector<double> x, std::vector<double> dy)
    : plan_(InF64(problem)), x_(std::move(x)), dy_(std::move(dy)) {
  const poolgrad_info& info = plan_.info();
  y_.resize(static_cast<size_t>(info.y_elements));
  dx_.resize(static_cast<size_t>(info.x_elements));
  const Buffer kept(info.route_bytes);
  void* routes = plan_.problem().kind == POOLGRAD_MAX ? kept.data() : nullptr;
  Forward(plan_, x_.data(), y_.data(), routes, nullptr);
  Check(poolgrad_backward(plan_.get(), dy_.data(), routes, dx_.data(), nullptr));
  selection_ = JacobianOf(plan_, routes);
  shares_ = selection_.values;
  if (DividesByWholeWindow(plan_.problem()))
    std::fill(shares_.begin(), shares_.end(), 1 / static_cast<double>(info.taps));
  windows_ = WindowsOf(plan_.problem());
  winners_.resize(x_.size());
  for (const int64_t column : selection_.columns) winners_[static_cast<size_t>(column)] = true;
}

int64_t Trace::XElements(const poolgrad_problem& problem) { return Plan(InF64(problem)).info().x_elements; }
int64_t Trace::YElements(const poolgrad_problem& problem) { return Plan(InF64(problem)).info().y_elements; }

std::vector<int64_t> Trace::InShape() const { return {plan_.problem().in, plan_.problem().in + plan_.problem().rank}; }
std::vector<int64_t> Trace::OutShape() const { return {plan_.info().out, plan_.info().out + plan_.problem().rank}; }

bool Trace::HasShares() const {
  return plan_.problem().kind == POOLGRAD_AVERAGE || plan_.info().ties == POOLGRAD_TIES_SPLIT;
}

// x[1,2], or x[n0 c3 1,2] when there is more than one plane.
std::string Trace::Name(const char* array, int64_t element, const std::vector<int64_t>& spatial) const {
  const poolgrad_problem& p = plan_.problem();
  const int64_t plane = Product(spatial);
  const bool last = p.layout == POOLGRAD_CHANNELS_LAST;
  const int64_t item = element / (plane * p.channels), inside = element % (plane * p.channels);
  const int64_t channel = last ? inside % p.channels : inside / plane;
  int64_t at = last ? inside / p.channels : inside % plane;
  std::string place;
  for (size_t i = spatial.size(); i-- > 0;) {
    place = std::to_string(at % spatial[i]) + (place.empty() ? "" : ",") + place;
    at /= spatial[i];
  }
  if (p.batch * p.channels > 1) place = "n" + std::to_string(item) + " c" + std::to_string(channel) + " " + place;
  return std::string(array) + "[" + place + "]";
}

// Each plane as rows of numbers, in memory order of (batch, channel, depth) and under a heading when there are several.
std::string Trace::Grid(const std::vector<double>& values, const std::vector<int64_t>& spatial,
                        const std::vector<bool>& highlighted, bool shares) const {
  auto word = [&](double value) { return shares ? Share(value) : Number(value); };
  const poolgrad_problem& p = plan_.problem();
  const bool last = p.layout == POOLGRAD_CHANNELS_LAST;
  const int64_t plane = Product(spatial), width = spatial.back();
  const int64_t height = spatial.size() > 1 ? spatial[spatial.size() - 2] : 1;
  size_t cell = 1;
  for (const double v : values) cell = std::max(cell, word(v).size());
  std::string text;
  for (int64_t nc = 0; nc < p.batch * p.channels; ++nc) {
    const int64_t n = nc / p.channels, c = nc % p.channels;
    if (p.batch * p.channels > 1) text += "  batch " + std::to_string(n) + ", channel " + std::to_string(c) + "\n";
    for (int64_t at = 0; at < plane; ++at) {
      const auto element = static_cast<size_t>(last ? (n * plane + at) * p.channels + c : nc * plane + at);
      const std::string number = Padded(word(values[element]), cell);
      text += at % width == 0 ? "  " : " ";
      text += highlighted.empty() ? number : Tinted(highlighted[element] ? Tint::kWinner : Tint::kFaint, number);
      if (at % width == width - 1) text += "\n";
      if (at % (width * height) == width * height - 1 && at != plane - 1) text += "\n";
    }
  }
  return text;
}

std::string Trace::Windows() const {
  const bool average = plan_.problem().kind == POOLGRAD_AVERAGE;
  std::string text;
  for (size_t o = 0; o < y_.size(); ++o) {
    auto selected = [&](int64_t column) {
      for (int64_t k = selection_.row_start[o]; k < selection_.row_start[o + 1]; ++k) {
        if (selection_.columns[static_cast<size_t>(k)] == column) return true;
      }
      return false;
    };
    text += "  " + Name("y", static_cast<int64_t>(o), OutShape()) + (average ? " = mean(" : " = max(");
    std::string winners;
    for (int64_t k = windows_.row_start[o]; k < windows_.row_start[o + 1]; ++k) {
      const int64_t column = windows_.columns[static_cast<size_t>(k)];
      const std::string number = Number(x_[static_cast<size_t>(column)]);
      text += k > windows_.row_start[o] ? " " : "";
      text += selected(column) ? Tinted(Tint::kWinner, number) : number;
      if (selected(column)) winners += (winners.empty() ? "" : " and ") + Name("x", column, InShape());
    }
    text += ") = " + Tinted(Tint::kStrong, Number(y_[o]));
    if (!average) text += winners.empty() ? ", from nobody" : ", from " + winners;
    text += "\n";
  }
  return text;
}

std::string Trace::Jacobian() const {
  if (x_.size() > kWidestMatrix || y_.size() > kWidestMatrix) return "";
  size_t label = 0, cell = 1;
  for (size_t o = 0; o < y_.size(); ++o) label = std::max(label, Name("y", static_cast<int64_t>(o), OutShape()).size());
  for (const double v : selection_.values) cell = std::max(cell, Share(v).size());
  std::string text;
  for (size_t o = 0; o < y_.size(); ++o) {
    text += "  " + Padded(Name("y", static_cast<int64_t>(o), OutShape()), label) + " ";
    std::vector<std::string> row(x_.size(), ".");
    for (int64_t k = selection_.row_start[o]; k < selection_.row_start[o + 1]; ++k) {
      row[static_cast<size_t>(selection_.columns[static_cast<size_t>(k)])] =
          Share(selection_.values[static_cast<size_t>(k)]);
    }
    for (const std::string& entry : row) {
      text += " " + Tinted(entry == "." ? Tint::kFaint : Tint::kWinner, Padded(entry, cell));
    }
    text += "\n";
  }
  return text;
}

std::string Trace::Sums() const {
  std::vector<std::string> terms(x_.size());
  for (size_t o = 0; o < y_.size(); ++o) {
    for (int64_t k = selection_.row_start[o]; k < selection_.row_start[o + 1]; ++k) {
      std::string& sum = terms[static_cast<size_t>(selection_.columns[static_cast<size_t>(k)])];
      const double share = shares_[static_cast<size_t>(k)];
      sum += (sum.empty() ? "" : " + ") + (share == 1 ? "" : Share(share) + " ") +
             Name("dy", static_cast<int64_t>(o), OutShape());
    }
  }
  std::string text;
  int64_t untouched = 0;
  for (size_t i = 0; i < x_.size(); ++i) {
    if (terms[i].empty()) {
      ++untouched;
    } else {
      text += "  " + Name("dx", static_cast<int64_t>(i), InShape()) + " = " + terms[i] + " = " +
              Tinted(Tint::kGradient, HasShares() ? Share(dx_[i]) : Number(dx_[i])) + "\n";
    }
  }
  if (untouched > 0) text += "  and 0 for the " + std::to_string(untouched) + " that won nothing\n";
  return text;
}

std::string Trace::Gradient() const { return Grid(dx_, InShape(), winners_, HasShares()); }

std::string Trace::Everything() const {
  auto heading = [](const char* text) { return Tinted(Tint::kStrong, text) + "\n"; };
  std::string text = heading("x") + Input() + heading("windows") + Windows() + heading("y") + Output();
  const std::string matrix = Jacobian();
  if (!matrix.empty()) text += heading("Jacobian S, a row for each y, a column for each x") + matrix;
  const char* const sums = DividesByWholeWindow(plan_.problem())
                               ? "the sums of dx, which tfjs divides by the whole window"
                               : "the sums of dx = S^T dy";
  return text + heading("dy") + Grid(dy_, OutShape(), {}) + heading(sums) + Sums() + heading("dx") + Gradient();
}

}  // namespace poolgrad::cli
