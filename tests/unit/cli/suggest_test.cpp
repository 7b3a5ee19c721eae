#include "suggest.hpp"

#include "admin_socket.hpp"
#include "flags.hpp"
#include "subcommand.hpp"
#include "support/catch.hpp"

using namespace corbd;
using namespace corbd::cli;

namespace {

/// The agent's own commands.
struct Program {
  CLI::App app;
  Chosen chosen;
  Program() {
    for (const auto add_question : kQuestions) add_question(app, chosen);
    app.add_subcommand("helper", "Its own child")->group("");
  }
};

std::string said(const std::vector<std::string>& words) { return unknown_word(Program().app, words); }

}  // namespace

TEST_CASE("the error for an unknown command suggests the nearest command") {
  CHECK(said({"statsu"}) == "corbd has no command 'statsu': did you mean 'status'?");
  CHECK(said({"volumse", "-o", "json"}) == "corbd has no command 'volumse': did you mean 'volumes'?");
  CHECK(said({"fence", "ad"}) == "corbd fence has no command 'ad': did you mean 'add'?");
}

TEST_CASE("the error for an unknown flag suggests the nearest flag of that command, or else its --help") {
  CHECK(said({"status", "--outputt", "json"}) == "corbd status has no flag '--outputt': did you mean '--output'?");
  CHECK(said({"fail", "x", "--yes-realy"}) == "corbd fail has no flag '--yes-realy': did you mean '--yes-really'?");
  CHECK(said({"drain", "--und=1"}) == "corbd drain has no flag '--und': did you mean '--undo'?");
  CHECK(said({"drain", "-z"}) == "corbd drain has no flag '-z': `corbd drain --help` lists those that it has");
}

TEST_CASE("the error for an unknown command names --help if no command is near") {
  CHECK(said({"frobnicate"}) == "corbd has no command 'frobnicate': `corbd --help` lists those that it has");
}

TEST_CASE("values, positional arguments and words after -- do not count as unknown commands or flags") {
  CHECK(said({"status", "-o", "jsn"}).empty());
  CHECK(said({"status", "--output", "--timeout"}).empty());
  CHECK(said({"status", "--output=jsn"}).empty());
  CHECK(said({"status", "-ojsn"}).empty());
  CHECK(said({"volume", "statsu"}).empty());
  CHECK(said({"heal", "--", "--nothing"}).empty());
  CHECK(said({}).empty());
}

TEST_CASE("a hidden command is accepted but never suggested") {
  CHECK(said({"helper"}).empty());
  CHECK(said({"helpe"}).find("helper") == std::string::npos);
}

TEST_CASE("the runtime directory is the given one, or else the first where an agent answers") {
  std::map<std::string, errc> there;
  const auto found = [&](const std::string& given) {
    return agents_folder(given, [&](const std::string& folder) -> result<> {
      const auto is = there.find(folder);
      if (is == there.end()) return Error{errc::not_found, "none"};
      if (is->second == errc::ok) return {};
      return Error{is->second, "no"};
    });
  };
  CHECK(found("") == "/run/corbd");
  CHECK(found("/given") == "/given");
  there["/tmp/csi/keys"] = errc::ok;
  CHECK(found("") == "/tmp/csi/keys");
  CHECK(found("/given") == "/given");
  there["/run/corbd"] = errc::unavailable;  // an agent that has ended left its socket
  CHECK(found("") == "/tmp/csi/keys");
  there["/tmp/csi/keys"] = errc::unavailable;
  CHECK(found("") == "/run/corbd");
  there.erase("/run/corbd");
  CHECK(found("") == "/tmp/csi/keys");
  there["/tmp/csi/keys"] = there["/run/corbd"] = errc::ok;
  CHECK(found("") == "/run/corbd");
}
