// `corbd drain` against a fake agent that only implements the admin service.
#include <atomic>

#include "answer_from.hpp"
#include "support/catch.hpp"

using namespace corbd;

namespace {

/// Lists one volume until the status was read `looks_until_empty` times. Somebody undoes the drain at the read number
/// `looks_until_undone`.
struct Agent final : v1::Admin::Service {
  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest* request, v1::DrainResponse* response) override {
    ++drains;
    draining = !request->undo();
    response->add_volume_ids("a");
    return grpc::Status::OK;
  }
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*, v1::GetStatusResponse* response) override {
    if (++looks == looks_until_undone) draining = false;
    response->set_draining(draining);
    return grpc::Status::OK;
  }
  grpc::Status ListVolumes(grpc::ServerContext*, const v1::ListVolumesRequest*,
                           v1::ListVolumesResponse* response) override {
    if (looks < looks_until_empty) response->add_volumes()->set_id("a");
    return grpc::Status::OK;
  }

  std::atomic<int> drains = 0, looks = 0;
  int looks_until_undone = 1000, looks_until_empty = 1000;
  std::atomic<bool> draining = false;
};

/// The exit code, and the text on stdout and stderr.
std::pair<int, std::string> drained(Agent& agent) {
  const auto answer = test::answer_from(agent, {"drain"});
  return {answer.code, answer.out + answer.problems};
}

}  // namespace

TEST_CASE("`corbd drain` sets the cordon once, waits for the volumes, and ends with the last one") {
  Agent agent;
  agent.looks_until_empty = 2;
  const auto [code, said] = drained(agent);
  CHECK(code == 0);
  CHECK_THAT(said, ContainsSubstring("1 left: a") && ContainsSubstring("no volume is left"));
  CHECK(agent.drains == 1);
  CHECK(agent.draining);
}

TEST_CASE("a drain that somebody undoes stays undone, and the waiting command reports that and fails") {
  Agent agent;
  agent.looks_until_undone = 2;
  const auto [code, said] = drained(agent);
  CHECK(code == 1);
  CHECK_THAT(said, ContainsSubstring("the drain was undone"));
  CHECK_FALSE(agent.draining);
}
