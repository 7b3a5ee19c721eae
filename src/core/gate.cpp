#include "corbd/core/gate.hpp"

#include <cstdio>
#include <cstdlib>
#include <exception>

namespace corbd {

Gate::~Gate() {
  if (count_ != 0) {
    std::fputs("corbd: a gate was destroyed with work under way\n", stderr);
    std::abort();
  }
}

task<void> Gate::run(Gate& gate, task<void> work) {
  struct Leave {
    Gate& gate;
    ~Leave() { gate.leave(); }
  } leave{gate};
  co_await std::move(work);
}

bool Gate::spawn(task<void> work) {
  if (closed_) return false;
  ++count_;
  asio::co_spawn(control_, run(*this, std::move(work)), [](std::exception_ptr failed) {
    if (failed) std::rethrow_exception(failed);
  });
  return true;
}

void Gate::leave() {
  if (--count_ == 0 && closed_) empty_.set();
}

task<Waited> Gate::close(Until until) {
  closed_ = true;
  if (count_ == 0) empty_.set();
  co_return co_await empty_.wait(until);
}

}  // namespace corbd
