//! Devices, memory, compilers and launches.
