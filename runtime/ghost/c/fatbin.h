/* The architecture of a module's kernels, from the module's registration. */
#ifndef FATBIN_H
#define FATBIN_H
const void *fatbin_data(const void *wrapper);
int fatbin_arch(const void *wrapper); /* 90 for code of sm_90 that this GPU would run; 0: not readable */
#endif
