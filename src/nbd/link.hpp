// The control thread's view of a session.
#pragma once

#include <memory>

#include "session.hpp"

namespace corbd::nbd {

/// The end of the pair for the kernel. A command on the netlink thread shares it, and only that thread uses it
/// meanwhile. A command outlives the wait for it. By then it must not name a descriptor that belongs to somebody else,
/// and must not forget that the kernel took it.
struct KernelEnd {
  Fd socket;
  std::optional<std::uint32_t> index;  ///< index of the device that has it
};

class NbdLink final : public device::Link {
 public:
  NbdLink(executor control, Clock& clock, IoLoop& loop, image::BlockImage& image, device::ServeOptions options,
          Fd socket, Fd kernel_end, std::function<void()> on_stopped, Counters& counters,
          std::unique_ptr<InheritedSession> inherited = nullptr);
  ~NbdLink() override;
  NbdLink(const NbdLink&) = delete;
  NbdLink& operator=(const NbdLink&) = delete;

  State state() const override { return session_->state(); }
  int error() const override { return session_->error(); }
  std::uint64_t in_flight() const override { return session_->in_flight(); }
  duration oldest() const override { return session_->oldest(); }
  image::Range oldest_range() const override { return session_->link_state()->oldest_range(); }
  bool fails_flushes() const override { return session_->fails_flushes(); }
  void accept_loss() override { session_->accept_loss(); }
  device::Figures figures() const override { return session_->figures(); }
  void shut() override;
  void hold() override;
  task<Waited> ended(Until until) override;
  task<Waited> idle(Until until) override;
  task<Waited> drain(Until until) override;
  void undrain() override;
  task<result<Fd>> hand_over(Until until) override;

  const std::shared_ptr<KernelEnd>& kernel_end() const { return kernel_end_; }
  const std::shared_ptr<LinkState>& link_state() const { return session_->link_state(); }
  int socket() const { return session_->socket(); }
  /// Sets the identifier of the device that it goes to, for the log.
  void name(std::string backend);
  /// The kernel has the other end, for that device.
  void keep(std::uint32_t device, std::string backend);
  /// The link was another process's. The kernel has had the other end all the time, for that device.
  void assign_to(std::uint32_t device) { assigned_to_ = kernel_end_->index = device; }
  bool assigned_to(std::uint32_t device) const { return assigned_to_ == device; }
  /// Whether the peer is still there.
  bool connected() const;

 private:
  void close_unused_end();
  executor control_;
  Clock& clock_;
  IoLoop& loop_;
  std::shared_ptr<KernelEnd> kernel_end_;
  std::optional<std::uint32_t> assigned_to_;
  const std::shared_ptr<Event> ended_, idle_;
  std::shared_ptr<Event> drained_;  ///< set by the end of the present drain
  std::unique_ptr<Session> session_;
};

/// Whether the peer of a stream socket is gone, even with bytes left to read.
bool hung_up(int socket);

/// Serves the peer of a connected stream socket.
inline std::unique_ptr<NbdLink> serve_socket(executor control, Clock& clock, IoLoop& loop, image::BlockImage& image,
                                             Fd socket, Counters& counters, bool read_only = false,
                                             std::function<void()> on_stopped = {}) {
  return std::make_unique<NbdLink>(std::move(control), clock, loop, image, read_only, std::move(socket), Fd(),
                                   std::move(on_stopped), counters);
}

}  // namespace corbd::nbd
