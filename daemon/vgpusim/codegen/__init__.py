"""PTX instructions to native code, by way of LLVM."""
