#include "support/places.hpp"

namespace corbd::test {

const std::string& tests_folder() {
  static const std::string folder = TESTS_FOLDER;
  return folder;
}

const std::string& corbd_program() {
  static const std::string program = CORBD_PROGRAM;
  return program;
}

const std::string& probe_program() {
  static const std::string program = PROBE_PROGRAM;
  return program;
}

const std::string& helper_child_program() {
  static const std::string program = HELPER_CHILD_PROGRAM;
  return program;
}

}  // namespace corbd::test
