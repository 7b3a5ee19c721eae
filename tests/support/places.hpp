// Where this checkout's tests and the programs of this build are.
#pragma once

#include <string>

namespace corbd::test {

/// The folder tests/ of the checkout.
const std::string& tests_folder();
const std::string& corbd_program();
const std::string& probe_program();
const std::string& helper_child_program();

}  // namespace corbd::test
