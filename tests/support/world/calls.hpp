// Calls of the agent's ports on their way: outside of the agent, which may leave or die meanwhile. And what goes wrong
// with one of them.
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
  /// `first`: of the same node's other process. Helpers outlive both.
  explicit Calls(World& world, Calls* first = nullptr)
      : world_(world), helpers_(first != nullptr ? first->helpers_ : own_helpers_) {}

  /// Before the Nth port call from now the agent dies (0: never); after it, once it had its effect.
  int crash_at = 0, crash_after_at = 0;
  /// Before the next port call of that name ("acquire lock") the agent dies.
  std::string crash_in;
  /// The Nth port call from now fails with `error` (0: never); after it had its effect.
  int fail_at = 0, fail_after_at = 0;
  Error error{errc::unavailable, "made to fail"};
  std::function<void(const std::string& call)> before_call;
  /// The next port call of that name takes effect after 90 s.
  std::string delayed;
  int made = 0;

  // For the ports.
  using Effect = std::function<result<>()>;
  /// A call that reaches the cluster as client `by`, and what it does there. It goes on when the caller's wait ends
  /// first. `header`: of the image with that id, one after the other.
  task<result<>> ask_cluster(std::string call, std::string by, Until until, Effect effect, std::string header = {});
  /// The same of the kernel or of a file.
  task<result<>> ask_node(std::string call, Until until, Effect effect);
  /// The same of a KMS, which is outside of the node and of the cluster: what was sent is done there, whoever has left
  /// or died. `repeats`: a lost connection may have it sent again.
  task<result<>> ask_kms(std::string call, Until until, Effect effect, bool repeats = false);
  struct DriverCommand {
    Effect effect;
    std::function<void()> begins = {};                ///< its turn has come
    std::function<void(const result<>&)> ended = {};  ///< that is told
    Effect may = {};                                  ///< looked at last
    std::optional<std::uint32_t> freezes = {};        ///< a device, until its requests in flight are answered
    bool by_helper = false;                           ///< which outlives the agent
  };
  /// The same of the kernel's nbd driver: commands that nobody takes back, one after another. One that was begun has
  /// its effect also after the caller has left, and until its end is told it is under way.
  task<result<>> ask_driver(std::string call, std::string backend, Until until, DriverCommand command);
  /// The same of a helper process, which waits as long as the device has no server, and outlives the agent.
  task<result<>> ask_helper(std::string call, std::optional<std::uint32_t> device, HelperOwner owner, Until until,
                            Effect effect);
  struct Asked;
  struct UnderWay {
    std::string backend;
    device::Command told;
    std::shared_ptr<Asked> asked = {};
  };
  std::list<UnderWay> under_way;  ///< commands to the driver, of this life; the first one has begun
  /// Whether a helper works under that lock.
  bool busy(const std::string& file) const;
  /// The device has a server, or will never have one: helpers that wait for it look again.
  void wake_helpers(std::uint32_t index);
  /// The agent's process ends.
  void end();
  /// The machine does.
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
  std::map<std::string, time_point> last_asked_;  ///< when the last operation on a header takes effect, by client
};

}  // namespace corbd::test
