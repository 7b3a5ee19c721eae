// What `corbd doctor` asks of rooms that the command line does not know.
#pragma once

#include "corbd/cli/options.hpp"

namespace corbd {

cli::Surroundings surroundings();

}  // namespace corbd
