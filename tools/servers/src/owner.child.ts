/** Starts a server, says where it is, and stays: to be killed. */
import { startNats } from "./nats.ts"

const server = await startNats()
console.log(JSON.stringify({ pid: server.pid(), directory: server.directory }))
setInterval(() => {}, 2 ** 30)
