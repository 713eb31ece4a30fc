export { embeddedDriver } from "./driver.ts"
export type { EmbeddedNative } from "./session.ts"
export type { VerifyReport } from "./verify.ts"
export { verifyStore } from "./verify.ts"
