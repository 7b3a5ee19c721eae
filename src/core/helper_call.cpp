#include "corbd/core/helper_call.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>

#include "corbd/core/log.hpp"
#include "corbd/core/secret.hpp"
#include "helper_wire.hpp"

namespace corbd {
namespace {

using helper_wire::Got;

void wait_for_answer(const helper_wire::Child& helper, const HelperRequest& request) {
  pollfd answered{helper.socket.get(), POLLIN, 0};
  const auto patience = static_cast<int>(std::chrono::milliseconds(request.report_after).count());
  if (::poll(&answered, 1, patience) == 0)
    log::error("helper.stuck", {{"what", request.what},
                                {"pid", helper.pid},
                                {"after_s", static_cast<std::int64_t>(request.report_after.count())}});
  while (::poll(&answered, 1, -1) < 0 && errno == EINTR) {
  }
}

result<boost::json::object> ask(const helper_wire::Child& helper, const HelperRequest& request) {
  std::string asked = helper_wire::pack_request(request);
  const int refused = helper_wire::send(helper.socket.get(), asked);
  wipe(asked);
  if (refused != 0) return Error{errc::unavailable, request.what + ": asking the helper: " + std::strerror(refused)};
  std::string message;
  Got got = Got::nothing;
  while (got == Got::nothing) {
    wait_for_answer(helper, request);
    got = helper_wire::receive(helper.socket.get(), MSG_DONTWAIT, message);
  }
  if (got == Got::closed) return Error{errc::unavailable, "the helper died: " + request.what};
  return helper_wire::unpack_reply(message);
}

}  // namespace

result<boost::json::object> call_helper(const HelperRequest& request, const HelperProgram& program) {
  auto helper = helper_wire::spawn(program.program, program.arguments);
  if (!helper) return with_context(request.what, helper.error());
  auto reply = ask(*helper, request);
  // The helper ends when its socket closes.
  helper->socket.reset();
  siginfo_t info{};
  ::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(helper->pidfd.get()), &info, WEXITED);
  return reply;
}

}  // namespace corbd
