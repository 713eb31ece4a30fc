/**
 * A process that loads what the other children load, opens a log and ends by itself. Only then does Node keep what it compiled
 * (`NODE_COMPILE_CACHE`); a process that is killed keeps nothing.
 */
import { connect } from "millrace"

const client = await connect("memory:")
await client.close()
