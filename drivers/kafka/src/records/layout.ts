/**
 * Record batches, format 2 ("magic" 2; KIP-98, Kafka documentation, "Record Batch"). All numbers are big-endian.
 *
 *     batch    0   i64  base offset (0 when sent; the broker sets it)
 *              8   i32  length of what follows
 *             12   i32  partition leader epoch (−1 when sent; the broker sets it)
 *             16   i8   magic, 2
 *             17   u32  CRC-32C of everything behind it
 *             21   i16  attributes
 *             23   i32  offset delta of the last record (compaction may have removed that record)
 *             27   i64  base timestamp, ms since 1970
 *             35   i64  largest timestamp
 *             43   i64  producer id, −1 without
 *             51   i16  producer epoch
 *             53   i32  sequence of the first record
 *             57   i32  count of records
 *             61   …    the records, compressed as a whole or not at all
 *
 *     record       varint   length of what follows
 *                  i8       attributes, unused
 *                  varlong  timestamp − base timestamp
 *                  varint   offset − base offset
 *                  varint   length of the key, −1 for null; key
 *                  varint   length of the value, −1 for null; value
 *                  varint   count of headers; for each: varint length and name in UTF-8, varint length (−1 for null) and value
 *
 * Varints and varlongs are zigzag-coded, base 128, least significant group first.
 */

/** Positions in a batch. */
export const at = {
  baseOffset: 0,
  length: 8,
  leaderEpoch: 12,
  magic: 16,
  crc: 17,
  attributes: 21,
  lastOffsetDelta: 23,
  baseTimestamp: 27,
  maxTimestamp: 35,
  producerId: 43,
  producerEpoch: 51,
  sequence: 53,
  count: 57,
} as const

/** Bytes before the first record. */
export const headerBytes: number = 61
/** Bytes that the length field does not count: itself and the base offset. */
export const uncountedBytes: number = 12
/** The only format that brokers of Kafka 4 store. */
export const magic: number = 2
/** The fewest bytes that a record takes. */
export const leastRecordBytes: number = 7

/** Bits of a batch's attributes. The lowest three are the compression codec. */
export const attributes = {
  compression: 0x07,
  logAppendTime: 0x08,
  transactional: 0x10,
  control: 0x20,
} as const
