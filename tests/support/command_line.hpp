// Runs a command line of corbd in this process.
#pragma once

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "corbd/cli/options.hpp"

namespace corbd::test {

inline cli::Command parsed(std::vector<std::string> words) {
  words.insert(words.begin(), "corbd");
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  return cli::parse(static_cast<int>(arguments.size()), arguments.data(), "0");
}

struct Answer {
  int code;
  std::string out, problems;
};

/// Returns the stdout, stderr and exit code of a subcommand that calls an agent.
inline Answer answer_to(const std::vector<std::string>& words) {
  std::ostringstream out, problems;
  auto* const old_out = std::cout.rdbuf(out.rdbuf());
  auto* const old_problems = std::cerr.rdbuf(problems.rdbuf());
  const auto command = parsed(words);
  const auto* call = std::get_if<cli::Call>(&command);
  const int code = call != nullptr ? call->run() : std::get<cli::Exit>(command).code;
  std::cout.rdbuf(old_out);
  std::cerr.rdbuf(old_problems);
  return {code, out.str(), problems.str()};
}

}  // namespace corbd::test
