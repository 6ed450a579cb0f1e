// What depends on whether somebody is watching: colour on stdout, a progress bar on stderr. Neither goes into a pipe or
// a file.
#pragma once

#include <cstdint>
#include <string>

namespace poolgrad::cli {

enum class Tint { kWinner, kGradient, kFaint, kStrong };

// `text` with every control character but the end of a line spelt out, as in \x1b: names and words that a user gives
// may hold what a terminal would obey.
std::string Printable(const std::string& text);

// `text` in colour when colours are on, else `text`.
std::string Tinted(Tint tint, const std::string& text);

// auto: when stdout is a terminal and NO_COLOR is not set. The words are auto, always, never.
void SetColour(const std::string& when);

// Shows how far long work has come, from the second second on, and wipes itself at the end.
class Progress {
 public:
  Progress(const char* what, int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void Set(int64_t done);

 private:
  const char* what_;
  int64_t total_;
  bool terminal_;
  bool shown_ = false;
  int64_t started_ms_;
  int64_t last_ms_;
};

}  // namespace poolgrad::cli
