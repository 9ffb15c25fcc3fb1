// Stand-ins for the inline assembly of kernels: `asm("TEXT" : "+f"(x) : "r"(y))` arrives as
// `cuda_asm("TEXT").out("+f", x).in("r", y).run()`, and the instruction is executed by its text, as
// the PTX ISA manual specifies (sections "cvt", "Matrix fragments for mma.m16n8k16", "...
// m16n8k8"). Another instruction, or one with other operands, ends the process.
#pragma once
#include "launch.h"

#define CUDA_WARP 32
// The operands of each thread of a group of at most 32 x 32 x 32, shared within its warp.
static unsigned int cuda_held[CUDA_WARP * 32 * 32][8];

struct cuda_asm {
  enum { MOST = 24 };
  const char* text;
  unsigned int values[MOST];
  void* targets[MOST];
  int count = 0;
  // The numbers of the operands, grouped by braces.
  int groups[4][8], sizes[4] = {0, 0, 0, 0}, group_count = 0;

  explicit cuda_asm(const char* text) : text(text) {}

  static void need(bool holds) { if (!holds) __builtin_trap(); }
  template <class T> cuda_asm& operand(const char* form, char kind, const T& value, void* target) {
    static_assert(sizeof(T) == 4, "a register of 32 bits");
    need(count < MOST && form[0] == kind && form[1] == 0);
    __builtin_memcpy(&values[count], &value, 4);
    targets[count++] = target;
    return *this;
  }
  cuda_asm& out(const char* form, float& x) {
    need(form[0] == '+' || form[0] == '=');
    return operand(form + 1, 'f', x, &x);
  }
  cuda_asm& out(const char* form, unsigned int& x) {
    need(form[0] == '+' || form[0] == '=');
    return operand(form + 1, 'r', form[0] == '+' ? x : 0xa5a5a5a5u, &x);
  }
  cuda_asm& in(const char* form, float x) { return operand(form, 'f', x, nullptr); }
  cuda_asm& in(const char* form, unsigned int x) { return operand(form, 'r', x, nullptr); }
  template <class T> cuda_asm& in(const char*, T) = delete;

  // Returns whether the text is `OPCODE OPERAND, OPERAND, ...;`, and reads its operands.
  bool is(const char* opcode) {
    const char* at = text;
    while (*opcode && *at == *opcode) { ++at; ++opcode; }
    if (*opcode || *at != ' ') return false;
    bool in_braces = false;
    for (group_count = 0; *at && *at != ';'; ++at) {
      if (*at == '{') { need(!in_braces && group_count < 4); in_braces = true; ++group_count; }
      if (*at == '}') { need(in_braces); in_braces = false; }
      if (*at != '%') continue;
      int number = 0;
      need('0' <= at[1] && at[1] <= '9');
      for (; '0' <= at[1] && at[1] <= '9'; ++at) number = 10 * number + (at[1] - '0');
      if (!in_braces) { need(group_count < 4); ++group_count; }
      need(number < count && sizes[group_count - 1] < 8);
      groups[group_count - 1][sizes[group_count - 1]++] = number;
    }
    need(!in_braces && *at == ';' && at[1] == 0);
    return true;
  }
  void set(int number, unsigned int bits) {
    need(targets[number] != nullptr);
    __builtin_memcpy(targets[number], &bits, 4);
  }
  void run() {
    if (is("cvt.rna.tf32.f32")) return round();
    if (is("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")) return multiply(16, 'h');
    if (is("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")) return multiply(16, 'b');
    if (is("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32")) return multiply(8, 'h');
    if (is("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32")) return multiply(8, 'b');
    if (is("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")) return multiply(8, 't');
    need(false);
  }
  // To 10 bits of fraction, to nearest, ties away from zero.
  void round() {
    need(group_count == 2 && sizes[0] == 1 && sizes[1] == 1);
    unsigned int bits = values[groups[1][0]];
    if ((bits & 0x7f800000u) != 0x7f800000u) bits += 0x1000u;
    set(groups[0][0], bits & ~0x1fffu);
  }
  static float element(unsigned int word, int half, char kind) {
    unsigned int bits = word & ~0x1fffu;
    if (kind == 'h') {
      unsigned short own = word >> (16 * half);
      _Float16 value;
      __builtin_memcpy(&value, &own, 2);
      return value;
    }
    if (kind == 'b') bits = (word >> (16 * half)) << 16;
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
  }
  // D = A*B + C, with A of 16 x depth, B of depth x 8: the fragments of the threads of a warp.
  void multiply(int depth, char kind) {
    const int per_word = kind == 't' ? 1 : 2, a_words = depth / 2 / per_word, b_words = a_words / 2;
    need(group_count == 4 && sizes[0] == 4 && sizes[3] == 4);
    need(sizes[1] == a_words && sizes[2] == b_words);
    const int lane = gradiff_thread(0), row = gradiff_thread(1), plane = gradiff_thread(2);
    need(lane < CUDA_WARP && row < 32 && plane < 32);
    unsigned int(*warp)[8] = cuda_held + CUDA_WARP * (row + 32 * plane);
    for (int i = 0; i < a_words; ++i) warp[lane][i] = values[groups[1][i]];
    for (int i = 0; i < b_words; ++i) warp[lane][a_words + i] = values[groups[2][i]];
    gradiff_barrier();
    float a[16][16], b[16][8], result[4];
    for (int thread = 0; thread < CUDA_WARP; ++thread) {
      const int group = thread / 4, within = thread % 4;
      for (int i = 0; i < a_words * per_word; ++i) {
        const float value = element(warp[thread][i / per_word], i % per_word, kind);
        if (kind == 't') {
          a[group + (i % 2 ? 8 : 0)][within + (i < 2 ? 0 : 4)] = value;
        } else {
          a[group + (i / 2 % 2 ? 8 : 0)][2 * within + i % 2 + (i < 4 ? 0 : 8)] = value;
        }
      }
      for (int i = 0; i < b_words * per_word; ++i) {
        const float value = element(warp[thread][a_words + i / per_word], i % per_word, kind);
        const int at = kind == 't' ? within + 4 * i : 2 * within + i % 2 + (i < 2 ? 0 : 8);
        b[at][group] = value;
      }
    }
    for (int i = 0; i < 4; ++i) {
      unsigned int start = values[groups[3][i]];
      __builtin_memcpy(&result[i], &start, 4);
      const int m = lane / 4 + (i < 2 ? 0 : 8), n = 2 * (lane % 4) + i % 2;
      for (int k = 0; k < depth; ++k) {
        result[i] = (float)((double)result[i] + (double)a[m][k] * (double)b[k][n]);
      }
    }
    // No thread writes its operands of the next product before all threads have read these.
    gradiff_barrier();
    for (int i = 0; i < 4; ++i) {
      unsigned int bits;
      __builtin_memcpy(&bits, &result[i], 4);
      set(groups[0][i], bits);
    }
  }
};
