// Describes the command line for other programs: bash's completion and man pages, made from the options themselves.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace corbd::cli {

/// Returns a script that bash sources. It knows subcommands, flags, and the values of a flag that takes one of a few.
std::string bash_completion(const CLI::App& app);
/// Returns the names of the pages, such as "corbd-fence-add": one for the program, then one for each command that
/// people use.
std::vector<std::string> man_pages(const CLI::App& app);
/// Returns the page of that name in the form of man(7). Empty: there is none. `version` stands in its footer.
std::string man_page(const CLI::App& app, const std::string& page, const std::string& version);

}  // namespace corbd::cli
