// Base of the subcommands that call the admin socket. Most are questions: they call the agent and show its answer.
#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <boost/json/array.hpp>
#include <chrono>
#include <iostream>
#include <string>
#include <vector>

#include "admin_socket.hpp"
#include "caller.hpp"
#include "subcommand.hpp"

namespace corbd::cli {

/// Exit codes; docs/serving.md#exit-codes lists them.
inline constexpr int kRefused = 1, kCritical = 2, kNoAgent = 3;
inline constexpr const char* kAnswerCodes = "0 done, 1 refused or failed, 3 no agent answers";

/// Milliseconds since 1970.
inline std::int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

inline boost::json::array ids_of(const google::protobuf::RepeatedPtrField<std::string>& ids) {
  boost::json::array all;
  for (const auto& id : ids) all.push_back(boost::json::string(id));
  return all;
}

class AdminSubcommand : public Subcommand {
 protected:
  explicit AdminSubcommand(CLI::App& command) : name_(command.get_name()) {
    if (const auto& group = command.get_parent()->get_name(); !group.empty()) name_ = group + " " + name_;
    command.add_option("--runtime-dir", runtime_dir_, kRuntimeDirHelp)->envname("CORBD_RUNTIME_DIR");
    command.footer(exit_codes(kAnswerCodes));
  }
  /// Adds -o. The first form is the default.
  void add_output(CLI::App& command, std::vector<std::string> forms) {
    const std::string first = forms.front();
    command.add_option("-o,--output", output, "Output format [" + first + "]")->check(CLI::IsMember(std::move(forms)));
  }
  static void add_timeout(CLI::App& command, int& seconds) {
    command.add_option("--timeout", seconds, "Seconds to wait [" + std::to_string(seconds) + "]")
        ->check(CLI::Range(1, 86400));
  }
  std::string folder() const { return agents_folder(runtime_dir_); }
  bool json() const { return output == "json"; }
  /// Prints one of the two, and returns the exit code.
  int say(const boost::json::object& document, const std::string& text) const {
    return (json() ? print(document) : print(text)) ? 0 : kRefused;
  }
  int tell(const std::string& problem, int exit_code = kRefused) const {
    std::cerr << "corbd " << name_ << ": " << problem << std::endl;
    return exit_code;
  }

  std::string output;
  int timeout_s = 10;

 private:
  std::string name_, runtime_dir_;
};

template <class Service>
class Question : public AdminSubcommand {
 public:
  int run() override {
    const auto socket = admin_socket(folder());
    if (const auto there = look_for_agent(socket); !there) return without_agent(there.error());
    Agent agent(socket);
    return ask(agent);
  }

 protected:
  using Agent = Caller<Service>;
  using Stub = typename Service::Stub;
  using AdminSubcommand::AdminSubcommand;
  virtual int ask(Agent& agent) = 0;
  /// Makes a call. False: it failed, and the reason is printed.
  template <class Request, class Response>
  bool answered(Agent& agent, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                const Request& request, Response& response) const {
    const std::chrono::seconds limit(timeout_s);
    const auto status = agent.call(method, request, response, limit);
    if (!status.ok()) tell(error_text(status, limit));
    return status.ok();
  }
  virtual int without_agent(const Error& error) { return tell(error.text, kNoAgent); }
};

}  // namespace corbd::cli
