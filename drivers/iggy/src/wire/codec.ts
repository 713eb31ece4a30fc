/**
 * Layouts as values: one declaration of a structure writes it and reads it. Both directions are needed: a client writes requests and
 * reads replies, the tests' server does the opposite, and recorded exchanges are checked both ways.
 */
import { InvalidError } from "@millrace/contract"
import type { ByteReader } from "./byte-reader.ts"
import type { ByteWriter } from "./byte-writer.ts"
import type { WireVersion } from "./version.ts"

export interface Codec<T> {
  write(writer: ByteWriter, value: T, version: WireVersion): void
  /** @throws MillraceError `protocol` for bytes that contradict the layout */
  read(reader: ByteReader, version: WireVersion): T
}

export const u8: Codec<number> = { write: (w, v) => w.u8(v), read: (r) => r.u8() }
export const u16: Codec<number> = { write: (w, v) => w.u16(v), read: (r) => r.u16() }
export const u32: Codec<number> = { write: (w, v) => w.u32(v), read: (r) => r.u32() }
export const u64: Codec<bigint> = { write: (w, v) => w.u64(v), read: (r) => r.u64() }
export const u128: Codec<bigint> = { write: (w, v) => w.u128(v), read: (r) => r.u128() }
export const f32: Codec<number> = { write: (w, v) => w.f32(v), read: (r) => r.f32() }
export const nothing: Codec<undefined> = { write: () => undefined, read: () => undefined }

/** One byte, 0 or 1. */
export const flag: Codec<boolean> = {
  write: (w, v) => w.u8(v ? 1 : 0),
  read(r) {
    const byte = r.u8()
    return byte <= 1 ? byte === 1 : r.fail(`has ${byte} for a boolean, which is 0 or 1`)
  },
}

/** Text of 1 to 255 bytes behind a length of one byte (iggy-wire.md: Shared encodings). */
export const name: Codec<string> = {
  write(w, text) {
    const bytes = Buffer.from(text, "utf8")
    checkLength("a name", bytes.length)
    w.u8(bytes.length)
    w.raw(bytes)
  },
  read(r) {
    const length = r.u8()
    return length > 0 ? r.text(length) : r.fail("has an empty name")
  },
}

/** Text of 0 to 255 bytes behind a length of one byte: passwords and tokens. */
export const secret: Codec<string> = {
  write(w, text) {
    const bytes = Buffer.from(text, "utf8")
    if (bytes.length > 255)
      throw new InvalidError(`a password or token has ${bytes.length} bytes of UTF-8: at most 255`)
    w.u8(bytes.length)
    w.raw(bytes)
  },
  read: (r) => r.text(r.u8()),
}

/** Text behind a length of four bytes, perhaps empty. */
export const text32: Codec<string> = {
  write(w, text) {
    const bytes = Buffer.from(text, "utf8")
    w.u32(bytes.length)
    w.raw(bytes)
  },
  read: (r) => r.text(r.u32()),
}

/** Bytes to the end of the body. */
export const rest: Codec<Uint8Array> = { write: (w, v) => w.raw(v), read: (r) => r.raw(r.left) }

/** Fields in the order of the declaration. */
export function struct<T extends object>(fields: { readonly [K in keyof T]-?: Codec<T[K]> }): Codec<T> {
  const entries = Object.entries(fields) as [keyof T, Codec<unknown>][]
  return {
    write(writer, value, version) {
      for (const [key, codec] of entries) codec.write(writer, value[key], version)
    },
    read(reader, version) {
      const value = {} as Record<keyof T, unknown>
      for (const [key, codec] of entries) value[key] = codec.read(reader, version)
      return value as T
    },
  }
}

/** Both parts, one after the other, as one object. */
export function join<A extends object, B extends object>(first: Codec<A>, second: Codec<B>): Codec<A & B> {
  return {
    write(writer, value, version) {
      first.write(writer, value, version)
      second.write(writer, value, version)
    },
    read: (reader, version) => ({ ...first.read(reader, version), ...second.read(reader, version) }),
  }
}

/** Items to the end of the body, without a count. */
export function listToEnd<T>(item: Codec<T>): Codec<readonly T[]> {
  return {
    write(writer, items, version) {
      for (const one of items) item.write(writer, one, version)
    },
    read(reader, version) {
      const items: T[] = []
      while (reader.left > 0) items.push(item.read(reader, version))
      return items
    },
  }
}

/** Items behind a count of four bytes. `leastBytes`: what one takes at least, so that a count can be checked before it is believed. */
export function list32<T>(item: Codec<T>, leastBytes: number): Codec<readonly T[]> {
  return counted(u32, item, leastBytes)
}

/** Items behind a count of one byte. */
export function list8<T>(item: Codec<T>, leastBytes: number): Codec<readonly T[]> {
  return counted(u8, item, leastBytes)
}

/** An empty body is `undefined`: the thing was not found. */
export function orNothing<T>(codec: Codec<T>): Codec<T | undefined> {
  return {
    write(writer, value, version) {
      if (value !== undefined) codec.write(writer, value, version)
    },
    read: (reader, version) => (reader.left === 0 ? undefined : codec.read(reader, version)),
  }
}

/** A flag of one byte, then the value where it is 1. */
export function flagged<T>(codec: Codec<T>): Codec<T | undefined> {
  return {
    write(writer, value, version) {
      writer.u8(value === undefined ? 0 : 1)
      if (value !== undefined) codec.write(writer, value, version)
    },
    read: (reader, version) => (flag.read(reader, version) ? codec.read(reader, version) : undefined),
  }
}

/** A part with its length, four bytes, before it. */
export function sized32<T>(codec: Codec<T>): Codec<T> {
  return {
    write(writer, value, version) {
      const at = writer.length
      writer.u32(0)
      codec.write(writer, value, version)
      writer.setU32(at, writer.length - at - 4)
    },
    read(reader, version) {
      const part = reader.part(reader.u32())
      const value = codec.read(part, version)
      part.end()
      return value
    },
  }
}

/** One of several words, each with its byte. */
export function word<W extends string>(words: Readonly<Record<W, number>>, what: string): Codec<W> {
  const byByte = new Map(Object.entries(words).map(([key, byte]) => [byte as number, key as W]))
  return {
    write: (writer, value) => writer.u8(words[value]),
    read(reader) {
      const byte = reader.u8()
      return byByte.get(byte) ?? reader.fail(`has ${byte} for ${what}`)
    },
  }
}

/** Another layout from wire 0.12 on. */
export function byVersion<T>(layouts: Readonly<Record<WireVersion, Codec<T>>>): Codec<T> {
  return {
    write: (writer, value, version) => layouts[version].write(writer, value, version),
    read: (reader, version) => layouts[version].read(reader, version),
  }
}

/** @throws InvalidError outside 1 to 255 bytes */
export function checkLength(what: string, bytes: number): void {
  if (bytes < 1 || bytes > 255)
    throw new InvalidError(`${what} has ${bytes} bytes of UTF-8: Apache Iggy takes 1 to 255`)
}

function counted<T>(count: Codec<number>, item: Codec<T>, leastBytes: number): Codec<readonly T[]> {
  return {
    write(writer, items, version) {
      count.write(writer, items.length, version)
      for (const one of items) item.write(writer, one, version)
    },
    read(reader, version) {
      const items: T[] = []
      const length = reader.count(count.read(reader, version), leastBytes)
      for (let i = 0; i < length; i++) items.push(item.read(reader, version))
      return items
    },
  }
}
