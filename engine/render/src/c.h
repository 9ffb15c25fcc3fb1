/* What the kernels of one file use. Every function is total: no division traps, no conversion
   is undefined. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef uint16_t f16;  /* the bits of an IEEE 754 binary16 */
typedef uint16_t bf16; /* the upper half of the bits of an f32 */

