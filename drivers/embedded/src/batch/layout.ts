/**
 * The stored form of a batch, format 1. All numbers are little-endian. A batch is its own: nothing in it depends on where it is
 * stored, so the bytes that the writer fills are the bytes in the log. What the append decides (base offset, append time) stands in
 * the row beside it, and the checksum there covers both.
 *
 *     batch    0   u8   format, 1
 *              1   u8   flags: 1 some record carries an id of its own
 *              2   u16  0
 *              4   u32  count of records, at least 1
 *              8   u128 batch id: record i without an id of its own has this + i
 *             24   i64  origin time, µs since 1970, of records that carry none
 *             32   …    the records, one behind the other
 *      end − 4·count    the index: for each record a u32, the position behind its last byte, counted from the start of the batch
 *
 *     record   0   u8   flags: 1 null payload, 2 key, 4 headers, 8 own id, 16 own origin time
 *              [ u128 id ] [ i64 origin time, µs ] [ u16 length, key ] [ u32 length, header entries ]
 *              …        the payload, up to the record's end
 * A record that has nothing but a payload costs 5 bytes beside it.
 *
 *     header entry   u8 length, name in UTF-8 · u8 kind (`headerKindCodes`) · u32 length, value
 */

/** The first byte of every batch. */
export const batchFormat: number = 1
/** Bytes before the first record. */
export const headerBytes: number = 32
/** Bytes of a record's entry in the index. */
export const indexEntryBytes: number = 4

/** Positions in the header. */
export const at = { format: 0, flags: 1, count: 4, id: 8, originMicros: 24 } as const

/** Flags of a batch. */
export const batchFlags = { ownIds: 1 } as const

/** Flags of a record. */
export const recordFlags = { nullPayload: 1, key: 2, headers: 4, ownId: 8, ownTime: 16 } as const

/** The longest key and header name that their length fields hold. */
export const longestKeyBytes: number = 0xffff
export const longestHeaderNameBytes: number = 0xff
