// The man pages and the Bash completion that are made from the command line's definition.
#include "describe.hpp"

#include <algorithm>

#include "support/catch.hpp"

using namespace corbd::cli;

namespace {

/// corbd fence add --size N|--form {a,b}, and a hidden command.
struct Program {
  CLI::App app{"Serves things"};
  int size = 4;
  std::string form, id;
  Program() {
    auto* add = app.add_subcommand("fence", "Keep out")->add_subcommand("add", "Begin. 'It' has a - in it");
    add->add_option("id", id, "Whom")->required();
    add->add_option("--size", size, "How much")->capture_default_str()->envname("SIZE");
    add->add_option("-f,--form", form, "How")->check(CLI::IsMember({"a", "b"}));
    add->add_option("--ignored", id, "Nobody needs it")->group("");
    app.add_subcommand("helper", "Its own child")->group("");
  }
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("there is a man page for the program and for each command that is not hidden") {
  CHECK(man_pages(Program().app) == std::vector<std::string>{"corbd", "corbd-fence", "corbd-fence-add"});
}

TEST_CASE("a man page lists the visible flags of its command with default, environment variable and allowed values") {
  const auto page = man_page(Program().app, "corbd-fence-add", "corbd 1");
  CHECK(has(page, "\\-\\-size INT\nHow much [4] (environment: SIZE)"));
  CHECK(has(page, ".B \\-f, \\-\\-form a|b"));
  CHECK(has(page, ".B corbd fence add\n.I ID\n[\n.I OPTIONS"));
  CHECK(has(page, "Begin. 'It' has a \\- in it"));
  CHECK_FALSE(has(page, "ignored"));
}

TEST_CASE("a man page lists the direct subcommands of its command, and no hidden ones") {
  const auto page = man_page(Program().app, "corbd", "corbd 1");
  CHECK(has(page, ".BR corbd\\-fence (8)\nKeep out"));
  CHECK_FALSE(has(page, "fence\\-add"));
  CHECK_FALSE(has(page, "helper"));
}

TEST_CASE("the man page of an unknown command is empty") {
  CHECK(man_page(Program().app, "corbd-nothing", "").empty());
}

TEST_CASE("the Bash completion contains the commands, their visible flags and the values of a flag") {
  const auto script = bash_completion(Program().app);
  CHECK(has(script, "_corbd_commands['/']='fence'\n"));
  CHECK(has(script, "_corbd_commands['/fence']='add'\n"));
  CHECK(has(script, "--size -f --form"));
  CHECK(has(script, "_corbd_values['fence add --form']='a b'\n"));
  CHECK(has(script, "_corbd_values['fence add --size']='*'\n"));
  CHECK_FALSE(has(script, "ignored"));
}
