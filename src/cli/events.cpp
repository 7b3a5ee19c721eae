#include <utility>

#include "corbd/v1/admin.grpc.pb.h"
#include "question.hpp"
#include "view.hpp"

namespace corbd::cli {
namespace {

using std::chrono::seconds;

constexpr seconds kFollowWait{30};
constexpr seconds kGrace{10};  ///< for the answer, added to the wait that was asked for

struct ShowEvents final : Question<v1::Admin> {
  static constexpr const char* kName = "events";
  static constexpr const char* kDescription = "Show the latest state changes of all volumes";

  explicit ShowEvents(CLI::App& command) : Question(command) {
    command.add_flag("-f,--follow", follow, "Keep printing new changes, even across a restart of the agent");
    add_output(command, {"text", "json"});
  }
  /// Prints every page that exists already. With --follow it also prints later ones, until nobody reads any more.
  int ask(Agent& agent) override {
    v1::NextEventsRequest request;
    bool gone = false;
    for (;;) {
      v1::NextEventsResponse page;
      const auto status = agent.call(&Stub::NextEvents, request, page, seconds(request.wait_ms() / 1000) + kGrace);
      if (!status.ok()) {
        if (!follow || request.run() == 0 || !agent_left(status)) return tell(error_text(status, kGrace));
        if (!std::exchange(gone, true)) tell("the agent is gone; waiting for the next one");
        request.set_wait_ms(0);
        agent.wait_for_agent();
        continue;
      }
      if (std::exchange(gone, false)) tell("an agent answers again");
      if (!show(page)) return kRefused;
      if (!follow && page.events().empty()) return 0;
      request.set_run(page.run());
      request.set_after(page.last());
      if (follow) request.set_wait_ms(static_cast<std::uint32_t>(std::chrono::milliseconds(kFollowWait).count()));
    }
  }
  bool show(const v1::NextEventsResponse& page) const {
    if (page.missed() > 0)
      tell(std::to_string(page.missed()) + " events came too fast to be shown here; the agent's log has them");
    for (const auto& change : page.events())
      if (!(json() ? print(rpc::json_of(change)) : print(event_line(change) + "\n"))) return false;
    return true;
  }

  bool follow = false;
};

}  // namespace

void add_events(CLI::App& app, Chosen& chosen) { add<ShowEvents>(app, chosen); }

}  // namespace corbd::cli
