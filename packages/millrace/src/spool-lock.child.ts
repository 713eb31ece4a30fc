/** Takes the lock of a spool, says so, and keeps it until it is killed. */
import { lockSpool } from "./spool-lock.ts"

lockSpool(process.argv[2] as string)
process.send?.("locked")
setInterval(() => {}, 1_000)
