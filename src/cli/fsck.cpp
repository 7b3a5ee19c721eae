#include <unistd.h>

#include <thread>
#include <utility>

#include "corbd/v1/admin.grpc.pb.h"
#include "fsck_view.hpp"
#include "question.hpp"

namespace corbd::cli {
namespace {

constexpr std::chrono::seconds kAsksEvery{1}, kTellsEvery{10};

struct Fsck final : Question<v1::Admin> {
  static constexpr const char* kName = "fsck";
  static constexpr const char* kDescription =
      "Check the filesystem of a volume at its next stage, right before the mount, and show what the checker says";

  explicit Fsck(CLI::App& command) : Question(command) {
    timeout_s = 600;
    command.add_option("id", id, "Volume ID")->required();
    command.add_flag("--repair", repair,
                     "Repair what the checker can (e2fsck -y, xfs_repair); without this flag nothing is changed");
    add_output(command, {"text", "json"});
    add_timeout(command, timeout_s);
    command.footer(exit_codes("0 no error is left, 1 refused or failed, or errors are left, 3 no agent answers"));
  }
  int ask(Agent& agent) override {
    using Time = std::chrono::steady_clock;
    const auto until = Time::now() + std::chrono::seconds(timeout_s);
    v1::FsckRequest request;
    request.set_id(id);
    request.set_repair(repair);
    request.set_token(std::to_string(::getpid()) + "-" + std::to_string(now_ms()));
    auto told = v1::CHECK_UNSPECIFIED;
    Time::time_point told_at;
    for (;;) {
      v1::FsckResponse response;
      if (!answered(agent, &Stub::Fsck, request, response)) return kRefused;
      if (response.state() == v1::CHECK_DONE) return show(response);
      if (Time::now() >= until) return tell(fsck_gave_up(id, response, timeout_s));
      if (std::exchange(told, response.state()) != response.state() || Time::now() - told_at >= kTellsEvery) {
        told_at = Time::now();
        std::cerr << fsck_progress(id, response) << std::endl;
      }
      std::this_thread::sleep_for(kAsksEvery);
    }
  }
  int show(const v1::FsckResponse& done) const {
    const int code = say(rpc::json_of(done), fsck_result(id, done));
    return code == 0 && !done.clean() ? kRefused : code;
  }

  std::string id;
  bool repair = false;
};

}  // namespace

void add_fsck(CLI::App& app, Chosen& chosen) { add<Fsck>(app, chosen); }

}  // namespace corbd::cli
