#include "netlink.hpp"

#include <linux/nbd-netlink.h>
#include <linux/nbd.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "netlink_message.hpp"

namespace corbd::nbd {
namespace {

// A disconnected device stays, for the next program that connects its number: rbd-nbd 16.2 lists devices until the
// first missing number. This also holds for devices that an earlier version made differently.
constexpr std::uint64_t kStays = 0;

/// NBD_FLAG_SEND_WRITE_ZEROES, which headers before Linux 6.12 lack. Such a kernel ignores it.
constexpr std::uint64_t kSendWriteZeroes = 1 << 6;

constexpr const char* kNoDriver =
    "the kernel's nbd driver is not loaded: run `modprobe nbd nbds_max=0` on the node (before Linux 6.4 it is visible "
    "only in the host's network namespace)";

Error kernel_error(int number, const std::string& what) {
  const std::string text = what + ": " + std::strerror(number);
  switch (number) {
    case EPERM:
    case EACCES:
      return {errc::permission_denied, text + ": the agent needs CAP_SYS_ADMIN in the initial user namespace"};
    case ENOENT:
      return {errc::failed_precondition, text + ": " + kNoDriver};
    case EBUSY:
      return {errc::in_use, text + ": the kernel is setting the device up or taking it down, or somebody has it open"};
    case ENOMEM:
    case ENOSPC:
      return {errc::exhausted, text};
    default:
      return {errc::unavailable, text};
  }
}

using Callbacks = std::unique_ptr<nl_cb, decltype(&::nl_cb_put)>;

/// Only the handlers that are set run. We compare the sequence numbers ourselves.
Callbacks make_callbacks() {
  Callbacks callbacks(::nl_cb_alloc(NL_CB_CUSTOM), &::nl_cb_put);
  if (callbacks)
    ::nl_cb_set(callbacks.get(), NL_CB_SEQ_CHECK, NL_CB_CUSTOM, [](nl_msg*, void*) -> int { return NL_OK; }, nullptr);
  return callbacks;
}

}  // namespace

/// Answer to one sequence number.
struct Netlink::Answer {
  std::uint32_t sequence = 0;
  std::optional<int> error;  ///< errno of the acknowledgement; 0 is success
  std::optional<std::uint32_t> index;

  static int on_message(nl_msg* message, void* into) {
    auto& answer = *static_cast<Answer*>(into);
    if (::nlmsg_hdr(message)->nlmsg_seq != answer.sequence) return NL_SKIP;
    if (const auto index = index_of(message)) answer.index = index;
    return NL_OK;
  }
  static int on_ack(nl_msg* message, void* into) {
    auto& answer = *static_cast<Answer*>(into);
    if (::nlmsg_hdr(message)->nlmsg_seq == answer.sequence) answer.error = 0;
    return NL_OK;
  }
  static int on_error(sockaddr_nl*, nlmsgerr* error, void* into) {
    auto& answer = *static_cast<Answer*>(into);
    if (error->msg.nlmsg_seq == answer.sequence) answer.error = -error->error;
    return NL_SKIP;
  }
};

void Netlink::Free::operator()(nl_sock* socket) const { ::nl_socket_free(socket); }

result<Netlink> Netlink::open() {
  std::unique_ptr<nl_sock, Free> socket(::nl_socket_alloc());
  if (!socket) return Error{errc::exhausted, "no memory for a netlink socket"};
  // Without this, libnl waits for an acknowledgement of the last message, and takes another command's for it.
  ::nl_socket_disable_auto_ack(socket.get());
  // libnl has no error of its own for a process without descriptors.
  if (const int failed = ::genl_connect(socket.get()); failed != 0)
    return Error{errno == EMFILE || errno == ENFILE ? errc::exhausted : errc::unavailable,
                 std::string("opening a netlink socket: ") + ::nl_geterror(failed) + ": " + std::strerror(errno)};
  const int family = ::genl_ctrl_resolve(socket.get(), NBD_GENL_FAMILY_NAME);
  if (family < 0) return Error{errc::failed_precondition, std::string(kNoDriver) + ": " + ::nl_geterror(family)};
  return Netlink(std::move(socket), family);
}

result<Netlink::Answer> Netlink::transact(Message& message, const std::string& what) {
  const auto callbacks = make_callbacks();
  if (!message.good() || !callbacks) return Error{errc::exhausted, what + ": no memory for the netlink message"};
  if (const int failed = ::nl_send_auto(socket_.get(), message.raw()); failed < 0)
    return Error{errc::unavailable, what + ": " + ::nl_geterror(failed)};
  Answer answer;
  answer.sequence = ::nlmsg_hdr(message.raw())->nlmsg_seq;
  ::nl_cb_set(callbacks.get(), NL_CB_VALID, NL_CB_CUSTOM, Answer::on_message, &answer);
  ::nl_cb_set(callbacks.get(), NL_CB_ACK, NL_CB_CUSTOM, Answer::on_ack, &answer);
  ::nl_cb_err(callbacks.get(), NL_CB_CUSTOM, Answer::on_error, &answer);
  int received = 0;
  while (!answer.error && received >= 0) received = ::nl_recvmsgs(socket_.get(), callbacks.get());
  if (!answer.error) return Error{errc::unavailable, what + ": " + ::nl_geterror(received)};
  return answer;
}

std::uint64_t server_flags(const device::ConnectArgs& args, bool write_zeroes) {
  std::uint64_t flags = NBD_FLAG_HAS_FLAGS;
  if (args.send_flush) flags |= NBD_FLAG_SEND_FLUSH | NBD_FLAG_SEND_FUA;
  if (args.trim) flags |= NBD_FLAG_SEND_TRIM;
  if (args.read_only) flags |= NBD_FLAG_READ_ONLY;
  // The kernel (from 6.12) never takes this flag back from a number (rule 21).
  if (write_zeroes && args.trim && !args.read_only) flags |= kSendWriteZeroes;
  return flags;
}

result<std::uint32_t> Netlink::connect(const device::ConnectArgs& args, bool write_zeroes, std::uint32_t index,
                                       int socket) {
  const std::string what = "connecting an nbd device for " + args.backend;
  Message message(family_, NBD_CMD_CONNECT);
  message.u32(NBD_ATTR_INDEX, index);
  // Omit NBD_ATTR_TIMEOUT, which would kill slow I/O.
  message.u64(NBD_ATTR_SIZE_BYTES, args.size)
      .u64(NBD_ATTR_BLOCK_SIZE_BYTES, args.block_size)
      .u64(NBD_ATTR_SERVER_FLAGS, server_flags(args, write_zeroes))
      .u64(NBD_ATTR_CLIENT_FLAGS, kStays)
      .u64(NBD_ATTR_DEAD_CONN_TIMEOUT, args.dead_conn_timeout_s)
      .text(NBD_ATTR_BACKEND_IDENTIFIER, args.backend)
      .socket(socket);
  const auto answer = transact(message, what);
  if (!answer) return answer.error();
  if (*answer->error == EINVAL)
    return Error{errc::failed_precondition, what + ": the kernel refuses " + std::to_string(args.size) +
                                                " bytes in blocks of " + std::to_string(args.block_size)};
  if (*answer->error != 0) return kernel_error(*answer->error, what);
  if (!answer->index) return Error{errc::internal, what + ": the kernel did not say which device it is"};
  return *answer->index;
}

result<> Netlink::reconfigure(const device::ReconnectArgs& args, int socket) {
  const std::string what = "reconnecting " + device::path(args.index) + " of " + args.backend;
  Message message(family_, NBD_CMD_RECONFIGURE);
  // Never send a size: a changed size on a dead link hangs nbd for ever on kernels from 6.9.
  message.u32(NBD_ATTR_INDEX, args.index)
      .u64(NBD_ATTR_CLIENT_FLAGS, kStays)
      .u64(NBD_ATTR_DEAD_CONN_TIMEOUT, args.dead_conn_timeout_s)
      .text(NBD_ATTR_BACKEND_IDENTIFIER, args.backend)
      .socket(socket);
  // This also resets the queue's io_timeout to the default. On our own devices the value must stay.
  if (args.foreign) message.u64(NBD_ATTR_TIMEOUT, 0);
  const auto answer = transact(message, what);
  if (!answer) return answer.error();
  if (*answer->error == EINVAL)
    return Error{errc::not_found, what + ": the device is no longer configured, or belongs to another volume"};
  if (*answer->error != 0) return kernel_error(*answer->error, what);
  return {};
}

result<> Netlink::resize(std::uint32_t index, const std::string& backend, std::uint64_t bytes) {
  const std::string what =
      "resizing " + device::path(index) + " of " + backend + " to " + std::to_string(bytes) + " bytes";
  Message message(family_, NBD_CMD_RECONFIGURE);
  message.u32(NBD_ATTR_INDEX, index).u64(NBD_ATTR_SIZE_BYTES, bytes).text(NBD_ATTR_BACKEND_IDENTIFIER, backend);
  const auto answer = transact(message, what);
  if (!answer) return answer.error();
  if (*answer->error != 0) return kernel_error(*answer->error, what);
  return {};
}

result<> Netlink::disconnect(std::uint32_t index) {
  const std::string what = "disconnecting " + device::path(index);
  Message message(family_, NBD_CMD_DISCONNECT);
  message.u32(NBD_ATTR_INDEX, index);
  const auto answer = transact(message, what);
  if (!answer) return answer.error();
  // EINVAL: no such device, or it is going already.
  if (*answer->error != 0 && *answer->error != EINVAL) return kernel_error(*answer->error, what);
  return {};
}

result<> Netlink::hear_dead_links() {
  const int group = ::genl_ctrl_resolve_grp(socket_.get(), NBD_GENL_FAMILY_NAME, NBD_GENL_MCAST_GROUP_NAME);
  const int failed = group < 0 ? group : ::nl_socket_add_membership(socket_.get(), group);
  if (failed != 0)
    return Error{errc::unavailable, std::string("joining nbd's netlink group: ") + ::nl_geterror(failed)};
  ::nl_socket_set_nonblocking(socket_.get());
  return {};
}

int Netlink::fd() const { return ::nl_socket_get_fd(socket_.get()); }

std::vector<std::uint32_t> Netlink::read_dead_links() {
  std::vector<std::uint32_t> dead;
  const auto heard = [](nl_msg* message, void* into) -> int {
    const auto index = ::genlmsg_hdr(::nlmsg_hdr(message))->cmd == NBD_CMD_LINK_DEAD ? index_of(message) : std::nullopt;
    if (index) static_cast<std::vector<std::uint32_t>*>(into)->push_back(*index);
    return NL_OK;
  };
  const auto callbacks = make_callbacks();
  if (!callbacks) return dead;
  ::nl_cb_set(callbacks.get(), NL_CB_VALID, NL_CB_CUSTOM, heard, &dead);
  while (::nl_recvmsgs(socket_.get(), callbacks.get()) >= 0) {
  }
  return dead;
}

}  // namespace corbd::nbd
