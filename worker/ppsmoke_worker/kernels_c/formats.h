// How a weight matrix lies in memory. Its rows (the outputs) are cut into tiles of TILE, so that a vector's lanes run
// along outputs: a dot product is then a plain chain of multiply-adds in every lane, with no sum across lanes. A tile
// is a run of records, one for GROUP columns, with everything that is needed of these, so that weights stream through
// the caches in the order of their use:
//
//   quants    GROUP columns of TILE rows. Of 4 or 8 bits: words of 8 or 4 columns of a row, the first lowest;
//             else the values themselves, column by column
//   scales    TILE for the group, or TILE for each half of it
//   minimums  likewise
//
// Missing rows and columns are zeros. A format is a number of bits and flags:

#define FORMAT_BITS 0xff      // 4 and 8: unsigned quants; 16: float16; 32: float32
#define FORMAT_BFLOAT 0x100   // with 16 bits: bfloat16
#define FORMAT_CENTRED 0x200  // quants stand for u - 8 (4 bits) or u - 128 (8 bits)
#define FORMAT_MINIMUM 0x400  // plus a minimum
#define FORMAT_WIDE 0x800     // scales and minimums are float32, not float16
#define FORMAT_HALVES 0x1000  // with scales and minimums for each half of a group

#define VECTORS (TILE / LANES)
#define HALF_GROUP (GROUP / 2)

struct matrix {
  const u8* records;
  i64 format;
  i64 tiles;
  i64 groups;  // in a row
};

INLINE int bits_of(const int format) { return format & FORMAT_BITS; }
INLINE int is_scaled(const int format) { return bits_of(format) < 16; }
INLINE int parts_of(const int format) { return format & FORMAT_HALVES ? 2 : 1; }  // of a group, with own scales

INLINE i64 quant_bytes(const int format) { return TILE * GROUP * bits_of(format) / 8; }
INLINE i64 scale_bytes(const int format) { return TILE * (format & FORMAT_WIDE ? 4 : 2); }  // of one part
INLINE i64 record_bytes(const int format) {
  if (!is_scaled(format)) return quant_bytes(format);
  return quant_bytes(format) + scale_bytes(format) * parts_of(format) * (format & FORMAT_MINIMUM ? 2 : 1);
}

// The scales (kind 0) or minimums (kind 1) of one part of a record, for the rows of one vector.
INLINE vf32 load_scale(const int format, const u8* record, int kind, int part, int vector) {
  const u8* at = record + quant_bytes(format) + (kind * parts_of(format) + part) * scale_bytes(format);
  return format & FORMAT_WIDE ? ((const vf32*)at)[vector] : load_f16((const f16*)at + vector * LANES);
}

INLINE float centre_of(const int format) {
  if (!(format & FORMAT_CENTRED)) return 0.0f;
  return bits_of(format) == 4 ? 8.0f : 128.0f;
}

// Quants stay where they are in their words: masked and converted they are multiplied by a power of two, which the
// activations make up for (see scale_columns). That saves a shift, and is exact. Only the highest ones are shifted
// down, as they would become negative.
INLINE float factor_of_column(const int bits, int column) {
  const int place = column % (32 / bits);
  return place == 32 / bits - 1 ? 1.0f : 1.0f / (float)(1u << (bits * place));
}

// A column of a record, multiplied by the power of two if it is scaled, for the rows of one vector.
INLINE vf32 load_weights(const int format, const u8* record, int column, int vector) {
  const int bits = bits_of(format);
  if (bits == 32) return ((const vf32*)record)[column * VECTORS + vector];
  if (bits == 16 && format & FORMAT_BFLOAT) return load_bf16((const u16*)record + column * TILE + vector * LANES);
  if (bits == 16) return load_f16((const f16*)record + column * TILE + vector * LANES);
  const int columns_a_word = 32 / bits, place = column % columns_a_word;
  const vu32 words = ((const vu32*)record)[column / columns_a_word * VECTORS + vector];
  const vu32 quants = place == columns_a_word - 1 ? words >> (32 - bits) : words & ((1u << bits) - 1) << (bits * place);
  return __builtin_convertvector((vi32)quants, vf32);
}
