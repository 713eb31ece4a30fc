/**
 * The part of the Standard Schema interface (version 1) that a codec needs, so that validators of any library that offers it can check
 * decoded values. https://standardschema.dev
 */
import { InvalidError } from "@millrace/contract"
import { isThenable } from "../handler/observed.ts"

export interface StandardSchema<T> {
  readonly "~standard": {
    readonly version: 1
    readonly vendor: string
    readonly validate: (value: unknown) => StandardResult<T> | Promise<StandardResult<T>>
    readonly types?: { readonly input: unknown; readonly output: T } | undefined
  }
}

type StandardResult<T> =
  | { readonly value: T; readonly issues?: undefined }
  | { readonly issues: readonly { readonly message: string; readonly path?: readonly unknown[] | undefined }[] }

export function isStandardSchema(value: unknown): value is StandardSchema<unknown> {
  const standard = (
    value as { readonly "~standard"?: { readonly version?: unknown; readonly validate?: unknown } } | null
  )?.["~standard"]
  return standard?.version === 1 && typeof standard.validate === "function"
}

/**
 * Checks a value. Records are decoded while they are read, so only synchronous schemas can be used.
 * @throws InvalidError that lists the issues with their paths.
 */
export function validate<T>(schema: StandardSchema<T>, value: unknown): T {
  const { vendor, validate: check } = schema["~standard"]
  const result = check(value)
  if (isThenable(result)) {
    // The answer is not wanted any more, and its failure is nobody's.
    Promise.resolve(result).catch(() => {})
    throw new InvalidError(`the schema (${vendor}) validates asynchronously; a codec needs one that answers at once`)
  }
  if (result.issues === undefined) return result.value
  const issues = result.issues.map(({ message, path }) => (path?.length ? `${pathText(path)}: ${message}` : message))
  throw new InvalidError(`the value does not fit the schema (${vendor}): ${issues.join("; ")}`)
}

function pathText(path: readonly unknown[]): string {
  return path.map((segment) => String((segment as { readonly key?: unknown } | null)?.key ?? segment)).join(".")
}
