export * as iggyCommands from "./codec/commands.ts"
export type { IggyConnection } from "./connection/connection.ts"
export { iggyDriver } from "./driver.ts"
export { iggyManifest } from "./manifest.ts"
