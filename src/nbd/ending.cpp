#include "ending.hpp"

#include <boost/asio/post.hpp>
#include <utility>

#include "corbd/core/log.hpp"
#include "corbd/device/link_end.hpp"

namespace corbd::nbd {

Ending::Ending(IoLoop& loop, Stream stream) : loop_(loop), stream_(std::move(stream)), patience_(loop.io()) {
  ++loop_.ending;
}

Ending::~Ending() {
  if (!ended_) --loop_.ending;
}

void Ending::begin(std::function<void()> ended) {
  tell_ = std::move(ended);
  device::begin_end(stream_.native_handle());
  patience_.expires_after(device::kEndsWithin);
  patience_.async_wait([self = shared_from_this()](boost::system::error_code stopped) {
    if (stopped || self->ended_) return;
    device::log_cut(1);
    device::cut(self->stream_.native_handle());
  });
  asio::post(loop_.io(), [self = shared_from_this()] { self->wait_for_end(); });
}

void Ending::wait_for_end() {
  if (device::discard_input(stream_.native_handle()) != device::Input::ended) {
    stream_.async_wait(asio::posix::descriptor_base::wait_read,
                       [self = shared_from_this()](boost::system::error_code) { self->wait_for_end(); });
    return;
  }
  ended_ = true;
  --loop_.ending;
  patience_.cancel();
  std::exchange(tell_, {})();
}

}  // namespace corbd::nbd
