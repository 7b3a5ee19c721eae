#include "corbd/core/gate.hpp"

#include <exception>
#include <utility>

#include "corbd/core/expect.hpp"

namespace corbd {

Gate::~Gate() { expect(count_ == 0, "a gate outlives the work that it let in"); }

/// Lies in the frame before the task begins. So a task that ends with its io_context before its first step leaves the
/// gate too.
class Gate::Pass {
 public:
  explicit Pass(Gate& gate) : gate_(&gate) { ++gate_->count_; }
  Pass(Pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
  Pass& operator=(Pass&&) = delete;
  ~Pass() {
    if (gate_ != nullptr) gate_->leave();
  }

 private:
  Gate* gate_;
};

task<void> Gate::run(Pass pass, task<void> work) {
  // Leave the gate when the work is done, not when the frame is destroyed.
  const Pass until_the_end = std::move(pass);
  co_await std::move(work);
}

bool Gate::spawn(task<void> work) {
  expect_control_thread();
  if (closed_) return false;
  asio::co_spawn(control_, run(Pass(*this), std::move(work)), [](std::exception_ptr failed) {
    if (failed) std::rethrow_exception(failed);
  });
  return true;
}

void Gate::leave() {
  if (--count_ == 0 && closed_) empty_.set();
}

task<Waited> Gate::close(Until until) {
  expect_control_thread();
  closed_ = true;
  if (count_ == 0) empty_.set();
  co_return co_await empty_.wait(until);
}

}  // namespace corbd
