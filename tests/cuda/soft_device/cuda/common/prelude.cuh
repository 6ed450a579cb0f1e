// Nothing: the device in software has the headers that src/cuda/common/prelude.cuh stands in for.
#pragma once
#include "cuda_runtime.h"
