import { readdirSync } from "node:fs"
import { join } from "node:path"

/**
 * The files below an area whose path passes, as paths from the root with slashes, sorted. `node_modules` is never entered, `dist` only
 * when asked. An area that does not exist has none.
 */
export function listFiles(
  area: string,
  passes: (path: string) => boolean,
  options: { readonly dist?: boolean } = {},
): string[] {
  const skipped = options.dist ? ["node_modules"] : ["node_modules", "dist"]
  const walk = (folder: string): string[] =>
    readdirSync(join(process.cwd(), folder), { withFileTypes: true }).flatMap((entry) => {
      const path = `${folder}/${entry.name}`
      if (entry.isDirectory()) return skipped.includes(entry.name) ? [] : walk(path)
      return passes(path) ? [path] : []
    })
  return readdirSync(process.cwd()).includes(area) ? walk(area).sort() : []
}
