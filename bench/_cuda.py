"""A little of CUDA's driver library, without a toolkit: contexts, memory, and two kernels as text.

In:    libcuda.so.1.   Out: how much arithmetic a device does, what can be allocated, a fault on purpose.
Never: uses managed memory; a refusal is a CudaError with the driver's own name for it.
"""

import ctypes
import time
from typing import Any

LIBRARY = "libcuda.so.1"
BLOCKS_A_UNIT, THREADS, ROUNDS = 16, 256, 4000
# `spin` multiplies and adds; `fault` writes where nothing may be written.
KERNELS = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry spin(.param .u64 out, .param .u32 rounds)
{
  .reg .pred %p<2>; .reg .f32 %f<6>; .reg .b32 %r<8>; .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [rounds];
  mov.u32 %r2, %tid.x;
  cvt.rn.f32.u32 %f1, %r2;
  mov.f32 %f2, 0f3F800001;
  mov.f32 %f3, 0f33800000;
  mov.f32 %f4, %f1;
  mov.u32 %r3, 0;
AGAIN:
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f4, %f4, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f4, %f4, %f2, %f3;
  add.u32 %r3, %r3, 1;
  setp.lt.u32 %p1, %r3, %r1;
  @%p1 bra AGAIN;
  add.f32 %f1, %f1, %f4;
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.u32 %rd3, %r2, 4;
  add.s64 %rd4, %rd2, %rd3;
  st.global.f32 [%rd4], %f1;
  ret;
}
.visible .entry fault()
{
  .reg .b64 %rd<2>; .reg .b32 %r<2>;
  mov.u64 %rd1, 64;
  mov.u32 %r1, 1;
  st.global.u32 [%rd1], %r1;
  ret;
}
\0"""


class CudaError(Exception):
    """The driver said no; `name` is its word, CUDA_ERROR_OUT_OF_MEMORY for instance."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.name = name


class Cuda:
    """The driver, started in this process."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(LIBRARY)
        self._call("cuInit", 0)

    def devices(self) -> int:
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def open(self, index: int = 0) -> "Context":
        return Context(self, index)

    def _call(self, name: str, *args: Any) -> None:
        code = getattr(self._library, name)(*args)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(text))
            raise CudaError(name, code, (text.value or b"?").decode())


class Context:
    """One device's context, with our kernels in it."""

    def __init__(self, cuda: Cuda, index: int) -> None:
        self.call = cuda._call
        device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), index)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        units = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(units), 16, device)
        self.units = units.value  # under MPS: those that the share may use
        self.call("cuModuleLoadData", ctypes.byref(module), KERNELS)
        self._module = module
        self._out = self.allocate(THREADS * 4)

    def memory_mib(self) -> tuple[int, int]:
        """(free, total) as the driver tells this process."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value >> 20, total.value >> 20

    def allocate(self, size_bytes: int) -> int:
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size_bytes))
        return pointer.value

    def free(self, pointer: int) -> None:
        self.call("cuMemFree_v2", ctypes.c_uint64(pointer))

    def synchronize(self) -> None:
        self.call("cuCtxSynchronize")

    def spin(self, until: float, blocks: int) -> tuple[int, float]:
        """Launch until a moment of time.time(); (finished launches, seconds)."""
        began = time.time()
        done = 0
        while time.time() < until:
            for _ in range(4):
                self.launch("spin", blocks, ctypes.c_uint64(self._out), ctypes.c_uint32(ROUNDS))
            self.synchronize()
            done += 4
        return done, time.time() - began

    def fault(self) -> None:
        """An illegal address: this context is lost."""
        self.launch("fault", 1)
        self.synchronize()

    def launch(self, name: str, blocks: int, *args: Any) -> None:
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), self._module, name.encode())
        pointers = (ctypes.c_void_p * max(1, len(args)))(*(ctypes.addressof(arg) for arg in args))
        threads = THREADS if args else 1
        self.call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, None, pointers, None)
