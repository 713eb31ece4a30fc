let loaded: typeof import("node:crypto") | undefined

/** Node's own crypto, loaded at its first use: it is a good part of what a program costs at its start that neither encrypts nor hashes. */
export function nodeCrypto(): typeof import("node:crypto") {
  loaded ??= process.getBuiltinModule("node:crypto")
  return loaded
}
