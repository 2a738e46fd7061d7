/* Defines three functions of glibc 2.38, for modules built with a newer glibc than this machine's.
 * No header of the C library is included: a newer one would rename strtol to the name defined here. */
#define EXPORT __attribute__((visibility("default")))
extern long strtol(const char *, char **, int);
extern unsigned long strtoul(const char *, char **, int);
extern unsigned long long strtoull(const char *, char **, int);
EXPORT long __isoc23_strtol(const char *text, char **end, int base) { return strtol(text, end, base); }
EXPORT unsigned long __isoc23_strtoul(const char *text, char **end, int base) { return strtoul(text, end, base); }
EXPORT unsigned long long __isoc23_strtoull(const char *text, char **end, int base) { return strtoull(text, end, base); }
