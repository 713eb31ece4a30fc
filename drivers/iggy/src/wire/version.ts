/**
 * The versions of the binary protocol. A server accepts a window of exact versions and answers others with an eviction that names the
 * window (docs/drivers/iggy-wire.md: Login, Wire 0.12).
 */

/** 0.11 is what a released server 0.9 speaks; 0.12 is the wire of server 0.10, written from its description and not yet met in a test. */
export type WireVersion = "0.11" | "0.12"

const numbers: Readonly<Record<WireVersion, readonly [major: number, minor: number, patch: number]>> = {
  "0.11": [0, 11, 0],
  "0.12": [0, 12, 2],
}

/** Newest last. */
const wireVersions: readonly WireVersion[] = ["0.11", "0.12"]

/** The number that a login carries: `major << 20 | minor << 10 | patch`. */
export function packedVersion(version: WireVersion): number {
  const [major, minor, patch] = numbers[version]
  return (major << 20) | (minor << 10) | patch
}

/** The newest version of ours inside a server's window, or `undefined`. */
export function versionWithin(min: number, max: number): WireVersion | undefined {
  return wireVersions.findLast((version) => packedVersion(version) >= min && packedVersion(version) <= max)
}

/** A packed number as text, as `0.11.0`. */
export function formatVersion(packed: number): string {
  return `${packed >>> 20}.${(packed >>> 10) & 0x3ff}.${packed & 0x3ff}`
}
