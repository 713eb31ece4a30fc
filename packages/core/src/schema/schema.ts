/** Schemas and where they are registered (seed 000, "Key operations"; header `millrace-sid` of table 1.11). */

/** What a schema is written in. */
export type SchemaType = "avro" | "json-schema" | "protobuf"

/** Another schema that this one uses: an Avro named type, a Protobuf import, a `$ref` of JSON Schema. */
export interface SchemaReference {
  /** What the using schema calls it: the full name of the Avro type, the path of the import, the URI of the `$ref`. */
  readonly name: string
  readonly subject: string
  /** From 1. */
  readonly version: number
}

/** A schema as it is given. */
export interface SchemaInit {
  readonly type: SchemaType
  /** The text; for Avro and JSON Schema also what its JSON stands for. */
  readonly schema: string | object | boolean
  /** Default: none. */
  readonly references?: readonly SchemaReference[]
}

/** A schema under its id. */
export interface RegisteredSchema {
  /** 1 to 2^32 − 1. Given once for what is the same schema, and never used for another. */
  readonly id: number
  readonly type: SchemaType
  /** As it was first registered, comments and layout kept. */
  readonly schema: string
  readonly references: readonly SchemaReference[]
}

/** A schema as one version of a subject. */
export interface SchemaVersion extends RegisteredSchema {
  readonly subject: string
  /** From 1, without gaps as registered; a foreign registry may have gaps where versions were deleted. */
  readonly version: number
}

/**
 * What a new version of a subject must get on with. `backward`: it can read what the latest version wrote; `forward`: the latest can read
 * what it writes; `full`: both. The transitive ones ask the same of all versions. `none`: nothing is asked.
 */
export type Compatibility =
  | "none"
  | "backward"
  | "backwardTransitive"
  | "forward"
  | "forwardTransitive"
  | "full"
  | "fullTransitive"

/** One reason why data of one schema cannot be read with another. */
export interface Incompatibility {
  /** The version that the new schema does not get on with; absent where the registry does not tell. */
  readonly version?: number
  /** `backward`: the new schema cannot read that version's data; `forward`: that version cannot read the new one's. */
  readonly direction?: "backward" | "forward"
  /** Where in the schema: `User.address.zip`, `properties/age`. Empty for the whole, or where the registry does not tell. */
  readonly path: string
  readonly message: string
}

/** The answer of a compatibility check. */
export interface CompatibilityReport {
  readonly compatible: boolean
  /** What was asked for. */
  readonly compatibility: Compatibility
  /** Empty when compatible. */
  readonly incompatibilities: readonly Incompatibility[]
}

/** How strictly a version is added. */
export interface SchemaRegisterOptions {
  /**
   * Makes it a new version although it is not compatible, or cannot be judged. Default false. A foreign registry has no such thing: set
   * its compatibility to `none` for the time.
   */
  readonly force?: boolean
}

/** What a schema is checked against. */
export interface SchemaCheckOptions {
  /** The version to check against, alone. Default: what the subject's compatibility asks for. */
  readonly version?: number
}

/** How records carry the id of their schema: in the header `millrace-sid`, or in front of the payload as Confluent's serializers write it. */
export type SchemaFraming = "header" | "confluent"

/**
 * Schemas by id, and by subject and version. `client.schemas` keeps them in the backend; `confluentRegistry` speaks to a server.
 * All methods may be called at any time, by any number of processes.
 */
export interface SchemaRegistry {
  readonly framing: SchemaFraming
  /**
   * Answers the schema's id: that of the same schema if there is one (type, text but for layout, and references), else a new one. With a
   * subject it becomes its newest version, unless it is one of its versions already.
   * @throws InvalidError for a schema that does not parse, IncompatibleSchemaError, NotFoundError for a reference, RecordTooLargeError
   */
  register(schema: SchemaInit): Promise<number>
  register(subject: string, schema: SchemaInit, options?: SchemaRegisterOptions): Promise<number>
  /** @throws NotFoundError that names the id */
  get(id: number): Promise<RegisteredSchema>
  /** All schemas, by id. */
  list(): Promise<RegisteredSchema[]>
  /** All subjects, by name. */
  subjects(): Promise<string[]>
  /** All versions of a subject, oldest first. @throws NotFoundError for the subject */
  versions(subject: string): Promise<SchemaVersion[]>
  /** @throws NotFoundError for the subject or the version */
  version(subject: string, version: number | "latest"): Promise<SchemaVersion>
  /** The version of a subject that is this schema; `undefined` when none is. @throws InvalidError for a schema that does not parse */
  find(subject: string, schema: SchemaInit): Promise<SchemaVersion | undefined>
  /**
   * Whether `register` would take the schema. A subject that does not exist takes everything that parses.
   * @throws InvalidError for a schema that does not parse, NotFoundError for a reference or the version of the options
   */
  check(subject: string, schema: SchemaInit, options?: SchemaCheckOptions): Promise<CompatibilityReport>
  /** What holds for a subject, or without one for all that have no setting of their own. Default `backward`. */
  compatibility(subject?: string): Promise<Compatibility>
  /** Sets it, for new versions from now on; versions that exist are not looked at. `undefined`: for all subjects without a setting of their own. */
  setCompatibility(subject: string | undefined, compatibility: Compatibility): Promise<void>
}
