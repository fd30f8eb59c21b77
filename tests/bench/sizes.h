/* Sizes of the work that both sides of the kernel benchmark do. */
#define VECTOR (1 << 22)
#define MATRIX 512
#define ROUNDS 7
#define SORT_KEYS (1 << 20)
