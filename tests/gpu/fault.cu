// Kernels that go wrong in every way, for the tests of the GPU worker.
extern "C" __global__ void write_anywhere(int* somewhere) { somewhere[threadIdx.x] = 1; }

extern "C" __global__ void never_end(volatile int* flag) {
    while (*flag == 0) {
    }
}
