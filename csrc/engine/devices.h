// From a device's name to its backend.
#pragma once
#include "engine/engine.h"

namespace lucebox::engine {

// Throws kRequest for a name that is none, kDevice for a device that is not there. A planning backend takes no memory and needs no card.
std::unique_ptr<ops::Backend> open_backend(const Options& options, bool planning);

}  // namespace lucebox::engine
