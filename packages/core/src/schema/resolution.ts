import { InvalidError } from "@millrace/contract"
import { shown } from "../client/options.ts"
import type { SchemaReference, SchemaRegistry, SchemaType, SchemaVersion } from "./schema.ts"
import type { ResolvedSchema, SchemaDependency } from "./schema-format.ts"

/** How many schemas one may use, those counted that are used by what it uses. */
const mostDependencies = 1000

/**
 * A schema with all that it uses, each once.
 * @throws NotFoundError for a reference that leads nowhere, InvalidError for one to a schema of another type, for one name with two
 *   meanings, and for more than 1,000
 */
export async function resolveSchema(
  registry: Pick<SchemaRegistry, "version">,
  schema: { readonly type: SchemaType; readonly schema: string; readonly references: readonly SchemaReference[] },
): Promise<ResolvedSchema> {
  if (schema.references.length === 0) return { type: schema.type, schema: schema.schema, dependencies: [] }
  const walk = new Walk(registry, schema.type)
  await walk.follow(schema.references)
  return { type: schema.type, schema: schema.schema, dependencies: walk.found }
}

class Walk {
  readonly found: SchemaDependency[] = []
  readonly #registry: Pick<SchemaRegistry, "version">
  readonly #type: SchemaType
  /** What each name means: subject and version. */
  readonly #meanings = new Map<string, string>()

  constructor(registry: Pick<SchemaRegistry, "version">, type: SchemaType) {
    this.#registry = registry
    this.#type = type
  }

  /** Versions are written after all that they use, so no way leads back. */
  async follow(references: readonly SchemaReference[]): Promise<void> {
    for (const reference of references) {
      if (this.#known(reference)) continue
      const used = await this.#registry.version(reference.subject, reference.version)
      this.#checkType(reference, used)
      await this.follow(used.references)
      this.found.push({ name: reference.name, schema: used.schema })
    }
  }

  #known({ name, subject, version }: SchemaReference): boolean {
    const meaning = `version ${version} of subject ${shown(subject)}`
    const known = this.#meanings.get(name)
    if (known === meaning) return true
    if (known !== undefined) {
      throw new InvalidError(`the schema's references use the name ${shown(name)} for ${known} and for ${meaning}`)
    }
    if (this.#meanings.size === mostDependencies) {
      throw new InvalidError(`the schema uses more than ${mostDependencies} other schemas`)
    }
    this.#meanings.set(name, meaning)
    return false
  }

  #checkType({ name, subject, version }: SchemaReference, used: SchemaVersion): void {
    if (used.type === this.#type) return
    throw new InvalidError(
      `the schema's reference ${shown(name)} (version ${version} of subject ${shown(subject)}) is of the type "${used.type}", not "${this.#type}"`,
    )
  }
}
