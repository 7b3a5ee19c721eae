// Expectations: sentences that must hold. A program that finds one of them false no longer knows what else is true, so
// it aborts with the sentence. The devices wait, and the next start heals them.
#pragma once

#include <source_location>

namespace corbd {

[[noreturn]] void broken_expectation(const char* sentence, const std::source_location& where) noexcept;

inline void expect(bool holds, const char* sentence,
                   const std::source_location& where = std::source_location::current()) noexcept {
  if (!holds) [[unlikely]]
    broken_expectation(sentence, where);
}

/// Threads that must not touch what belongs to the control thread say so when they begin. A thread that did not may be
/// the control thread: a test's, a command's.
enum class ThreadKind : unsigned char { any, io, pool };
inline thread_local ThreadKind this_thread_is = ThreadKind::any;

inline void expect_control_thread(const std::source_location& where = std::source_location::current()) noexcept {
  expect(this_thread_is == ThreadKind::any, "this belongs to the control thread", where);
}

}  // namespace corbd
