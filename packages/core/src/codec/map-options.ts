import { OptionReader } from "../client/options.ts"

/** Options of codecs whose format has maps with keys of any kind. */
export interface MapOptions {
  /**
   * What maps are decoded as. `"object"` (default): plain objects; a key that is no string is refused. `"map"`: a `Map` each, with keys of
   * any kind; then a `Map` with such keys can be encoded too.
   */
  readonly maps?: "object" | "map"
}

/** @throws InvalidError for another value, and for options that are not known */
export function mapsOption(owner: string, options: MapOptions | undefined): "object" | "map" {
  return new OptionReader<MapOptions>(owner, options, ["maps"]).choice("maps", ["object", "map"], "object")
}
