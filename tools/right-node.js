/**
 * Stops `npm start`, `npm test` and the like when they run on another Node than the pinned one, which `npm ci` installs as the
 * dependency `node`. Plain JavaScript, since a Node that is too old could not read anything else.
 */
import { readFileSync } from "node:fs"
import process from "node:process"

const root = new URL("../package.json", import.meta.url)
const pinned = JSON.parse(readFileSync(root, "utf8")).devDependencies.node
const running = process.versions.node

if (running !== pinned) {
  console.error(`This is Node ${running}, but the repository is pinned to Node ${pinned}.`)
  console.error(
    "`npm ci` installs it; with --ignore-scripts, or an npm that asks before it runs install scripts, it does not.",
  )
  console.error("Run `npm ci` (or `npm rebuild node`), then start this command through npm again.")
  process.exit(1)
}
