// What a kernel takes from here, cuda_on_cpu.h has brought already.
#pragma once
