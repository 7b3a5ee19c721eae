#include "corbd/handover/reserve.hpp"
#include "corbd/v1/admin.grpc.pb.h"
#include "question.hpp"

namespace corbd::cli {
namespace {

struct Alive final : Question<v1::Admin> {
  static constexpr const char* kName = "alive";
  static constexpr const char* kDescription =
      "Check whether the agent answers, for a liveness probe: prints nothing and exits with 0 if it does";

  explicit Alive(CLI::App& command) : Question(command) {
    command.add_flag("--ready", ready,
                     "For a readiness probe: also check that new volumes can be staged, and that the agent is the one "
                     "of this pod; an agent in reserve is ready");
    command
        .add_option("--pod", pod,
                    "UID of this pod: with --ready its own agent must answer; otherwise one that starts or hands over "
                    "is alive too")
        ->envname("POD_UID");
    add_timeout(command, timeout_s);
  }
  /// An agent in reserve serves as soon as nobody else does. If it were not ready, a rollback to its pod would wait for
  /// it for ever.
  int run() override {
    if (ready && !pod.empty() && handover::pod_in_reserve(folder()) == pod) return 0;
    return Question::run();
  }
  int without_agent(const Error& error) override { return lives_unheard() ? 0 : Question::without_agent(error); }
  /// Prints nothing when all is well, because kubelet asks every few seconds.
  int ask(Agent& agent) override {
    if (ready) return own_pod_ready(agent);
    v1::CheckAliveResponse response;
    const std::chrono::seconds limit(timeout_s);
    const auto status = agent.call(&Stub::CheckAlive, v1::CheckAliveRequest(), response, limit);
    if (status.ok() || (agent_left(status) && lives_unheard())) return 0;
    return tell(error_text(status, limit));
  }
  /// While two pods run side by side, both reach the agent that serves. Its answer counts only for its own pod.
  int own_pod_ready(Agent& agent) const {
    v1::GetStatusResponse response;
    if (!answered(agent, &Stub::GetStatus, v1::GetStatusRequest(), response)) return kRefused;
    if (!pod.empty() && response.pod() != pod)
      return tell("the agent of another pod serves (" + for_terminal(response.pod()) +
                  "): this one's has not begun yet");
    if (response.ready()) return 0;
    for (const auto& part : response.components())
      if (part.keeps_from_serving()) tell(for_terminal(part.name()) + ": " + for_terminal(part.text()));
    return kRefused;
  }
  /// Between two agents nobody listens on the admin socket: one hands over, the other takes over. A kill would only
  /// make that longer.
  bool lives_unheard() const { return !ready && handover::pod_lives(folder(), pod); }

  bool ready = false;  ///< asks whether the agent serves, too
  std::string pod;     ///< with `ready`: UID of the pod whose agent must answer; empty: any
};

}  // namespace

void add_alive(CLI::App& app, Chosen& chosen) { add<Alive>(app, chosen); }

}  // namespace corbd::cli
