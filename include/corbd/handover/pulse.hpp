// An agent's status in its pod's file, <runtime-dir>/pods/UID, where `corbd-probe` reads it. The probe is linked with
// the C library alone, so this header needs nothing else.
#pragma once

#include <cstdio>
#include <cstring>
#include <ctime>

namespace corbd::handover {

/// One line of text: "<ms> <0 or 1> <why>". `ms` is CLOCK_MONOTONIC, which all processes of a boot share, and which
/// nobody sets.
struct Pulse {
  static constexpr std::size_t kSize = 512;  ///< length of the line, padded with spaces: the next one overwrites it

  long long at_ms = 0;
  bool ready = false;  ///< the agent could stage a volume now
  char why[256] = {};  ///< the reason why it could not
};

inline long long monotonic_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<long long>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

inline void write_line(const Pulse& pulse, char (&into)[Pulse::kSize]) {
  const int length = std::snprintf(into, sizeof into, "%lld %d %s", pulse.at_ms, pulse.ready ? 1 : 0,
                                   static_cast<const char*>(pulse.why));
  std::memset(into + length, ' ', sizeof into - static_cast<std::size_t>(length));
  into[Pulse::kSize - 1] = '\n';
}

/// Parses a line, which ends with a zero. False: it has another form.
inline bool read_line(const char* line, Pulse& into) {
  int ready = 0, text = 0;
  if (std::sscanf(line, "%lld %d %n", &into.at_ms, &ready, &text) < 2) return false;
  into.ready = ready == 1;
  std::snprintf(into.why, sizeof into.why, "%.*s", static_cast<int>(std::strcspn(line + text, "\n")), line + text);
  for (std::size_t end = std::strlen(into.why); end > 0 && into.why[end - 1] == ' ';) into.why[--end] = '\0';
  return true;
}

}  // namespace corbd::handover
