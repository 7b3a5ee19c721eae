#include "corbd/core/clock.hpp"

#include <thread>

#include "corbd/core/utc.hpp"
#include "support/catch.hpp"

using namespace corbd;
using namespace std::chrono_literals;

TEST_CASE("a timer that is cancelled after it is due but before it has run does not run, on either clock") {
  asio::io_context io;
  VirtualClock virtual_clock(io.get_executor());
  const auto real_clock = make_real_clock(io.get_executor());
  const bool real = GENERATE(false, true);
  Clock& clock = real ? *real_clock : static_cast<Clock&>(virtual_clock);
  Clock::TimerId second = 0;
  int ran = 0;
  const auto at = clock.now() + 1ms;
  clock.schedule(at, [&] {
    ++ran;
    clock.cancel(second);
  });
  second = clock.schedule(at + 1ms, [&] { ++ran; });
  const auto now = clock.schedule(clock.now(), [&] { ++ran; });
  clock.cancel(now);
  if (real)
    std::this_thread::sleep_for(5ms);
  else
    virtual_clock.advance(2ms);
  io.run_for(50ms);
  CHECK(ran == 1);
}

TEST_CASE("a time is written in whole seconds of UTC") {
  CHECK(utc_text(std::chrono::system_clock::time_point(1'700'000'000s + 999ms)) == "2023-11-14T22:13:20Z");
}
