// Judges whether the agent has another version than this program, and whether the two are compatible. Pure. The agent
// runs its keeper's own program, so those two always have one version (keeper/process.cpp).
#include "inputs.hpp"

namespace corbd::doctor {
namespace {

std::string said_as(const v1::Program& program) { return program.version() + " (" + program.commit() + ")"; }

}  // namespace

std::string cannot_follow(const v1::Program& serving, const v1::Program& next) {
  const auto number = [](int value) { return std::to_string(value); };
  if (serving.handover_protocol() != next.handover_protocol())
    return "the agent has handover protocol " + number(serving.handover_protocol()) + ", this program has " +
           number(next.handover_protocol());
  if (next.record_version() < serving.record_version())
    return "the agent may have written records of version " + number(serving.record_version()) +
           ", this program reads only up to " + number(next.record_version());
  return {};
}

Finding judge_versions(const Inputs& inputs) {
  const char* check = "versions";
  const std::string own = "this program is " + said_as(inputs.own);
  if (!inputs.status || !inputs.status->has_program()) return ok(check, own);
  const auto& serving = inputs.status->program();
  if (serving.version() == inputs.own.version() && serving.commit() == inputs.own.commit())
    return ok(check, own + ", and so are the agent and its keeper");
  const std::string said = own + ", the agent and its keeper are " + said_as(serving);
  const std::string why = cannot_follow(serving, inputs.own);
  if (why.empty())
    return warning(
        check, said + "; they are compatible",
        "`systemctl reload corbd`, or a rollout of this version's pods, hands the devices over to this program");
  return warning(check, said + "; they are not compatible: " + why,
                 "run `corbd drain`, wait until it ends, then start this version's agent (docs/compatibility.md)");
}

}  // namespace corbd::doctor
