// The program's name and version, for people and for programs of other versions.
#pragma once

namespace corbd::v1 {
class Program;
}

namespace corbd::agent {

v1::Program program();

}  // namespace corbd::agent
