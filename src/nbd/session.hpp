// Serves one device: passes the requests of its RequestReader to an image, and the results to its ReplyWriter. It waits
// for the socket for both, and begins and ends the link. It lives on one io thread; "io thread" below means that one.
// The control thread reads its state and posts to it.
#pragma once

#include <atomic>
#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <functional>
#include <memory>
#include <string>

#include "corbd/core/fd.hpp"
#include "counters.hpp"
#include "ending.hpp"
#include "inherited_session.hpp"
#include "io_loop.hpp"
#include "ledger.hpp"
#include "link_state.hpp"
#include "link_stats.hpp"
#include "lost_cache.hpp"
#include "reply_writer.hpp"
#include "request_reader.hpp"
#include "request_slots.hpp"
#include "slow_requests.hpp"

namespace corbd::nbd {

class Session final : Budget::Waiter, Batched {
 public:
  /// Callbacks. Each is called at most once, on the io thread.
  struct Notices {
    std::function<void()> stopped;  ///< the state is no longer `serving`
    std::function<void()> ended;    ///< after that, and once the kernel has seen the end of the link
    std::function<void()> idle;     ///< after that, and once no operation of the image is under way
  };
  using State = device::Link::State;

  /// The socket is a connected stream. Counters and image outlive this object. `inherited`: debts of the link's dead
  /// server.
  Session(IoLoop& loop, image::BlockImage& image, const device::ServeOptions& options, Fd socket, Notices notices,
          Counters& counters, std::unique_ptr<InheritedSession> inherited = nullptr);
  ~Session();

  // Callable from any thread.
  const std::shared_ptr<LinkState>& link_state() const { return link_state_; }
  State state() const { return link_state_->state.load(std::memory_order_acquire); }
  int error() const { return error_.load(std::memory_order_acquire); }
  std::uint64_t in_flight() const { return slots_.in_flight(); }
  /// Age of the oldest operation of the image under way, to a few milliseconds; zero when there is none.
  duration oldest() const { return link_state_->oldest(); }
  /// Use it only to read the socket's state. It is closed with this object, or later.
  int socket() const { return fd_; }
  bool fails_flushes() const { return lost_cache_.any(); }
  void accept_loss() { lost_cache_.accept(); }
  device::Figures figures() const { return stats_.read(); }

  // Io thread.
  void start();
  /// Sets the device's identifier, for the log.
  void name(std::string backend) { name_ = std::move(backend); }
  /// The kernel has the other end, for that device. From now on a later process can resume the stream, if the keeper
  /// holds it.
  void keep(std::uint32_t device, const std::string& backend);
  void shut();
  /// The image is cut off from its cluster. The effect is that of an answer that says so.
  void hold();
  /// Calls `told` once everything that was read is answered.
  void drain(std::function<void()> told);
  void undrain();
  /// Ends after drain(), with nothing left to answer and without notice to the peer. Returns a duplicate of the socket
  /// for the next server; nothing if a request or a reply is left.
  Fd hand_over();
  /// The owner leaves: shuts the link, and destroys this object once nothing refers to it any more.
  void detach(std::unique_ptr<Session> self);

 private:
  friend struct Slot;

  // Wake-ups: session.cpp.
  void wait_readable();
  void wait_writable();
  void budget_freed() override;
  void batch_ended() override;

  // The way of a request: session.cpp.
  void turn();
  void submit(Slot& slot, std::int64_t read_us);
  void submit_piece(Slot& slot);
  void finish(Slot& slot);
  bool submit_next_piece(Slot& slot);
  std::uint32_t tell_loss();
  void flush();

  // Debts of a dead server: session_resume.cpp.
  void resume();
  bool keep_instead_of(const InheritedSession& inherited);
  bool let_go();

  // The end: session_end.cpp.
  void stop(State state, int error);
  void end(State state, int error, bool given);
  void hang_up();
  bool quiet() const;
  /// Every entry ends with this call, which may destroy this object.
  void destroy_if_idle();
  bool serving() const { return link_state_->serving(); }

  IoLoop& loop_;
  image::BlockImage& image_;
  Notices notices_;
  Counters& counters_;
  Ending::Stream stream_;
  const int fd_;
  std::shared_ptr<Ending> ending_;  ///< has the stream from the end on, until the kernel has seen it
  std::unique_ptr<Session> self_;   ///< set by detach()

  const std::shared_ptr<LinkState> link_state_ = std::make_shared<LinkState>();
  std::atomic<int> error_{0};
  LostCache lost_cache_;
  bool loss_told_ = false;  ///< the loss is in the log

  std::function<void()> drained_;  ///< callback of drain(); empty: not asked, or called already
  bool told_idle_ = false;
  bool waits_readable_ = false, waits_writable_ = false, waits_turn_ = false;

  RequestSlots slots_{*this, *link_state_};
  LinkStats stats_;
  std::string name_;
  SlowRequests slow_;

  Ledger ledger_;
  bool kept_ = false;                            ///< the keeper has the socket and the ledger for a later process
  std::unique_ptr<InheritedSession> inherited_;  ///< set until this session has taken it over
  ReplyWriter writer_;
  RequestReader reader_;
};

/// Makes the buffer large enough for a large batch, so that a send hardly ever waits.
void enlarge_send_buffer(int socket);
/// Makes a connected pair of stream sockets with enlarged buffers.
result<std::pair<Fd, Fd>> make_socket_pair();

}  // namespace corbd::nbd
