"""Real GPUs: the only code that touches PyCUDA.

`diagnosis` says what stands between this machine and a live run, `toolchain` and `build` turn a `.cu` file into a
cubin, and `service` runs requests in one worker process per GPU, so that no launch can harm the app. Importing this
package, or any module of it, imports neither PyCUDA nor torch.
"""
