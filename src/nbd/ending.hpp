// The end of a link, on an io thread.
#pragma once

#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>

#include "io_loop.hpp"

namespace corbd::nbd {

/// Discards the kernel's bytes until the kernel has ended its side, and closes the socket when nobody else has this
/// object any more. It keeps itself alive until then.
class Ending final : public std::enable_shared_from_this<Ending> {
 public:
  using Stream = asio::posix::basic_stream_descriptor<asio::io_context::executor_type>;
  /// Callable from any thread. The link counts among the loop's `ending` from now on.
  Ending(IoLoop& loop, Stream stream);
  ~Ending();
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

  /// Call it once, on the io thread. Nobody can read on any more. `ended` is called later, once, on the io thread: the
  /// link is dead.
  void begin(std::function<void()> ended);

 private:
  void wait_for_end();

  IoLoop& loop_;
  Stream stream_;
  asio::steady_timer patience_;
  bool ended_ = false;
  std::function<void()> tell_;
};

}  // namespace corbd::nbd
