"""The simulated GPU: device profiles, images, the compiler from PTX to native code, and a driver in C (device/)."""
