// Runs one pass of stage.c on a picture of an engine's memory, on a machine that cannot run the engine itself.
//
// The picture, in 64-bit words: number of regions; for each its old address, its size and whether bytes follow. The first
// region is struct stage, the second the blocks; what in these points into a region is moved to where the region is now.
// The third region is the rows, the fourth takes the result, the fifth the logits, the sixth is the cache.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static i64 read_word(void) {
  i64 word;
  if (fread(&word, sizeof word, 1, stdin) != 1) exit(2);
  return word;
}

int main(void) {
  static struct { i64 old, size; char* now; } regions[16];
  const i64 count = read_word();
  for (i64 i = 0; i < count; i++) {
    regions[i].old = read_word();
    regions[i].size = read_word();
    regions[i].now = aligned_alloc(64, ROUND_UP(regions[i].size, 64));
    memset(regions[i].now, 0, ROUND_UP(regions[i].size, 64));
    if (read_word() && fread(regions[i].now, regions[i].size, 1, stdin) != 1) return 2;
  }
  for (int i = 0; i < 2; i++)
    for (i64* word = (i64*)regions[i].now; (char*)word < regions[i].now + regions[i].size; word++)
      for (i64 j = 0; j < count; j++)
        if (*word >= regions[j].old && *word < regions[j].old + regions[j].size) {
          *word = (i64)regions[j].now + *word - regions[j].old;
          break;
        }
  const i64 tokens = regions[2].size / HIDDEN / sizeof(float);
  struct job job = {0, {1, 0, tokens, (float*)regions[2].now, (float*)regions[3].now, (float*)regions[5].now,
                        (float*)regions[4].now}};
  pp_stage((struct stage*)regions[0].now, &job);
  fwrite(regions[3].now, regions[3].size, 1, stdout);
  fwrite(regions[4].now, regions[4].size, 1, stdout);
  return 0;
}
