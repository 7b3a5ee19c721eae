// Calls of the agent's ports under way: outside of the agent, which may leave or die meanwhile. And the failures of
// single calls.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "corbd/core/helper_owner.hpp"
#include "corbd/core/wait.hpp"
#include "corbd/device/device.hpp"
#include "support/world/hazards.hpp"

namespace corbd::test {

class World;

class Calls {
 public:
  /// `first`: the same node's other process. Helpers outlive both.
  explicit Calls(World& world, Calls* first = nullptr)
      : world_(world), helpers_(first != nullptr ? first->helpers_ : own_helpers_) {}

  /// Kills the agent before the Nth port call from now (0: never), or after it took effect.
  int crash_at = 0, crash_after_at = 0;
  /// Kills the agent before the next port call of that name ("acquire lock").
  std::string crash_in;
  /// Makes the Nth port call from now fail with `error` (0: never), or fail after it took effect.
  int fail_at = 0, fail_after_at = 0;
  Error error{errc::unavailable, "made to fail"};
  std::function<void(const std::string& call)> before_call;
  /// Delays the effect of the next port call of that name by 90 s.
  std::string delayed;
  int made = 0;

  // Used by the ports.
  using Effect = std::function<result<>()>;
  /// Makes a call that reaches the cluster as client `by`, with its effect there. It goes on if the caller's wait ends
  /// first. `header`: an operation on the header of the image with that id; these run one after the other.
  task<result<>> ask_cluster(std::string call, std::string by, Until until, Effect effect, std::string header = {});
  /// Makes a call to the kernel or a file.
  task<result<>> ask_node(std::string call, Until until, Effect effect);
  /// Makes a call to a KMS, which is outside of the node and of the cluster: a request that was sent is carried out
  /// there, even if its sender has left or died. `repeats`: a lost connection may send it again.
  task<result<>> ask_kms(std::string call, Until until, Effect effect, bool repeats = false);
  struct DriverCommand {
    Effect effect;
    std::function<void()> begins = {};                ///< called when its turn has come
    std::function<void(const result<>&)> ended = {};  ///< called with its result
    Effect may = {};                                  ///< last check before it begins
    std::optional<std::uint32_t> freezes = {};        ///< freezes a device until its requests in flight are answered
    bool by_helper = false;                           ///< runs in a helper, which outlives the agent
  };
  /// Makes a call to the kernel's nbd driver: commands that nobody takes back, one after another. A command that was
  /// begun takes effect also after the caller has left, and is under way until its end is known.
  task<result<>> ask_driver(std::string call, std::string backend, Until until, DriverCommand command);
  /// Makes a call in a helper process, which waits as long as the device has no server, and outlives the agent.
  task<result<>> ask_helper(std::string call, std::optional<std::uint32_t> device, HelperOwner owner, Until until,
                            Effect effect);
  struct Asked;
  struct UnderWay {
    std::string backend;
    device::Command told;
    std::shared_ptr<Asked> asked = {};
  };
  std::list<UnderWay> under_way;  ///< commands to the driver in this life; the first one has begun
  /// Whether a helper works under that lock.
  bool busy(const std::string& file) const;
  /// Wakes helpers that wait for a device, because it has a server, or will never have one.
  void wake_helpers(std::uint32_t index);
  /// Ends the agent's process.
  void end();
  /// Ends the helpers, with the machine.
  void end_helpers();

 private:
  struct Reply;
  struct HelperJob;
  Fate next_fate(const std::string& call);
  task<> die();
  void perform(std::shared_ptr<Asked> asked);
  void begin_command();
  void perform_command(const std::shared_ptr<Asked>& asked);
  void finish(const std::shared_ptr<Asked>& asked, result<> value);
  void deliver(const std::shared_ptr<Asked>& asked, result<> value);
  void run_helper(const std::shared_ptr<HelperJob>& job);

  World& world_;
  std::vector<std::shared_ptr<Asked>> in_syscall_;
  std::vector<std::shared_ptr<HelperJob>> own_helpers_;
  std::vector<std::shared_ptr<HelperJob>>& helpers_;
  std::map<std::string, time_point> last_asked_;  ///< by client: when its last operation on a header takes effect
};

}  // namespace corbd::test
