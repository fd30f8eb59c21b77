"""The simulator's Python half: device profiles, images, and the compiler from PTX to native code."""
