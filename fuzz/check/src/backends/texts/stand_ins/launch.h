// The functions by which a kernel queries its launch, implemented by host.c.
#pragma once
#ifdef __cplusplus
extern "C" {
#endif
int gradiff_group(int dimension);
int gradiff_thread(int dimension);
void gradiff_barrier(void);
#ifdef __cplusplus
}
#endif
