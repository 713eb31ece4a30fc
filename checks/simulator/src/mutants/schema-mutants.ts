import type { Mutant } from "./mutant.ts"

/** The ways in which the registry of schemas is broken to see that a seed notices. */
export const schemaMutants: readonly Mutant[] = [
  {
    name: "give a schema the id that somebody else was faster with",
    file: "schema/schema-ids.ts",
    find: "    if (await first(() => this.#state.put(hashKey(hash), encodeRow({ id }), { ifRevision: 0n }))) return id\n",
    replace:
      "    await first(() => this.#state.put(hashKey(hash), encodeRow({ id }), { ifRevision: 0n }))\n    if (id > 0) return id\n",
  },
  {
    name: "count ids over what somebody else has counted",
    file: "schema/schema-ids.ts",
    find: "{ ifRevision: entry?.revision ?? 0n })",
    replace: "{})",
  },
  {
    name: "write the versions over those of somebody else",
    file: "schema/state-registry.ts",
    find: "await this.#state.put(subjectKey(subject), value, { ifRevision: revision })",
    replace: "await this.#state.put(subjectKey(subject), value, {})",
  },
  {
    name: "register what does not get on with the version before",
    file: "schema/state-registry.ts",
    find: "      if (!force) {\n",
    replace: "      if (force) {\n",
  },
  {
    name: "call rejected what an attempt before may have done",
    file: "schema/state-registry.ts",
    find: "this.#attempt(what, request, isOfTheSchema)",
    replace: "this.#attempt(what, request)",
  },
]
