import { InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"
import type { Compatibility, Incompatibility } from "./schema.ts"

/** How many of the reasons the message lists; `incompatibilities` has them all. */
const mostListed = 20

/** A schema was not made a version of its subject, because it does not get on with those that are. Nothing was stored. */
export class IncompatibleSchemaError extends InvalidError {
  readonly subject: string
  readonly incompatibilities: readonly Incompatibility[]

  constructor(
    subject: string,
    compatibility: Compatibility | undefined,
    options: { readonly incompatibilities: readonly Incompatibility[]; readonly cause?: unknown },
  ) {
    const { incompatibilities, cause } = options
    const asked = compatibility === undefined ? "" : `, whose compatibility is ${shown(compatibility)}`
    super(`the schema is no compatible version of subject ${shown(subject)}${asked}: ${listed(incompatibilities)}`, {
      context: { subject, incompatibilities, ...(compatibility === undefined ? {} : { compatibility }) },
      ...(cause === undefined ? {} : { cause }),
    })
    this.subject = subject
    this.incompatibilities = incompatibilities
  }
}

/** Reasons on one line, as error messages list them. */
function listed(incompatibilities: readonly Incompatibility[]): string {
  const lines = incompatibilities.slice(0, mostListed).map(({ version, direction, path, message }) => {
    const side =
      version === undefined
        ? ""
        : direction === "forward"
          ? `version ${version} cannot read it: `
          : `it cannot read version ${version}: `
    return `${side}${path === "" ? "" : `${path}: `}${message}`
  })
  const more = incompatibilities.length - lines.length
  return more > 0 ? `${lines.join("; ")}; and ${more} more` : lines.join("; ")
}
