// `corbd heal` against a fake agent that only implements the admin service.
#include "answer_from.hpp"
#include "support/catch.hpp"

using namespace corbd;

namespace {

struct Agent final : v1::Admin::Service {
  grpc::Status Heal(grpc::ServerContext*, const v1::HealRequest* request, v1::HealResponse* response) override {
    response->add_volume_ids(request->id());
    if (!is_old) response->set_loss_accepted(request->loss_accepted());
    return grpc::Status::OK;
  }
  grpc::Status GetVolume(grpc::ServerContext*, const v1::GetVolumeRequest*, v1::GetVolumeResponse* response) override {
    response->mutable_volume()->set_health(v1::HEALTH_STAGED);
    return grpc::Status::OK;
  }

  bool is_old = false;  ///< as one that does not know the field
};

test::Answer healed(Agent& agent, std::vector<std::string> flags) {
  std::vector<std::string> words{"heal", "a"};
  words.insert(words.end(), flags.begin(), flags.end());
  return test::answer_from(agent, std::move(words));
}

}  // namespace

TEST_CASE("`corbd heal --loss-accepted` fails if the agent is too old to accept a loss, and only healed") {
  Agent agent;
  agent.is_old = GENERATE(false, true);
  const auto answer = healed(agent, {"--loss-accepted"});
  CHECK(answer.code == (agent.is_old ? 1 : 0));
  CHECK(answer.out.empty() == agent.is_old);
  if (agent.is_old) CHECK_THAT(answer.problems, ContainsSubstring("cannot accept the loss of volume a"));
}

TEST_CASE("`corbd heal` without a word of the operator works with an agent of any age") {
  Agent agent;
  agent.is_old = GENERATE(false, true);
  const auto answer = healed(agent, {});
  CHECK(answer.code == 0);
  CHECK_THAT(answer.out, ContainsSubstring("it is now staged"));
}
