#include "release.hpp"

#include <utility>

namespace corbd::volume {
namespace {

/// Ends like every link that is not resumed (Devices::end_links), also if the agent leaves.
void keep(const Volume& volume, const Ports& ports, Fd socket) {
  ports.devices.of(volume.record->device.kind).take(*volume.record->device.index, volume.id, std::move(socket));
}

task<result<>> end_link(Volume& volume, Until until) {
  if (const Waited idle = co_await volume.server.link()->idle(until); idle != Waited::ready)
    co_return wait_error(idle, "the link of volume " + volume.id);
  static_cast<void>(take_link(volume));
  co_return result<>();
}

}  // namespace

task<result<Fd>> release(Volume& volume, const Ports& ports, For whom, Until drained_by, Until closed_by) {
  if (const Waited drained = co_await volume.server.link()->drain(drained_by); drained != Waited::ready)
    co_return wait_error(drained, "the requests of volume " + volume.id);
  OwnImage& open = *volume.server.own();
  if (open.right != WriteRight::none) {
    open.lock_kept = LockKept::unsure;
    if (auto kept = co_await volume.server.image()->keep_lock(closed_by); !kept) co_return kept.error();
    open.lock_kept = LockKept::yes;
  }
  // The end of its link is no failure.
  const WriteRight right = std::exchange(open.right, WriteRight::none);
  volume.server.set_connected(false);
  // Set no deadline: a socket that came later would have no owner. The io thread never waits.
  auto socket = co_await volume.server.link()->hand_over({});
  if (!socket) {
    // keep_lock() made the image stop watching its lock, so it is not served on.
    if (!*open.access_lost) open.right = right;
    co_return socket.error();
  }
  auto closed = co_await end_link(volume, closed_by);
  // An image may close for as long as the cluster is silent, and the agent may leave meanwhile.
  if (whom == For::this_agent) keep(volume, ports, std::exchange(*socket, Fd()));
  if (closed) closed = co_await volume.server.image()->close(closed_by);
  if (closed) co_return std::move(*socket);
  if (whom == For::next_agent) keep(volume, ports, std::move(*socket));
  co_return closed.error();
}

}  // namespace corbd::volume
