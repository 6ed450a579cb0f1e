// Colours and the progress bar; see terminal.h.
#include "terminal.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace poolgrad::cli {
namespace {

bool g_colour = false;

int64_t NowMs() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void SetColour(const std::string& when) {
  const bool watched = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  g_colour = when == "always" || (when == "auto" && watched);
}

std::string Printable(const std::string& text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string printable;
  unsigned char before = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool second_row = before == 0xc2 && byte >= 0x80 && byte < 0xa0;  // U+0080 to U+009F, controls too
    before = byte;
    if ((byte >= 0x20 && byte != 0x7f && !second_row) || c == '\n') {
      printable += c;
    } else {
      printable += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return printable;
}

std::string Tinted(Tint tint, const std::string& text) {
  if (!g_colour) return text;
  switch (tint) {
    case Tint::kWinner:
      return "\x1b[1;32m" + text + "\x1b[0m";
    case Tint::kGradient:
      return "\x1b[1;36m" + text + "\x1b[0m";
    case Tint::kFaint:
      return "\x1b[2m" + text + "\x1b[0m";
    default:
      return "\x1b[1m" + text + "\x1b[0m";
  }
}

Progress::Progress(const char* what, int64_t total)
    : what_(what), total_(total), terminal_(isatty(STDERR_FILENO) != 0), started_ms_(NowMs()), last_ms_(started_ms_) {}

Progress::~Progress() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
}

void Progress::Set(int64_t done) {
  constexpr int kWidth = 30;
  constexpr int64_t kPatienceMs = 1000, kPauseMs = 100;
  const int64_t now = NowMs();
  if (!terminal_ || total_ <= 0 || now - started_ms_ < kPatienceMs || now - last_ms_ < kPauseMs) return;
  last_ms_ = now;
  shown_ = true;
  const double share = static_cast<double>(done) / static_cast<double>(total_);
  const double left = static_cast<double>(now - started_ms_) / 1000 * (1 - share) / (share > 0 ? share : 1);
  const std::string bar(static_cast<size_t>(share * kWidth), '#');
  std::fprintf(stderr, "\r%s [%-*s] %3.0f%%, %.0f s left \x1b[K", what_, kWidth, bar.c_str(), 100 * share, left);
  std::fflush(stderr);
}

}  // namespace poolgrad::cli
