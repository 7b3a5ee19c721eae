// Guesses what a command line that is not understood meant. Pure.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>

namespace corbd::cli {

/// Looks for the first command or flag that does not exist: "corbd fence has no command 'ad': did you mean 'add'?".
/// Empty: every command and flag exists, and something else is wrong. `words` excludes the program's name.
std::string unknown_word(const CLI::App& app, std::span<const std::string> words);

}  // namespace corbd::cli
