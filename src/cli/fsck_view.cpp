#include "fsck_view.hpp"

#include <chrono>

#include "corbd/core/display.hpp"

namespace corbd::cli {

std::string fsck_progress(const std::string& id, const v1::FsckResponse& check) {
  if (check.state() == v1::CHECK_WAITS)
    return "waiting for the next stage of volume " + for_terminal(id) + " for " +
           duration_text(std::chrono::milliseconds(check.lasts_ms())) +
           ": a pod on this node must use it (kubelet repeats a refused stage within about two minutes)";
  return std::string(check.repair() ? "repairing " : "checking ") + for_terminal(check.device()) + " for " +
         duration_text(std::chrono::milliseconds(check.lasts_ms()));
}

std::string fsck_gave_up(const std::string& id, const v1::FsckResponse& check, int seconds) {
  if (check.state() == v1::CHECK_WAITS)
    return "volume " + for_terminal(id) + " was not staged here within " + std::to_string(seconds) +
           " s, so nothing was done yet: start a pod that uses it on this node, and repeat this. A stage that is "
           "read-only "
           "checks nothing. A stage within the next 15 s still does what was asked";
  return "the checker still works on " + for_terminal(check.device()) +
         " and goes on: the agent's log has its end (fsck.by_hand_ended)";
}

std::string fsck_result(const std::string& id, const v1::FsckResponse& check) {
  const std::string what = "volume " + for_terminal(id);
  if (check.has_failure()) return what + " was not checked: " + for_terminal(check.failure().text()) + "\n";
  const std::string found = check.clean()    ? "no error is left"
                            : check.repair() ? "errors are left, or the checker could not work"
                                             : "it has errors, or the checker could not work; nothing was changed";
  return what + ": " + found + "\n`" + for_terminal(check.command()) + "` said: " + for_terminal(check.report()) + "\n";
}

}  // namespace corbd::cli
