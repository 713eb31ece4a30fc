export { natsDriver } from "./driver.ts"
export type { NatsNative } from "./session.ts"
