// The command line, described for other programs: bash's completion and man pages, from the options themselves.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace corbd::cli {

/// A script that bash sources. It knows subcommands, flags, and the values of a flag that takes one of a few.
std::string bash_completion(const CLI::App& app);
/// "corbd-fence-add" and so on: a page for the program, then one for each command that people use.
std::vector<std::string> man_pages(const CLI::App& app);
/// The page of that name, as man(7) has it. Empty: there is none. `version`: for its foot.
std::string man_page(const CLI::App& app, const std::string& page, const std::string& version);

}  // namespace corbd::cli
